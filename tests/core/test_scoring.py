"""Scores of chunks: who gives them, where they are stored, and who reads them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ale._config import structure_config
from ale._run.crediting import Crediting
from ale._run.rescoring import rescore
from ale._run.start import check_run, closing_parts, resume, start
from ale._store import RunReader
from ale._store.codec import encode
from ale._store.lines import Lines
from ale._store.scores import located
from ale.errors import InputError, PluginError
from ale.plugin import Component, hookimpl
from ale.protocols import AgentContext, ScoringContext
from ale.strict import from_plain
from ale.testing.builders import turn
from ale.types import (
    FEEDBACK,
    Chunk,
    Credit,
    Group,
    ScoredEpisode,
    Span,
    StepScore,
    Stop,
    replace,
    whole_turn,
)

Scoring = Callable[[ScoringContext, Sequence[Chunk]], Sequence[StepScore]]


def by_length(context: ScoringContext, chunks: Sequence[Chunk]) -> Sequence[StepScore]:
    return [StepScore(value=1 / (1 + chunk.index), text=context.task.goal) for chunk in chunks]


class Scorers:
    """The scorers ``first`` and ``second``, and the credit scheme ``seen``, which keeps groups."""

    def __init__(self) -> None:
        self.scores: dict[str, Scoring] = {"first": by_length, "second": by_length}
        self.reads: dict[str, Sequence[str]] = {"first": (), "second": ()}
        self.asked: list[tuple[str, str]] = []
        self.closed: list[str] = []
        self.groups: list[Group] = []

    @hookimpl
    def ale_step_scorers(self) -> Sequence[Component[Any, Any]]:
        plugin = self

        class Scorer:
            def __init__(self, name: str) -> None:
                self.name = name
                self.reads = plugin.reads[name]

            async def score(self, context: ScoringContext, chunks: Any) -> Any:
                plugin.asked.append((self.name, context.episode.id))
                return plugin.scores[self.name](context, chunks)

            async def aclose(self) -> None:
                plugin.closed.append(self.name)

        def made(name: str) -> Component[Any, Any]:
            return Component(name, None, lambda o, c: Scorer(name), summary="Of a test.")

        return [made("first"), made("second")]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        class Seen:
            def assign(self, group: Group) -> list[Credit]:
                plugin.groups.append(group)
                zeros = [(0.0,) * len(rollout.chunks) for rollout in group.rollouts]
                return [
                    Credit(
                        episode_id=one.episode.id,
                        scheme="seen",
                        rewards=each,
                        returns=each,
                        weights=each,
                    )
                    for one, each in zip(group.rollouts, zeros, strict=True)
                ]

        plugin = self
        return [Component("seen", None, lambda o, c: Seen(), summary="Keeps groups.")]


@pytest.fixture
def scorers(registry: Any) -> Scorers:
    plugin = Scorers()
    registry.add(plugin, "ale-scoring", "1.0")
    assert not registry.failed
    return plugin


def config(workplace: Any, names: Sequence[str], n: int = 2, **run: Any) -> Any:
    plain: dict[str, Any] = {
        "tasks": {"type": "list", "n": n},
        "agent": {"type": "bench"},
        "credit": {"type": "seen"},
        "scorers": [{"type": name} for name in names],
        # One at a time: so the order in which episodes are stored is known.
        "run": {
            "directory": str(workplace.directory),
            "deterministic": True,
            "concurrency": 1,
            **run,
        },
    }
    if not names:
        del plain["scorers"]
    return structure_config(from_plain(plain), workplace.registry)


def rows(run: Any) -> dict[tuple[str, str], ScoredEpisode]:
    return {(row.episode_id, row.scorer): row for row in run.store.reader.step_scores()}


async def test_scores_are_stored_beside_the_episodes_and_given_to_the_credit_scheme(
    scorers: Scorers, workplace: Any
) -> None:
    run = await workplace.ran(config(workplace, ["first", "second"]))
    assert {key: row.scores for key, row in rows(run).items()} == {
        (f"0-t{i}-0", name): (StepScore(value=1.0, text="Leave a file."),)
        for i in range(2)
        for name in ("first", "second")
    }
    assert (run.store.path / "step_scores" / "00000.jsonl").exists()
    assert scorers.closed == ["first", "second"]
    for group in scorers.groups:
        assert [*group.rollouts[0].scores] == ["first", "second"]


async def test_the_episodes_are_the_same_to_the_byte_without_scorers(
    scorers: Scorers, workplace: Any
) -> None:
    found = []
    for names in ([], ["first"]):
        run = await workplace.ran(config(workplace, names, concurrency=1, name=f"n{len(names)}"))
        found.append((run.store.path / "episodes.jsonl").read_bytes())
        assert (run.store.path / "step_scores").exists() == bool(names)
    assert found[0] == found[1]


async def test_a_resumed_run_scores_only_what_was_not_scored(
    scorers: Scorers, workplace: Any, finish: Any
) -> None:
    def fails(context: ScoringContext, chunks: Sequence[Chunk]) -> Sequence[StepScore]:
        if context.episode.task_id == "t1":
            raise ConnectionError("gone")
        return by_length(context, chunks)

    scorers.scores["second"] = fails
    with pytest.raises(PluginError, match="scorer 'second' failed on 0-t1-0"):
        await workplace.ran(config(workplace, ["first", "second"], concurrency=1, name="stopped"))
    (path,) = workplace.directory.glob("*stopped*")
    scorers.asked.clear()
    scorers.scores["second"] = by_length
    again = resume(path, workplace.outside())
    await finish(again)
    assert scorers.asked == [("second", "0-t1-0")]
    assert len(rows(again)) == 4


async def test_a_resumed_run_learns_from_its_own_scores_alone(
    scorers: Scorers, workplace: Any, finish: Any
) -> None:
    """A group would else hold scores of two scorers: those of `ale regrade` and the run's."""

    def fails(context: ScoringContext, chunks: Sequence[Chunk]) -> Sequence[StepScore]:
        raise ConnectionError("gone")

    scorers.scores["first"] = fails
    with pytest.raises(PluginError):
        await workplace.ran(config(workplace, ["first"], concurrency=1, name="stopped"))
    (path,) = workplace.directory.glob("*stopped*")
    scorers.scores["first"] = lambda context, chunks: [StepScore(value=0.25) for _ in chunks]
    await rescore(RunReader(path), workplace.outside())
    scorers.scores["first"] = lambda context, chunks: [StepScore(value=0.75) for _ in chunks]
    scorers.asked.clear()
    await finish(resume(path, workplace.outside()))
    assert scorers.asked == [("first", "0-t0-0"), ("first", "0-t1-0")]
    found = [one.scores["first"][0].value for group in scorers.groups for one in group.rollouts]
    assert found == [0.75, 0.75]


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ([], "0 scores for 1 chunks"),
        ([StepScore(value=1.5)], "expected a number from 0 to 1"),
        ([StepScore(value=float("nan"))], "expected a number from 0 to 1"),
        ([StepScore()], "neither a value nor a reason"),
        ([StepScore(value=0.5, abstained="no")], "a value, and a reason"),
        ([0.5], "expected a list of StepScore"),
    ],
)
async def test_a_scorer_that_breaks_its_contract_is_named(
    scorers: Scorers, workplace: Any, made: Any, problem: str
) -> None:
    scorers.scores["first"] = lambda context, chunks: made
    with pytest.raises(PluginError, match=f"scorer 'first'.*{problem}"):
        await workplace.ran(config(workplace, ["first"], n=1))


