"""The kit for chunkers passes a right one and fails wrong ones, each for its own reason."""

from collections.abc import Callable, Sequence

import pytest

from ale.errors import ChunkError
from ale.testing.builders import trajectory, turn
from ale.testing.chunker import ChunkerContract, assert_partition
from ale.types import Chunk, Trajectory, replace, whole_turn

Split = Callable[[Trajectory], Sequence[Chunk]]


class PerTurn:
    """A right chunker, whose result `change` spoils."""

    def __init__(self, change: Split | None = None) -> None:
        self._change = change

    def right(self, trajectory: Trajectory) -> tuple[Chunk, ...]:
        return tuple(
            Chunk(index=i, kind="turn", spans=(whole_turn(i, turn),))
            for i, turn in enumerate(trajectory.turns)
        )

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        return (self._change or self.right)(trajectory)


class TestARightChunker(ChunkerContract):
    @pytest.fixture
    def chunker(self) -> PerTurn:
        return PerTurn()


def _spoiled_spans(**changes: object) -> PerTurn:
    right = PerTurn().right
    return PerTurn(
        lambda given: [
            replace(chunk, spans=tuple(replace(span, **changes) for span in chunk.spans))
            for chunk in right(given)
        ]
    )


LONG_SEED = 5
"""A seed of the kit whose trajectory has several turns, texts and calls."""
SAMPLE = trajectory(
    turn("one", calls=[("bash", "{}")], tokens=4), turn("two", tokens=3), turn("three", tokens=5)
)


@pytest.mark.parametrize(
    ("chunker", "reason"),
    [
        (PerTurn(lambda given: PerTurn().right(given)[1:]), "not every turn is covered"),
        (PerTurn(lambda given: PerTurn().right(given)[:-1]), "not every turn is covered"),
        (PerTurn(lambda given: PerTurn().right(given)[::-1]), "order of the turns"),
        (PerTurn(lambda given: PerTurn().right(given) * 2), "order of the turns"),
        (_spoiled_spans(text=(0, 0)), "text: covered up to 0 of 3"),
        (_spoiled_spans(text=(1, 3)), "text: a range starts at 1"),
        (_spoiled_spans(calls=(0, 0)), "calls: covered up to 0 of 1"),
        (_spoiled_spans(tokens=(0, 1)), "tokens: covered up to 1 of 4"),
        (_spoiled_spans(tokens=None), "unknown in a span that is the whole turn"),
    ],
)
def test_the_kit_fails_chunks_that_are_not_a_partition(chunker: PerTurn, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert_partition(SAMPLE, chunker.split(SAMPLE))
    with pytest.raises(AssertionError):
        ChunkerContract().test_chunks_partition_a_trajectory_with_known_tokens(chunker, LONG_SEED)


def test_the_kit_fails_tokens_that_were_never_recorded() -> None:
    invented = _spoiled_spans(tokens=(0, 1))
    with pytest.raises(AssertionError, match="none were recorded"):
        ChunkerContract().test_chunks_partition_a_trajectory_without_tokens_or_it_is_refused(
            invented, 0
        )


def test_the_kit_fails_a_chunk_for_an_empty_trajectory() -> None:
    always = PerTurn(lambda given: [Chunk(index=0, kind="all", spans=())])
    with pytest.raises(AssertionError):
        ChunkerContract().test_an_empty_trajectory_has_no_chunks(always)


def test_the_kit_fails_a_chunker_that_refuses_what_has_all_it_could_need() -> None:
    def refuse(given: Trajectory) -> Sequence[Chunk]:
        raise ChunkError("no")

    with pytest.raises(ChunkError):
        ChunkerContract().test_chunks_partition_a_trajectory_with_known_tokens(PerTurn(refuse), 0)


def test_the_kit_fails_wrong_numbers() -> None:
    zeros = PerTurn(lambda given: [replace(chunk, index=0) for chunk in PerTurn().right(given)])
    with pytest.raises(AssertionError):
        ChunkerContract().test_chunks_are_numbered_from_0_and_say_which_rule_cut_them(zeros)


def test_the_kit_fails_a_list_where_a_tuple_belongs() -> None:
    lists = PerTurn(
        lambda given: [replace(chunk, spans=list(chunk.spans)) for chunk in PerTurn().right(given)]
    )
    with pytest.raises(AssertionError):
        ChunkerContract().test_chunks_are_records_of_plain_numbers(lists)


def test_the_kit_fails_an_empty_chunk_next_to_a_full_one() -> None:
    def with_empty(given: Trajectory) -> Sequence[Chunk]:
        spans = [chunk.spans[0] for chunk in PerTurn().right(given)]
        pairs = [(replace(s, text=(0, 0), calls=(0, 0), tokens=(0, 0)), s) for s in spans]
        flat = [span for pair in pairs for span in pair]
        return [Chunk(index=i, kind="turn", spans=(span,)) for i, span in enumerate(flat)]

    assert_partition(SAMPLE, with_empty(SAMPLE))
    with pytest.raises(AssertionError, match="has an empty span"):
        ChunkerContract().test_no_chunk_is_without_content_unless_its_turn_is(PerTurn(with_empty))


def test_the_kit_fails_a_chunker_that_remembers() -> None:
    calls: list[int] = []

    def numbered(given: Trajectory) -> Sequence[Chunk]:
        calls.append(0)
        return [replace(chunk, kind=f"turn {len(calls)}") for chunk in PerTurn().right(given)]

    with pytest.raises(AssertionError):
        ChunkerContract().test_splitting_again_gives_the_same_whatever_came_between(
            PerTurn(numbered)
        )


def test_the_kit_fails_a_chunker_that_changes_its_input() -> None:
    def spoil(given: Trajectory) -> Sequence[Chunk]:
        object.__setattr__(given, "turns", given.turns[1:])
        return PerTurn().right(given)

    with pytest.raises(AssertionError):
        ChunkerContract().test_splitting_leaves_the_trajectory_as_it_was(PerTurn(spoil))
