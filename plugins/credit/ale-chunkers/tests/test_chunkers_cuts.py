"""What each chunker makes of a trajectory, in full."""

import pytest

from ale.errors import ChunkError
from ale.protocols import Chunker
from ale.testing.builders import trajectory, turn
from ale.types import Chunk, Message, Trajectory, Turn, replace
from ale_chunkers.micro_steps import MICRO_STEP
from ale_chunkers.options import AttemptOptions, InteractionOptions
from ale_chunkers.parts import AleLiteChunker, TagChunker, ToolCallChunker
from ale_chunkers.tokens import TokenChunker
from ale_chunkers.turns import (
    AttemptChunker,
    InteractionChunker,
    MessageChunker,
    PhaseChunker,
    TrajectoryChunker,
)

CALL = ("bash", "{}")
STEP = "<micro-step>a</micro-step>"


def interaction(turns_without_calls: str = "join") -> InteractionChunker:
    return InteractionChunker(
        InteractionOptions(turns_without_calls=turns_without_calls)  # type: ignore[arg-type]
    )


def shape(chunks: object) -> list[tuple[str, list[tuple[object, ...]]]]:
    assert isinstance(chunks, tuple)
    return [
        (chunk.kind, [(span.turn, span.text, span.calls) for span in chunk.spans])
        for chunk in chunks
        if isinstance(chunk, Chunk)
    ]


def turns_of(chunks: object) -> list[list[object]]:
    return [[span[0] for span in spans] for _, spans in shape(chunks)]


def tokens_of(chunks: object) -> list[object]:
    assert isinstance(chunks, tuple)
    return [span.tokens for chunk in chunks for span in chunk.spans]


def with_offsets(made: Turn, *offsets: int) -> Turn:
    """The turn with a trace of one token per offset."""
    n = len(offsets)
    template = turn(tokens=n).completion.tokens
    assert template is not None
    trace = replace(template, text_offsets=offsets)
    return replace(made, completion=replace(made.completion, tokens=trace))


TWO_ACTS = trajectory(
    turn("I think.", calls=[CALL]),
    turn("Both.", calls=[CALL, CALL]),
    turn("Done."),
)


def test_message_gives_one_chunk_per_message_with_its_calls() -> None:
    assert shape(MessageChunker().split(TWO_ACTS)) == [
        ("message", [(0, (0, 8), (0, 1))]),
        ("message", [(1, (0, 5), (0, 2))]),
        ("message", [(2, (0, 5), (0, 0))]),
    ]


def judged(tool: str = "attempt") -> Turn:
    return turn("Try this.", calls=[(tool, "")])


def test_attempt_cuts_after_each_turn_that_was_judged() -> None:
    made = trajectory(turn("Hm."), judged(), judged("bash"), judged(), turn("Done."))
    chunks = AttemptChunker(AttemptOptions()).split(made)
    assert turns_of(chunks) == [[0, 1], [2, 3], [4]]
    assert [kind for kind, _ in shape(chunks)] == ["attempt", "attempt", "untested"]


def test_phase_cuts_after_each_turn_that_ends_one() -> None:
    tools = ("shell", "plan", "patch", "shell", "repair", "x")
    made = trajectory(*map(judged, tools))
    ends = {name: name for name in ("plan", "patch", "repair")}
    chunks = PhaseChunker(ends, rest="rest").split(made)
    kinds = [(chunk.kind, [span.turn for span in chunk.spans]) for chunk in chunks]
    assert kinds == [("plan", [0, 1]), ("patch", [2]), ("repair", [3, 4]), ("rest", [5])]


def test_attempt_takes_the_tool_of_its_option() -> None:
    made = trajectory(judged(), judged("submit"))
    chunks = AttemptChunker(AttemptOptions(tool="submit")).split(made)
    assert [kind for kind, _ in shape(chunks)] == ["attempt"]


def test_tool_call_gives_the_text_before_the_calls_to_the_first_of_them() -> None:
    assert shape(ToolCallChunker().split(TWO_ACTS)) == [
        ("tool-call", [(0, (0, 8), (0, 1))]),
        ("tool-call", [(1, (0, 5), (0, 1))]),
        ("tool-call", [(1, (5, 5), (1, 2))]),
        ("message", [(2, (0, 5), (0, 0))]),
    ]