async def test_a_scorer_sees_the_scores_of_those_before_it(
    scorers: Scorers, workplace: Any
) -> None:
    seen: list[Mapping[str, Sequence[StepScore]]] = []

    def looks(context: ScoringContext, chunks: Sequence[Chunk]) -> Sequence[StepScore]:
        seen.append(context.earlier)
        return by_length(context, chunks)

    scorers.scores["second"] = looks
    scorers.reads["second"] = ("first", FEEDBACK)
    await workplace.ran(config(workplace, ["first", "first", "second"], n=1))
    assert [*seen[0]] == ["first", "first-2"]


@pytest.mark.parametrize("names", [["second"], ["second", "first"]])
def test_a_run_without_the_scorer_that_another_reads_is_refused(
    scorers: Scorers, workplace: Any, names: Sequence[str]
) -> None:
    scorers.reads["second"] = ("first",)
    with pytest.raises(InputError, match="second reads the scores of 'first'"):
        check_run(config(workplace, names), "test", workplace.outside())


async def test_an_episode_that_was_sampled_again_has_no_scores_of_the_one_before(
    scorers: Scorers, bench: Any, workplace: Any, finish: Any
) -> None:
    run = workplace.prepared(config(workplace, ["first"], n=1))
    (other,) = [Chunk(index=0, kind="turn", spans=(whole_turn(0, turn("done")),))]
    run.store.add_scores(
        ScoredEpisode(
            episode_id="0-t0-0",
            started_at="1999",
            scorer="first",
            chunks=(other,),
            scores=(StepScore(value=0.0),),
        ),
        0,
    )
    await finish(run)
    assert scorers.asked == [("first", "0-t0-0")]
    assert scorers.groups[0].rollouts[0].scores["first"][0].value == 1.0


