"""A query finds what going through all episodes finds, in either kind of database."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict, evolve

from ale.errors import InputError
from ale.testing.builders import turn
from ale.types import Completion, Episode, Failure, Message, Score, Task, Trajectory, Turn
from ale_look.store import finding
from ale_look.store.database import Database, open_database
from ale_look.store.finding import Filters, every, find, phrases_of, sample
from ale_look.store.indexing import Indexer
from ale_look.store.listing import RunFilters
from ale_look.store.rows import epoch
from ale_look.store.tagging import change_tags

MODELS, TOOLS, TASKS = ("m1", "m2"), ("shell", "read_file", "finish"), ("rename", "count")
WORDS = ("alpha", "Beta", "gamma_delta", "src/main.py", "3e5")


def made(rng: random.Random, number: int) -> Episode:
    """An episode at random."""
    reward = rng.choice([None, 0.0, 0.5, 1.0])
    said = turn(
        " ".join(rng.choices(WORDS, k=3)),
        calls=[(rng.choice(TOOLS), "{}")],
        errors=[rng.choice([None, "exit code 1", "Timed out"])],
    )
    named = Turn(completion=Completion(message=Message(role="assistant"), model=rng.choice(MODELS)))
    return Episode(
        id=f"e-{number}",
        task_id=rng.choice(TASKS),
        split=rng.choice(["train", "evaluation"]),
        step=rng.randrange(3),
        rollout=number,
        reward=reward,
        scores=(Score(criterion="exists", passed=rng.random() < 0.5, value=0.5),),
        trajectory=Trajectory(turns=(said, named)),
        started_at=f"2026-11-{rng.randrange(1, 29):02}T00:00:{number % 60:02}+00:00",
        metadata=rng.choice([{}, {"worker": "here"}, {"worker": "there"}]),
    )


@pytest.fixture
def stored(tmp_path: Path, make_run: Any) -> dict[str, list[Episode]]:
    """Two runs of episodes at random, by the name of the run."""
    rng = random.Random(3)
    runs: dict[str, list[Episode]] = {}
    for name, scheme in (("one", "ipa"), ("two", "grpo")):
        store = make_run(tmp_path / "runs" / name, n=0, credit={"type": f"ale-credit/{scheme}"})
        runs[name] = [made(rng, number) for number in range(60)]
        for episode in runs[name]:
            store.add_episode(episode)
        store.close()
    change_tags(tmp_path / "runs" / "two", add=["best"])
    return runs


@pytest.fixture
def filled(stored: Any, tmp_path: Path, database: Database) -> Database:
    Indexer(database).update(tmp_path / "runs")
    return database


def filters(rng: random.Random) -> Filters:
    """Some filters at random, each with a value that some, all or no episodes have."""
    moment = epoch(f"2026-11-{rng.randrange(1, 29):02}")
    values: dict[str, Callable[[], Any]] = {
        "prompt": lambda: rng.choice(["LINES", "the", "100%", "nothing like it"]),
        "task": lambda: rng.choice([*TASKS, "absent"]),
        "model": lambda: rng.choice([*MODELS, "absent"]),
        "worker": lambda: rng.choice(["here", "there", "absent"]),
        "split": lambda: rng.choice(["train", "evaluation"]),
        "step": lambda: rng.randrange(4),
        "min_reward": lambda: rng.choice([0.0, 0.5, 1.0]),
        "max_reward": lambda: rng.choice([0.0, 0.5, 1.0]),
        "broken": lambda: rng.random() < 0.5,
        "after": lambda: moment,
        "before": lambda: moment + 5e5,
        "stop": lambda: rng.choice(["finished", "max_turns"]),
        "tool": lambda: rng.choice([*TOOLS, "absent"]),
        "error": lambda: rng.choice(["exit CODE", "timed", "_", "absent"]),
        "failed": lambda: rng.choice(["exists", "absent"]),
        "text": lambda: rng.choice(["ALPHA", "beta gamma", '"main py"', "main.py", "3e5", "delt"]),
        "of": lambda: rng.choice(
            [
                RunFilters(tags=["best"]),
                RunFilters(where=[("credit.type", "ipa")]),
                RunFilters(tags=["absent"]),
            ]
        ),
    }
    chosen = rng.sample([*values], k=rng.randrange(4))
    return Filters(**{name: values[name]() for name in chosen})


PROMPTS = {"rename": "Rename the file a to b.", "count": "Count the lines of a."}


def passes(run: str, episode: Episode, wanted: Filters) -> bool:
    """The same, by going through the record."""
    turns = episode.trajectory.turns
    errors = [f"{o.tool}: {o.error}" for t in turns for o in t.observations if o.error]
    checks: dict[str, Callable[[Any], bool]] = {
        "prompt": lambda v: v.lower() in PROMPTS[episode.task_id].lower(),
        "task": lambda v: episode.task_id == v,
        "model": lambda v: turns[1].completion.model == v,
        "worker": lambda v: episode.metadata.get("worker") == v,
        "split": lambda v: episode.split == v,
        "step": lambda v: episode.step == v,
        "min_reward": lambda v: episode.reward is not None and episode.reward >= v,
        "max_reward": lambda v: episode.reward is not None and episode.reward <= v,
        "broken": lambda v: (episode.reward is None) == v,
        "after": lambda v: epoch(episode.started_at) >= v,
        "before": lambda v: epoch(episode.started_at) < v,
        "stop": lambda v: episode.trajectory.stop.reason == v,
        "tool": lambda v: any(o.tool == v for t in turns for o in t.observations),
        "error": lambda v: any(v.lower() in error.lower() for error in errors),
        "failed": lambda v: any(s.criterion == v and not s.passed for s in episode.scores),
        "text": lambda v: said(turns[0].completion.message.content, v),
        "of": lambda v: (
            (not v.tags or (run == "two" and [*v.tags] == ["best"]))
            and (not v.where or run == "one")
        ),
    }
    given = asdict(wanted, recurse=False)
    return all(given[n] is None or check(given[n]) for n, check in checks.items())


def said(content: str, wanted: str) -> bool:
    """Does a text of `WORDS` have the words?"""
    spoken = f" {content.lower().replace('_', ' ').replace('/', ' ').replace('.', ' ')} "
    return all(f" {' '.join(phrase)} " in spoken for phrase in phrases_of(wanted))


ORDERED: dict[str, Callable[[Episode], Any]] = {
    "newest": lambda e: -epoch(e.started_at),
    "oldest": lambda e: epoch(e.started_at),
    "best": lambda e: -(e.reward or 0.0),
    "worst": lambda e: e.reward,
}


@pytest.mark.parametrize("few", [0, 10, 2000])
def test_a_query_finds_what_going_through_all_episodes_finds(
    filled: Database, stored: dict[str, list[Episode]], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no, some or all filters first: how it is found does not change what is found."""
    monkeypatch.setattr(finding, "FEW", few)
    monkeypatch.setattr(finding, "FEW_WITH_TEXT", few)
    rng = random.Random(few)
    sizes = set()
    with filled.reading() as connection:
        for _ in range(60):
            wanted, order, limit = filters(rng), rng.choice([*ORDERED]), rng.choice([3, 1000])
            whole = [
                (ORDERED[order](e), run, e.id)
                for run, episodes in stored.items()
                for e in episodes
                if passes(run, e, wanted)
                and (e.reward is not None or order in ("newest", "oldest"))
            ]
            expected = sorted(whole)[:limit]
            found = find(connection, wanted, order, limit)  # type: ignore[arg-type]
            keys = {(run, id_): key for key, run, id_ in whole}
            # Those with equal keys may be in any order: the keys are compared.
            got = [keys[row["run_id"], row["episode_id"]] for row in found]
            assert got == [key for key, _, _ in expected], (wanted, order)
            assert len({(row["run_id"], row["episode_id"]) for row in found}) == len(found)
            ids = {row[0] for row in connection.execute(every(connection, wanted))}
            if order in ("newest", "oldest"):
                assert len(ids) == len(whole), wanted
            sizes.add(len(whole))
    assert len(sizes) > 8  # the filters are no all-or-nothing


