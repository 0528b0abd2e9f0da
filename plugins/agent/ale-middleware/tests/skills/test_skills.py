"""From feedback to a skill, to better work, and out again if it does not help."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict

from ale.errors import InputError, StoreError
from ale.learning import Origin
from ale.middleware import Rewriting, RewritingLLM
from ale.protocols import Middleware, MiddlewareContext
from ale.recording import Recording
from ale.runs import Registry, RunReader
from ale.testing.fakes import FakeLLM
from ale.testing.middleware import MiddlewareContract
from ale.types import (
    Completion,
    CompletionRequest,
    Conversation,
    Episode,
    Message,
    Task,
    Trajectory,
    Turn,
    replace,
)
from ale_middleware.skills.middleware import Skills, given_in
from ale_middleware.skills.options import SkillOptions
from ale_middleware.skills.printing import reviewed, table_of
from ale_middleware.skills.proposing import Proposed, propose
from ale_middleware.skills.reviewing import differences, review
from ale_middleware.skills.store import Store

GOAL = "Count the words of a file and write the number."
HELPFUL = "Count with wc, never by reading."
USELESS = "Stay calm while counting words."

Episodes = Callable[..., Path]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "skills.db", create=True) as opened:
        yield opened


def conversation(task: str = "t", rollout: int = 0) -> Conversation:
    return Conversation(episode_id=f"0-{task}-{rollout}", task_id=task, rollout=rollout, seed=0)


class TestSkills(MiddlewareContract):
    @pytest.fixture
    def middleware(self, store: Store) -> Middleware:
        store.add("Write to a file with care.", "Do a task.", at=0)
        return Skills(SkillOptions(store=store.path, measure=True))


# The store.


def test_the_skills_that_fit_a_task_come_first_and_others_not_at_all(store: Store) -> None:
    wc = store.add(HELPFUL, GOAL, at=1)
    store.add("Ask for a window seat.", "Book a flight to Paris.", at=2)
    grep = store.add("Search with grep.", "Find a name in a file.", at=3)
    found = store.fitting(GOAL, top_k=3, threshold=0.1)
    assert [skill.id for skill in found] == [wc.id, grep.id]
    assert store.fitting(GOAL, top_k=1, threshold=0.1) == [wc]
    assert store.fitting(GOAL, top_k=3, threshold=0.5) == [wc]
    assert store.fitting("", top_k=3, threshold=0) == []
    assert store.fitting('" OR * NEAR (', top_k=3, threshold=0) == []


def test_what_says_the_same_is_one_skill(store: Store) -> None:
    first = store.add(HELPFUL, GOAL, at=1)
    assert store.add("Never count by reading: count with wc!", "Other.", at=2) == first
    assert store.skills() == [first]


def test_short_words_tell_skills_apart(store: Store) -> None:
    texts = ["Use wc -l.", "Use ls -a.", "Go up."]
    assert [store.add(text, GOAL, at=at).text for at, text in enumerate(texts)] == texts
    with pytest.raises(InputError, match="no word"):
        store.add(" - ", GOAL, at=3)


def test_a_retired_skill_is_neither_found_nor_added_again(store: Store) -> None:
    skill = store.add(HELPFUL, GOAL, at=1)
    store.retire(skill.id, "by hand")
    assert store.fitting(GOAL, top_k=3, threshold=0) == []
    assert store.add(HELPFUL, GOAL, at=2).retired == "by hand"
    store.retire(skill.id, None)
    assert store.fitting(GOAL, top_k=3, threshold=0) == [skill]
    with pytest.raises(InputError, match="no skill 'other'"):
        store.retire("other", None)


def test_a_file_that_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database at all, but a text")
    with pytest.raises(InputError, match="not a store"):
        Store(text)
    assert text.read_text().startswith("not a database")
    with pytest.raises(InputError, match="no such file"):
        Store(tmp_path / "none.db")
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.execute("pragma user_version = 9")
    newer.close()
    with pytest.raises(InputError, match="version 9"):
        Store(tmp_path / "newer.db")
    for path in (tmp_path / "none" / "skills.db", tmp_path):
        with pytest.raises(InputError, match="unable to open"):
            Store(path, create=True)


def test_a_write_that_fails_leaves_nothing_behind(store: Store) -> None:
    store._db.execute("drop table words")
    with pytest.raises(StoreError, match="can't be written"):
        store.add(HELPFUL, GOAL, at=1)
    assert store.skills() == []


# Interleaving.


def test_every_second_rollout_of_a_task_gets_a_skill() -> None:
    for skill, task in itertools.product("abcdef", ["t", "u", "v"]):
        given = [given_in(skill, conversation(task, rollout)) for rollout in range(4)]
        assert sum(given[:2]) == 1
        assert sum(given) == 2
    patterns = {
        tuple(given_in("a", conversation(f"t{n}", rollout)) for rollout in range(4))
        for n in range(50)
    }
    assert len(patterns) == 4


async def test_an_episode_keeps_the_skills_that_it_began_with(store: Store) -> None:
    store.add(HELPFUL, GOAL, at=1)
    skills = Skills(SkillOptions(store=store.path, measure=False))
    context = MiddlewareContext(task=Task(id="t", goal=GOAL), conversation=conversation())
    user = (Message(role="user", content=GOAL),)
    before = await skills.rewrite(user, context)
    store.add("Number the lines of the file.", GOAL, at=2)
    assert await skills.rewrite(user, context) == before
    later = MiddlewareContext(task=context.task, conversation=conversation(rollout=1))
    assert "Number the lines" in (await skills.rewrite(user, later)).messages[0].content


# From feedback to a skill and back.


def worker(request: CompletionRequest) -> Completion:
    """A scripted model that works well where it is told how."""
    told = any(HELPFUL in message.content for message in request.messages)
    return Completion(message=Message(role="assistant", content="Right." if told else "Wrong."))


async def work(
    path: Path, tasks: int, rollouts: int, middleware: Middleware | None = None
) -> list[tuple[Message, ...]]:
    """A run of that model, which a manager scores and comments; the prompts."""
    recording = Recording(path, {"chunker": {"type": "interaction"}}, Registry())
    llm = FakeLLM([worker] * tasks * rollouts)
    for number, rollout in itertools.product(range(tasks), range(rollouts)):
        task = Task(id=f"t{number}", goal=GOAL)
        asked = conversation(task.id, rollout)
        parts = [] if middleware is None else [("skills", middleware)]
        rewriting = Rewriting(parts, MiddlewareContext(task=task, conversation=asked))
        user = (Message(role="user", content=GOAL),)
        request = CompletionRequest(messages=user, conversation=asked, turn=0)
        done = await RewritingLLM(llm, rewriting).complete(request)
        turn = rewriting.turn(Turn(prompt=user, fresh_context=True, completion=done))
        reward = float(done.message.content == "Right.")
        said = [] if reward else [{"author": "manager", "text": "You guessed. Count with wc."}]
        episode = Episode(
            id=asked.episode_id,
            task_id=task.id,
            rollout=rollout,
            reward=reward,
            trajectory=Trajectory(turns=(turn,)),
            metadata={"feedback": said, "middleware": rewriting.facts},
        )
        recording.add(task, episode)
    recording.close()
    return [request.messages for request in llm.requests]


def mean(path: Path) -> float:
    rewards = [episode.reward or 0.0 for episode in RunReader(path).episodes]
    return sum(rewards) / len(rewards)


def answering(*texts: str) -> FakeLLM:
    return FakeLLM([Completion(message=Message(role="assistant", content=t)) for t in texts])


async def test_feedback_becomes_a_skill_with_which_the_next_run_is_better(
    tmp_path: Path, store: Store
) -> None:
    await work(tmp_path / "first", tasks=1, rollouts=2)
    evolver = answering(f"SKILL: {HELPFUL}", f"Well.\nSKILL: {HELPFUL}")
    made = await propose([tmp_path / "first"], store, evolver)
    assert [skill.text for skill in made.added] == [HELPFUL]
    assert made.left_out == {"it says what a skill says already": 1}
    (asked,) = evolver.requests[0].messages
    assert GOAL in asked.content
    assert "You guessed. Count with wc." in asked.content
    (skill,) = store.skills()
    assert (skill.run.partition("~")[0], skill.episode) == ("first", "0-t0-0")
    store.accept(skill.id, "by hand")
    prompts = await work(
        tmp_path / "second", 1, 2, Skills(SkillOptions(store=store.path, measure=False))
    )
    assert all(HELPFUL in prompt[0].content for prompt in prompts)
    assert (mean(tmp_path / "first"), mean(tmp_path / "second")) == (0.0, 1.0)


async def test_a_proposal_is_used_only_where_it_is_measured_until_it_is_accepted(
    tmp_path: Path, store: Store
) -> None:
    await work(tmp_path / "first", tasks=1, rollouts=2)
    await propose([tmp_path / "first"], store, answering(f"SKILL: {HELPFUL}", "None."))
    (skill,) = store.skills()
    assert skill.pending
    used, measured = (
        Skills(SkillOptions(store=store.path, measure=measure)) for measure in (False, True)
    )
    await work(tmp_path / "pending", 1, 4, used)
    assert mean(tmp_path / "pending") == 0.0
    await work(tmp_path / "measured", 12, 4, measured)
    assert mean(tmp_path / "measured") == 0.5
    [found] = review([tmp_path / "measured"], store, pairs=20)
    assert found.verdict == "not measured enough"
    assert store.skills()[0].pending
    [found] = review([tmp_path / "measured"], store)
    assert (found.verdict, store.skills()[0].pending) == ("helps", False)
    assert store.skills()[0].accepted == "measured: +1.000 in 12 pairs"
    later = Skills(SkillOptions(store=store.path, measure=False))
    await work(tmp_path / "after", 1, 4, later)
    assert mean(tmp_path / "after") == 1.0


def test_a_store_of_an_earlier_version_is_read_and_what_a_person_wrote_is_not_pending(
    store: Store, tmp_path: Path
) -> None:
    own = store.add(HELPFUL, GOAL, at=1)
    store.add(USELESS, GOAL, run="r", episode="e", at=2)
    with sqlite3.connect(store.path) as file:
        file.execute("drop table accepted")
    with Store(store.path) as again:
        assert [skill.pending for skill in again.skills()] == [False, True]
        with pytest.raises(InputError, match="no skill 'none'"):
            again.accept("none", "by hand")
        again.retire(own.id, "by hand")
        assert [skill.pending for skill in again.skills()] == [True]


def test_a_store_of_an_earlier_version_is_read_where_it_cant_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = store.add(USELESS, GOAL, run="r", episode="e", at=2)
    with sqlite3.connect(store.path) as file:
        file.execute("drop table accepted")
    connect, address = sqlite3.connect, f"{store.path.as_uri()}?mode=ro"
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda _, **given: connect(address, uri=True, **given))
        with Store(store.path) as mounted:
            assert [each.pending for each in mounted.skills()] == [True]
            with pytest.raises(StoreError, match="can't be written"):
                mounted.accept(skill.id, "by hand")
    store.accept(skill.id, "by hand")
    assert [each.accepted for each in store.skills()] == ["by hand"]


def test_a_retired_skill_is_not_accepted(store: Store) -> None:
    skill = store.add(USELESS, GOAL, run="r", episode="e", at=2)
    store.retire(skill.id, "by hand")
    with pytest.raises(InputError, match=f"(?s)'{skill.id}' is retired.*--undo {skill.id}"):
        store.accept(skill.id, "by hand")
    store.retire(skill.id, None)
    store.accept(skill.id, "by hand")
    assert store.skills()[0].accepted == "by hand"


async def test_a_useful_skill_is_kept_and_a_useless_one_is_retired(
    tmp_path: Path, store: Store
) -> None:
    useful = store.add(HELPFUL, GOAL, at=1)
    useless = store.add(USELESS, GOAL, at=2)
    middleware = Skills(SkillOptions(store=store.path))
    await work(tmp_path / "run", tasks=12, rollouts=4, middleware=middleware)
    assert 0.4 < mean(tmp_path / "run") < 0.6, "each skill is left out of half of the rollouts"
    found = {each.skill.id: each for each in review([tmp_path / "run"], store, pairs=10)}
    kept, retired = found[useful.id], found[useless.id]
    assert (kept.verdict, retired.verdict) == ("helps", "retired")
    assert kept.worth is not None
    assert (kept.worth.n, kept.worth.mean) == (12, 1.0)
    assert retired.worth is not None
    assert retired.worth.low is not None
    assert retired.worth.low <= 0
    assert store.skills() == [useful]
    again = review([tmp_path / "run"], store, pairs=10)
    assert [(each.skill.id, each.worth) for each in again] == [(useful.id, kept.worth)]
    assert "+1.000" in reviewed(again)
    assert "not shown to help" in table_of(store, retired=True)


async def test_a_skill_that_is_measured_too_little_is_left_alone(
    tmp_path: Path, store: Store
) -> None:
    store.add(USELESS, GOAL, at=1)
    await work(tmp_path / "run", 3, 2, Skills(SkillOptions(store=store.path)))
    (found,) = review([tmp_path / "run"], store, pairs=10)
    assert found.verdict == "not measured enough"
    assert store.skills()


async def test_an_episode_that_a_loop_took_counts_with_the_run_it_is_of(
    tmp_path: Path, store: Store
) -> None:
    store.add(HELPFUL, GOAL, at=1)
    run, loop = tmp_path / "run", tmp_path / "loop"
    await work(run, 3, 2, Skills(SkillOptions(store=store.path)))
    taken_by(loop, RunReader(run))
    for runs, pairs in (([loop], 3), ([run, loop], 3), ([loop, run], 3)):
        (found,) = review(runs, store)
        assert found.worth is not None
        assert found.worth.n == pairs, runs


async def test_a_copy_that_a_loop_took_is_not_asked_about_again(
    episodes: Episodes, tmp_path: Path, store: Store
) -> None:
    run = episodes((0.1, "a"))
    taken_by(tmp_path / "loop", RunReader(run))
    first = await propose([tmp_path / "loop"], store, answering("NONE"))
    assert first.left_out == {"the model found nothing to learn": 1}
    second = await propose([run], store, answering())
    assert second.left_out == {"asked about before": 1}


def taken_by(path: Path, run: RunReader) -> None:
    """A run with copies of the episodes of another, as a loop stores them."""
    recording = Recording(path, {"chunker": {"type": "interaction"}}, Registry())
    for each in run.episodes:
        origin = {"from": asdict(Origin.of(run, each.id))}
        copy = replace(each, id=f"{each.id}-copy", metadata={**each.metadata, **origin})
        recording.add(Task(id=each.task_id, goal=GOAL), copy)
    recording.close()


def graded(reward: float | None, given: bool, **fields: Any) -> Episode:
    skills = [{"type": "skills", "skills": [{"id": "s", "given": given}]}]
    facts = {"id": "e", "task_id": "t", "metadata": {"middleware": skills}, **fields}
    return Episode(reward=reward, **facts)


def test_only_groups_with_and_without_a_skill_count() -> None:
    found = differences(
        [
            graded(1.0, True),
            graded(0.5, True),
            graded(0.25, False),
            graded(None, False),
            graded(1.0, True, task_id="u"),
            graded(0.0, False, split="evaluation"),
            graded(0.0, False, step=1),
        ]
    )
    ((_, (only,)),) = found.items()
    assert (only.part, only.difference) == ("0/t/", 0.5)


@pytest.fixture
def episodes(tmp_path: Path) -> Episodes:
    """A run with these episodes, each with a reward and what was said."""

    def made(*given: tuple[float | None, str], folder: str = "") -> Path:
        path = tmp_path / folder / "made"
        path.parent.mkdir(exist_ok=True)
        recording = Recording(path, {"chunker": {"type": "interaction"}}, Registry())
        for rollout, (reward, text) in enumerate(given):
            said = [{"author": "", "text": text}] if text else []
            episode = Episode(
                id=f"0-t-{rollout}",
                task_id="t",
                rollout=rollout,
                reward=reward,
                metadata={"feedback": said},
            )
            recording.add(Task(id="t", goal=GOAL), episode)
        recording.close()
        return path

    return made


async def test_only_bad_episodes_with_feedback_are_asked_about_and_each_once(
    episodes: Episodes, store: Store
) -> None:
    run = episodes(
        (None, "x"), (0.9, "x"), (0.1, ""), (0.1, "a"), (0.2, "b"), (0.3, "c"), (0.4, "d")
    )

    async def asked(*answers: str, most: int = 9) -> Proposed:
        return await propose([run], store, answering(*answers), most=most)

    first = await asked("NONE", "I would say so.", f"SKILL: {HELPFUL}", most=3)
    assert [skill.text for skill in first.added] == [HELPFUL]
    assert first.left_out == {
        "broken or without a score": 1,
        "good enough": 1,
        "nothing was said about it": 1,
        "the model found nothing to learn": 1,
        "the model answered in another form": 1,
        "the number of requests was reached": 1,
    }
    second = await asked("NONE")
    assert second.left_out["asked about before"] == 3


async def test_runs_of_the_same_name_are_told_apart(episodes: Episodes, store: Store) -> None:
    for folder in ("one", "other"):
        run = episodes((0.1, "a"), folder=folder)
        made = await propose([run], store, answering("NONE"))
        assert made.left_out == {"the model found nothing to learn": 1}


async def test_what_runs_of_the_same_name_say_about_a_skill_is_added_up(
    tmp_path: Path, store: Store
) -> None:
    store.add(HELPFUL, GOAL, at=1)
    runs = [tmp_path / folder / "run" for folder in ("one", "other")]
    for run in runs:
        run.parent.mkdir()
        await work(run, 3, 2, Skills(SkillOptions(store=store.path)))
    for _ in range(2):
        (found,) = review(runs, store)
        assert found.worth is not None
        assert (found.worth.n, found.worth.mean) == (6, 1.0)