async def test_scores_of_turns_without_credit_are_left_out_for_the_scheme(
    scorers: Scorers, bench: Any, workplace: Any
) -> None:
    async def reminded(context: AgentContext) -> Stop:
        context.recorder.append(replace(turn("hm"), credited=False))
        context.recorder.append(turn("done"))
        await context.sandbox.write("done", b"")
        return Stop(reason="finished")

    bench.agent = reminded
    await workplace.ran(config(workplace, ["first"], n=1))
    (rollout,) = scorers.groups[0].rollouts
    assert [score.value for score in rollout.scores["first"]] == [0.5]
    assert len(rollout.chunks) == 1


def chunks_of(*ends: tuple[int, int]) -> tuple[Chunk, ...]:
    """Chunks that end at these (turn, character), without calls."""
    made, start = [], (0, 0)
    for index, (number, stop) in enumerate(ends):
        begin = start[1] if start[0] == number else 0
        made.append(
            Chunk(
                index=index,
                kind="part",
                spans=(Span(turn=number, text=(begin, stop), calls=(0, 0)),),
            )
        )
        start = (number, stop)
    return tuple(made)


def row(chunks: Sequence[Chunk], *values: float | None, scorer: str = "s") -> ScoredEpisode:
    scores = [
        StepScore(abstained="off") if value is None else StepScore(value=value) for value in values
    ]
    return ScoredEpisode(episode_id="e", scorer=scorer, chunks=tuple(chunks), scores=tuple(scores))


def values(found: Mapping[str, Sequence[StepScore]], name: str = "s") -> list[float | None]:
    return [score.value for score in found[name]]


def test_scores_of_other_chunks_count_where_these_end() -> None:
    whole, halves = chunks_of((0, 8), (1, 8)), chunks_of((0, 4), (0, 8), (1, 4), (1, 8))
    assert values(located([row(halves, 0.0, 0.5, None, 1.0)], whole)) == [0.25, 1.0]
    assert values(located([row(whole, 0.25, 1.0)], halves)) == [None, 0.25, None, 1.0]
    assert located([row(whole, 0.25, 1.0)], halves)["s"][0].abstained == "not scored"


def test_the_last_line_about_a_chunk_counts() -> None:
    whole = chunks_of((0, 8), (1, 8))
    lines = [row(whole, 0.25, 0.5), row(whole[1:], 1.0)]
    assert values(located(lines, whole)) == [0.25, 1.0]


def test_a_run_without_a_folder_of_scores_has_none(tmp_path: Path, workplace: Any) -> None:
    run = workplace.prepared(workplace.config())
    assert list(run.store.reader.step_scores()) == []
    run.store.close()


async def test_stored_episodes_are_scored_again_and_the_new_scores_count(
    scorers: Scorers, workplace: Any
) -> None:
    run = await workplace.ran(config(workplace, ["first"]))
    before = {path: path.read_bytes() for path in run.store.path.glob("*/*.jsonl")}
    scorers.asked.clear()
    scorers.closed.clear()
    scorers.scores["first"] = lambda context, chunks: [StepScore(value=0.25) for _ in chunks]
    reader = RunReader(run.store.path)
    again = await rescore(reader, workplace.outside())
    assert scorers.asked == [("first", "0-t0-0"), ("first", "0-t1-0")]
    assert scorers.closed == ["first"]
    assert again.path is not None
    assert again.path.parent == run.store.path / "step_scores"
    assert all(path.read_bytes() == data for path, data in before.items())
    made = Crediting(
        chunker=run.parts.chunker,
        chunker_name="interaction",
        scheme=run.parts.credit,
        scheme_name="seen",
    )
    scorers.groups.clear()
    list(made.groups(reader, reader.index(), 0))
    found = [one.scores["first"][0].value for group in scorers.groups for one in group.rollouts]
    assert found == [0.25, 0.25]