def rows_of(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["run_id"], row["episode_id"]) for row in found]


def test_a_row_names_its_run_and_prompt(filled: Database) -> None:
    with filled.reading() as connection:
        [row] = find(connection, Filters(), limit=1)
    assert row["run_id"] in ("one", "two")
    assert row["path"].endswith(f"runs/{row['run_id']}")
    assert row["prompt"] in PROMPTS.values()


def test_a_sample_depends_on_the_seed_and_on_nothing_else(filled: Database, tmp_path: Path) -> None:
    other = open_database(str(tmp_path / "other.sqlite"))
    for name in ("two", "one"):  # indexed in another order
        Indexer(other).update_run(tmp_path / "runs" / name)
    with filled.reading() as connection, other.reading() as connection2:
        first = rows_of(sample(connection, Filters(), 10, 7))
        assert first == rows_of(sample(connection2, Filters(), 10, 7))
        assert first != rows_of(sample(connection, Filters(), 10, 8))
        assert rows_of(sample(connection, Filters(), 4, 7)) == first[:4]
        assert len(sample(connection, Filters(), 1000, 7)) == 120
        graded = sample(connection, Filters(broken=False), 1000, 7)
        assert {row["reward"] is None for row in graded} == {False}
    other.close()


def test_a_sample_is_even(filled: Database) -> None:
    """Each of 120 episodes is drawn 20 times in 200 samples of 12, give or take chance."""
    drawn: dict[tuple[str, str], int] = {}
    with filled.reading() as connection:
        for seed in range(200):
            for row in rows_of(sample(connection, Filters(), 12, seed)):
                drawn[row] = drawn.get(row, 0) + 1
    assert len(drawn) == 120
    assert 5 <= min(drawn.values()) <= max(drawn.values()) <= 40


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("\u6587\u4ef6", 1),
        ("\u4ef6\u540d", 1),
        ('"\u4ef6 \u540d"', 1),
        ("rename \u6587\u4ef6", 1),
        ("delete \u6587\u4ef6", 0),
        ("\u540d\u6587", 0),
        ("\u0e40\u0e1f\u0e34", 1),
    ],
)
def test_a_part_of_a_sentence_without_spaces_is_found(
    database: Database, make_run: Any, tmp_path: Path, text: str, n: int
) -> None:
    """Chinese ("rename the file"), and Thai in the next turn."""
    store = make_run(tmp_path / "runs" / "one", n=0)
    said = (
        turn("rename: \u628a\u6587\u4ef6\u540d\u6539\u4e86"),
        turn("\u0e44\u0e1f\u0e25\u0e4c\u0e40\u0e1f\u0e34"),
    )
    store.add_episode(Episode(id="e", task_id="t", reward=1.0, trajectory=Trajectory(turns=said)))
    store.close()
    Indexer(database).update(tmp_path / "runs")
    with database.reading() as connection:
        assert len(find(connection, Filters(text=text))) == n