def test_ale_lite_gives_messages_and_then_their_calls() -> None:
    assert shape(AleLiteChunker().split(TWO_ACTS)) == [
        ("message", [(0, (0, 8), (0, 0))]),
        ("tool-call", [(0, (8, 8), (0, 1))]),
        ("message", [(1, (0, 5), (0, 0))]),
        ("tool-call", [(1, (5, 5), (0, 1))]),
        ("tool-call", [(1, (5, 5), (1, 2))]),
        ("message", [(2, (0, 5), (0, 0))]),
    ]


def test_ale_lite_cuts_a_message_at_its_micro_steps_before_its_call() -> None:
    made = trajectory(turn(f"So: {STEP}", calls=[CALL]))
    assert shape(AleLiteChunker().split(made)) == [
        ("message", [(0, (0, 4), (0, 0))]),
        ("micro-step", [(0, (4, 30), (0, 0))]),
        ("tool-call", [(0, (30, 30), (0, 1))]),
    ]


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_ale_lite_makes_no_message_of_blank_text_before_a_call(text: str) -> None:
    made = trajectory(turn(text, calls=[CALL]))
    assert shape(AleLiteChunker().split(made)) == [("tool-call", [(0, (0, len(text)), (0, 1))])]


def test_micro_step_gives_the_calls_to_the_last_piece() -> None:
    made = trajectory(turn(f"So: {STEP}", calls=[CALL, CALL]), turn("x", calls=[CALL]))
    assert shape(TagChunker(MICRO_STEP).split(made)) == [
        ("message", [(0, (0, 4), (0, 0))]),
        ("micro-step", [(0, (4, 30), (0, 2))]),
        ("message", [(1, (0, 1), (0, 1))]),
    ]


def test_trajectory_gives_one_chunk_of_all_turns() -> None:
    assert turns_of(TrajectoryChunker().split(TWO_ACTS)) == [[0, 1, 2]]


def test_an_interaction_is_a_turn_that_acts() -> None:
    assert turns_of(interaction().split(TWO_ACTS)) == [[0], [1], [2]]


def test_a_turn_without_calls_joins_the_next_turn_that_acts() -> None:
    made = trajectory(turn("Hm."), turn("Hm!"), turn(calls=[CALL]), turn("So."), turn("Done."))
    assert turns_of(interaction().split(made)) == [[0, 1, 2], [3, 4]]


def test_a_turn_without_calls_can_be_a_chunk_of_its_own() -> None:
    made = trajectory(turn("Hm."), turn("Hm!"), turn(calls=[CALL]), turn("Done."))
    assert turns_of(interaction("own").split(made)) == [[0], [1], [2], [3]]


def test_turns_that_act_never_merge_because_nothing_was_observed() -> None:
    silent = turn("", calls=[CALL], observations=[""])
    unanswered = replace(silent, observations=())
    made = trajectory(silent, silent, unanswered, unanswered)
    assert turns_of(interaction().split(made)) == [[0], [1], [2], [3]]


def calling_in_text(text: str, n_calls: int = 1) -> Turn:
    """A turn whose calls the agent parsed out of the text: only their observations are recorded."""
    acted = turn(text, calls=[CALL] * n_calls, tokens=len(text))
    message = Message(role="assistant", content=text)
    return replace(acted, completion=replace(acted.completion, message=message))


def test_an_observation_without_a_recorded_call_is_an_interaction_too() -> None:
    acted = calling_in_text("```bash\nls\n```")
    assert turns_of(interaction().split(trajectory(acted, acted))) == [[0], [1]]


@pytest.mark.parametrize("chunker", [ToolCallChunker(), AleLiteChunker()])
def test_calls_in_the_text_are_one_chunk_with_the_tokens_that_made_them(chunker: Chunker) -> None:
    made = trajectory(calling_in_text("```bash\nls\n```", n_calls=2))
    chunks = chunker.split(made)
    assert shape(chunks) == [("tool-call", [(0, (0, 14), (0, 2))])]
    assert tokens_of(chunks) == [(0, 14)]


def test_ale_lite_gives_calls_in_the_text_to_the_last_piece() -> None:
    text = "<micro-step>a</micro-step> ls"
    chunks = AleLiteChunker().split(trajectory(calling_in_text(text)))
    assert [(chunk.kind, chunk.spans[0].calls) for chunk in chunks] == [
        ("micro-step", (0, 0)),
        ("tool-call", (0, 1)),
    ]