async def test_other_scorers_than_those_of_the_run_can_score_it(
    scorers: Scorers, workplace: Any
) -> None:
    run = await workplace.ran(config(workplace, []))
    reader = RunReader(run.store.path)
    assert (await rescore(reader, workplace.outside())).path is None
    chosen = [from_plain({"type": "second"})]
    again = await rescore(reader, workplace.outside(), scorers=chosen, concurrency=2)
    assert {row.scorer for row in again.rows} == {"second"}
    set_ = await rescore(reader, workplace.outside(), overrides=["scorers=[{type: first}]"])
    assert {row.scorer for row in set_.rows} == {"first"}


async def test_what_was_scored_before_an_error_is_stored(scorers: Scorers, workplace: Any) -> None:
    def fails(context: ScoringContext, chunks: Sequence[Chunk]) -> Sequence[StepScore]:
        if context.episode.task_id == "t1":
            raise ConnectionError("gone")
        return by_length(context, chunks)

    run = await workplace.ran(config(workplace, []))
    scorers.scores["first"] = fails
    reader = RunReader(run.store.path)
    with pytest.raises(PluginError, match="scorer 'first' failed on 0-t1-0"):
        await rescore(reader, workplace.outside(), scorers=[from_plain({"type": "first"})])
    assert [row.episode_id for row in reader.step_scores()] == ["0-t0-0"]


async def test_new_scores_are_stored_as_they_come(scorers: Scorers, workplace: Any) -> None:
    """What a killed process had scored is kept."""
    run = await workplace.ran(config(workplace, []))
    reader, stored = RunReader(run.store.path), []

    def looks(context: ScoringContext, chunks: Sequence[Chunk]) -> Sequence[StepScore]:
        stored.append([each.episode_id for each in reader.step_scores()])
        return by_length(context, chunks)

    scorers.scores["first"] = looks
    await rescore(reader, workplace.outside(), scorers=[from_plain({"type": "first"})])
    assert stored == [[], ["0-t0-0"]]


async def test_scores_of_an_episode_are_found_in_files_that_grow(
    scorers: Scorers, workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await workplace.ran(config(workplace, ["first"]))
    reader, read = RunReader(run.store.path), []
    with_offsets = Lines.with_offsets

    def counted(self: Any, start: int = 0) -> Any:
        for each in with_offsets(self, start):
            read.append(each)
            yield each

    one, other = reader.episodes
    monkeypatch.setattr(Lines, "with_offsets", counted)
    assert [each.scorer for each in reader.scores_of(one)] == ["first"]
    assert len(read) == 2
    assert reader.scores_of(other) == [rows(run)[other.id, "first"]]
    read.clear()
    reader.scores_of(one)
    assert read == []
    path = run.store.path / "step_scores" / "00000.jsonl"
    line = encode(replace(rows(run)[one.id, "first"], scorer="again"))
    read.clear()
    with path.open("ab") as file:
        file.write(line)
    assert [each.scorer for each in reader.scores_of(one)] == ["first"]  # the line is not whole
    with path.open("ab") as file:
        file.write(b"\n")
    assert [each.scorer for each in reader.scores_of(one)] == ["first", "again"]
    assert len(read) <= 3
    (path.parent / "regraded-1.jsonl").write_bytes(line + b"\n")
    assert [each.scorer for each in reader.scores_of(one)] == ["first", "again", "again"]
    path.write_bytes(line + b"\n")
    assert [each.scorer for each in reader.scores_of(one)] == ["again", "again"]


async def test_a_run_without_scorers_gives_groups_without_scores(
    scorers: Scorers, workplace: Any
) -> None:
    run = start(check_run(config(workplace, []), "t", workplace.outside()), workplace.outside())
    async with closing_parts(run):
        await run.execute()
    assert all(not one.scores for group in scorers.groups for one in group.rollouts)
