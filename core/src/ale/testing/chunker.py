"""Contract kit for chunkers, and random trajectories as their input."""

import contextlib
import random
from collections.abc import Sequence

import pytest

from ale.errors import ChunkError
from ale.protocols import Chunker
from ale.testing import builders
from ale.types import (
    Chunk,
    Completion,
    Message,
    Observation,
    Span,
    TokenTrace,
    ToolCall,
    Trajectory,
    Turn,
    partition_problem,
)

_WORDS = (
    "ls",
    "two words",
    "<micro-step>",
    "</micro-step>",
    "<micro-step>look around</micro-step>",
    "\n\n",
    " ",
    "é",
    "e\u0301",
    "日本語",
    "👩‍👩‍👧",
    "\u202e",
    "\x00",
    "<tool_call>",
    '{"a": "<\\/micro-step>"}',
)
_MEGABYTE = 1 << 20
HOSTILE_TEXTS = (
    "<micro-step>",
    "</micro-step>",
    "</micro-step><micro-step>",
    "<micro-step></micro-step>",
    "<micro-step>a<micro-step>b</micro-step>c</micro-step>d",
    "<micro-step>never closed <micro-step>closed</micro-step> tail",
    "<micro-step>a</micro-step></micro-step> stray",
    "< micro-step >a</ micro-step>",
    "\ud7ff\ue000\U0010ffff\x00\r\n",
    "x" * _MEGABYTE,
    "<micro-step>" * (_MEGABYTE // 12),
    "</micro-step>" * (_MEGABYTE // 13),
    "<micro-step>" * (_MEGABYTE // 25) + "</micro-step>" * (_MEGABYTE // 25),
)
"""Contents that a careless implementation splits wrongly or slowly, one message each."""


def random_trace(
    rng: random.Random, text: str, calls: int, *, offsets: bool, longest: int = 5
) -> TokenTrace:
    """Tokens of 1 to `longest` characters that make up `text`, then some for calls and end."""
    starts: list[int] = []
    position = 0
    while position < len(text):
        starts.append(position)
        position += rng.randint(1, longest)
    starts += [len(text)] * (3 * calls + rng.randint(0, 1))
    n = len(starts)
    return TokenTrace(
        prompt_ids=(1, 2),
        output_ids=tuple(rng.randrange(1000) for _ in range(n)),
        logprobs=tuple(-rng.random() for _ in range(n)),
        policy_versions=(0,) * n,
        text_offsets=tuple(starts) if offsets else None,
    )


def random_turn(rng: random.Random, *, tokens: bool, offsets: bool) -> Turn:
    """A turn of any shape: no text, several calls, failed calls, calls in the text, tags."""
    text = "".join(rng.choice(_WORDS) for _ in range(rng.choice((0, 1, 3, 8))))
    calls = tuple(
        ToolCall(id=f"call_{i}", name="bash", arguments=rng.choice(("{}", "not JSON", "")))
        for i in range(rng.choice((0, 0, 1, 1, 2, 3)))
    )
    # Some agents parse calls out of the text: then only observations show them, not the message.
    in_text = rng.random() < 0.25
    return Turn(
        prompt=(Message(role="user", content="Continue."),) if rng.random() < 0.5 else (),
        fresh_context=rng.random() < 0.1,
        completion=Completion(
            message=Message(role="assistant", content=text, tool_calls=() if in_text else calls),
            tokens=random_trace(rng, text, len(calls), offsets=offsets) if tokens else None,
        ),
        observations=tuple(
            Observation(
                call_id=call.id,
                tool=call.name,
                content=rng.choice(("", "ok", "</micro-step>")),
                role="user" if in_text else "tool",
                error="exit code 1" if rng.random() < 0.3 else None,
            )
            for call in calls
        ),
    )


def random_trajectory(
    rng: random.Random, *, tokens: bool = False, offsets: bool = False
) -> Trajectory:
    """Up to eight turns, with token traces (with text offsets) in all of them or in none."""
    turns = (
        random_turn(rng, tokens=tokens, offsets=offsets)
        for _ in range(rng.choice((1, 1, 2, 3, 5, 8)))
    )
    return Trajectory(turns=tuple(turns))


def assert_partition(trajectory: Trajectory, chunks: Sequence[Chunk]) -> None:
    """Every character, call and token of each turn is in exactly one span, in order.

    Tokens may be unknown (None) only in spans that are a part of their turn.
    """
    problem = partition_problem(trajectory, chunks)
    assert problem is None, problem


def _content(span: Span) -> int:
    start, stop = span.tokens or (0, 0)
    return span.text[1] - span.text[0] + span.calls[1] - span.calls[0] + stop - start


def _is_empty(turn: Turn) -> bool:
    completion = turn.completion
    tokens = completion.tokens.output_ids if completion.tokens else ()
    return not (
        completion.message.content or completion.message.tool_calls or turn.observations or tokens
    )


class ChunkerContract:
    """The contract of every chunker. Override `chunker`.

    A chunker that needs token ids may refuse trajectories without them with `ChunkError`;
    trajectories with tokens and text offsets must be split by every chunker.
    """

    @pytest.fixture
    def chunker(self) -> Chunker:
        """The chunker to test."""
        raise NotImplementedError("override the fixture 'chunker'")

    def test_an_empty_trajectory_has_no_chunks(self, chunker: Chunker) -> None:
        assert len(chunker.split(Trajectory())) == 0

    @pytest.mark.parametrize("seed", range(40))
    def test_chunks_partition_a_trajectory_with_known_tokens(
        self, chunker: Chunker, seed: int
    ) -> None:
        trajectory = random_trajectory(random.Random(seed), tokens=True, offsets=True)
        assert_partition(trajectory, chunker.split(trajectory))

    @pytest.mark.parametrize("seed", range(20))
    def test_chunks_partition_a_trajectory_whose_tokens_have_no_place_in_the_text(
        self, chunker: Chunker, seed: int
    ) -> None:
        trajectory = random_trajectory(random.Random(seed), tokens=True)
        assert_partition(trajectory, chunker.split(trajectory))

    @pytest.mark.parametrize("seed", range(20))
    def test_chunks_partition_a_trajectory_without_tokens_or_it_is_refused(
        self, chunker: Chunker, seed: int
    ) -> None:
        trajectory = random_trajectory(random.Random(seed))
        with contextlib.suppress(ChunkError):
            assert_partition(trajectory, chunker.split(trajectory))

    @pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: ascii(text[:24]))
    def test_hostile_texts_are_partitioned(self, chunker: Chunker, text: str) -> None:
        longest = max(5, len(text) // 1000)
        trace = random_trace(random.Random(0), text, 1, offsets=True, longest=longest)
        call = ToolCall(id="call_0", name="bash", arguments="{}")
        turn = Turn(
            completion=Completion(
                message=Message(role="assistant", content=text, tool_calls=(call,)), tokens=trace
            ),
            observations=(Observation(call_id="call_0", tool="bash", content=text),),
        )
        trajectory = Trajectory(turns=(turn,))
        assert_partition(trajectory, chunker.split(trajectory))

    def test_chunks_are_numbered_from_0_and_say_which_rule_cut_them(self, chunker: Chunker) -> None:
        for trajectory in self._trajectories():
            chunks = chunker.split(trajectory)
            assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
            assert all(chunk.kind for chunk in chunks)

    def test_chunks_are_records_of_plain_numbers(self, chunker: Chunker) -> None:
        for trajectory in self._trajectories():
            for chunk in chunker.split(trajectory):
                assert type(chunk) is Chunk
                assert type(chunk.spans) is tuple
                for span in chunk.spans:
                    numbers = (span.turn, *span.text, *span.calls, *(span.tokens or ()))
                    assert all(type(number) is int for number in numbers)

    def test_no_chunk_is_without_content_unless_its_turn_is(self, chunker: Chunker) -> None:
        for trajectory in self._trajectories():
            for chunk in chunker.split(trajectory):
                assert chunk.spans, f"chunk {chunk.index} has no spans"
                for span in chunk.spans:
                    assert _content(span) or _is_empty(trajectory.turns[span.turn]), (
                        f"chunk {chunk.index} has an empty span in turn {span.turn}"
                    )

    def test_an_empty_turn_is_covered(self, chunker: Chunker) -> None:
        trajectory = builders.trajectory(builders.turn("", tokens=0), builders.turn("a", tokens=1))
        assert_partition(trajectory, chunker.split(trajectory))

    def test_splitting_again_gives_the_same_whatever_came_between(self, chunker: Chunker) -> None:
        trajectories = self._trajectories()
        first = [tuple(chunker.split(trajectory)) for trajectory in trajectories]
        again = [tuple(chunker.split(trajectory)) for trajectory in reversed(trajectories)]
        assert first == list(reversed(again))

    def test_splitting_leaves_the_trajectory_as_it_was(self, chunker: Chunker) -> None:
        for trajectory, same in zip(self._trajectories(), self._trajectories(), strict=True):
            chunker.split(trajectory)
            assert trajectory == same

    def _trajectories(self) -> list[Trajectory]:
        return [
            random_trajectory(random.Random(seed), tokens=True, offsets=True)
            for seed in range(100, 110)
        ]