@pytest.mark.parametrize("given", ["\u00e4ndere DIE", "\u0424\u0430\u0419\u043b"])
def test_a_part_is_found_in_any_case_in_every_alphabet(
    database: Database, make_run: Any, attempt: Any, tmp_path: Path, given: str
) -> None:
    store = make_run(tmp_path / "runs" / "one", n=0)
    prompt = "\u00c4ndere die Datei, \u0424\u0410\u0419\u041b"
    store.add_task(Task(id="t", goal=prompt), "train")
    failure = Failure(stage="agent", kind="LLMError", message=prompt)
    store.add_episode(attempt(2, task_id="t", failure=failure))
    store.close()
    Indexer(database).update(tmp_path / "runs")
    with database.reading() as connection:
        assert len(find(connection, Filters(prompt=given))) == 1
        assert len(find(connection, Filters(error=given))) == 1


def test_a_text_without_a_word_is_refused(filled: Database) -> None:
    with filled.reading() as connection, pytest.raises(InputError, match="no word in '--'"):
        find(connection, Filters(text="--"))


@pytest.mark.parametrize("text", ['"', "' OR 1=1", 'alpha" OR "beta', "alph*", "NEAR(a b)", "a:b"])
def test_a_text_has_no_syntax_but_quotes(filled: Database, text: str) -> None:
    with filled.reading() as connection:
        try:
            assert find(connection, Filters(text=text)) == []
        except InputError:
            assert phrases_of(text) == []


def test_phrases_are_words_in_order() -> None:
    assert phrases_of('no "Such file"') == [["no"], ["such", "file"]]
    assert phrases_of("src/main.py -x_1") == [["src", "main", "py"], ["x", "1"]]


@pytest.fixture
def nothing(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(str(tmp_path / "empty.sqlite"))
    yield opened
    opened.close()


def test_an_empty_database_has_no_episodes(nothing: Database) -> None:
    with nothing.reading() as connection:
        for order in ORDERED:
            assert find(connection, evolve(Filters(), prompt="a"), order) == []  # type: ignore[arg-type]
        assert sample(connection, Filters(), 3, 0) == []