def test_tokens_of_a_whole_turn_need_no_offsets() -> None:
    made = trajectory(turn("abc", calls=[CALL], tokens=7))
    for chunker in (MessageChunker(), ToolCallChunker(), interaction(), TrajectoryChunker()):
        assert tokens_of(chunker.split(made)) == [(0, 7)]


def test_tokens_are_found_where_a_cut_falls_between_two() -> None:
    made = trajectory(with_offsets(turn(f"ab{STEP}", calls=[CALL]), 0, 1, 2, 20, 28, 28, 28))
    assert tokens_of(AleLiteChunker().split(made)) == [(0, 2), (2, 4), (4, 7)]


def test_tokens_are_unknown_on_both_sides_of_a_cut_inside_one() -> None:
    made = trajectory(with_offsets(turn(f"ab{STEP}", calls=[CALL]), 0, 1, 9, 20, 28, 28))
    assert tokens_of(AleLiteChunker().split(made)) == [None, None, (4, 6)]


def test_tokens_between_two_calls_are_unknown() -> None:
    made = trajectory(with_offsets(turn("ab", calls=[CALL, CALL]), 0, 1, 2, 2, 2))
    assert tokens_of(AleLiteChunker().split(made)) == [(0, 2), None, None]


def test_tokens_of_parts_are_unknown_without_offsets() -> None:
    made = trajectory(turn("ab", calls=[CALL], tokens=5))
    assert tokens_of(AleLiteChunker().split(made)) == [None, None]


def test_a_call_written_inside_the_text_leaves_the_call_an_empty_range() -> None:
    made = trajectory(with_offsets(turn("ab", calls=[CALL]), 0, 1))
    assert tokens_of(AleLiteChunker().split(made)) == [(0, 2), (2, 2)]


def test_token_gives_each_token_the_text_it_starts_and_the_last_one_the_calls() -> None:
    made = trajectory(with_offsets(turn("abcd", calls=[CALL]), 0, 2, 4))
    chunks = TokenChunker().split(made)
    assert shape(chunks) == [
        ("token", [(0, (0, 2), (0, 0))]),
        ("token", [(0, (2, 4), (0, 0))]),
        ("token", [(0, (4, 4), (0, 1))]),
    ]
    assert tokens_of(chunks) == [(0, 1), (1, 2), (2, 3)]


def test_token_gives_the_whole_text_to_the_last_token_without_offsets() -> None:
    made = trajectory(turn("abcd", tokens=3))
    assert [text for _, [(_, text, _)] in shape(TokenChunker().split(made))] == [
        (0, 0),
        (0, 0),
        (0, 4),
    ]


def test_token_explains_what_to_do_if_no_tokens_were_recorded() -> None:
    made = trajectory(turn("a", tokens=1), turn("b"))
    with pytest.raises(ChunkError, match=r"turn 1 has no token ids.*choose another chunker"):
        TokenChunker().split(made)


@pytest.mark.parametrize("chunker", [TokenChunker(), AleLiteChunker()])
@pytest.mark.parametrize("tokens", [0, 1])
def test_an_empty_turn_is_one_chunk(chunker: TokenChunker | AleLiteChunker, tokens: int) -> None:
    assert tokens_of(chunker.split(trajectory(turn("", tokens=tokens)))) == [(0, tokens)]


@pytest.mark.parametrize("chunker", [TokenChunker(), TagChunker(MICRO_STEP)])
def test_offsets_that_go_backwards_are_refused(chunker: TokenChunker | TagChunker) -> None:
    made = trajectory(with_offsets(turn(f"a{STEP}b{STEP}"), 27, 28, 1))
    with pytest.raises(ChunkError, match="ascending"):
        chunker.split(made)


@pytest.mark.parametrize("chunker", [TokenChunker(), TagChunker(MICRO_STEP)])
def test_offsets_that_are_too_few_are_refused(chunker: TokenChunker | TagChunker) -> None:
    good = with_offsets(turn(f"a{STEP}"), 0, 1)
    trace = good.completion.tokens
    assert trace is not None
    bad = replace(
        good, completion=replace(good.completion, tokens=replace(trace, text_offsets=(0,)))
    )
    with pytest.raises(ChunkError, match="turn 0: text_offsets has 1 entries for 2 tokens"):
        chunker.split(Trajectory(turns=(bad,)))
