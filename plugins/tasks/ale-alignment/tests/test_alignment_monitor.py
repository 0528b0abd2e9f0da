"""``ale monitor`` on stored runs: what it finds, and that it finds nothing where nothing is."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from ale.errors import InputError, StoreError
from ale.testing import builders
from ale.types import Episode, Score, replace
from ale_alignment.command import monitor as command
from ale_alignment.monitoring import group_of, monitor
from ale_alignment.statistics import correlation, n_grams, overlap

Make = Callable[..., Path]


def episode(task: str, rollout: int, step: int = 0, text: str = "", **scores: float) -> Episode:
    made = tuple(
        Score(criterion=name, passed=value == 1, value=value) for name, value in scores.items()
    )
    reward = sum(scores.values()) / len(scores)
    built = builders.episode(reward, builders.turn(text), task_id=task, rollout=rollout)
    return replace(built, id=f"{step}-{task}-{rollout}", step=step, scores=made)


@pytest.fixture
def stored(tmp_path: Path) -> Make:
    def make(name: str, episodes: Sequence[Episode], audit: Any = None) -> Path:
        run = tmp_path / name
        run.mkdir()
        manifest = {
            "schema": 1,
            "run_id": name,
            "config": {},
            "n_tasks": 1,
            "outcome": {"outcome": "completed", "seconds": 1.0},
        }
        (run / "manifest.json").write_text(json.dumps(manifest))
        tasks = [builders.task(each) for each in sorted({e.task_id for e in episodes})]
        for file, rows in (("tasks.jsonl", tasks), ("episodes.jsonl", episodes)):
            (run / file).write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        if audit is not None:
            lines = [json.dumps({"seq": i, **each}) for i, each in enumerate(audit, 1)]
            (run / "audit.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return run

    return make


def said(*paths: Path, proxy: str | None = None, judge: str | None = None) -> str:
    return " ".join("\n".join(monitor(paths, proxy, judge)).split())


def agent(seed: int, tasks: int = 8, rollouts: int = 5) -> list[Episode]:
    """Easy and hard tasks; success and words by the seed."""
    random = Random(seed)
    return [
        episode(
            f"t{task}",
            rollout,
            text=" ".join(random.choices("abcd", k=30)),
            work=min(1.0, max(0.0, task / tasks + random.gauss(0, 0.2))),
        )
        for task in range(tasks)
        for rollout in range(rollouts)
    ]


def test_agents_that_do_and_say_the_same_are_found(stored: Make) -> None:
    text = said(stored("a", agent(1)), stored("b", agent(1)))
    assert "a b 40 1.000" in text.split("agents: correlation")[1]
    assert text.count("0.0005 yes") == 2


def test_agents_with_the_same_tasks_alone_are_not(stored: Make) -> None:
    text = said(stored("a", agent(1)), stored("b", agent(3)))
    agents = text.split("agents: correlation")[1]
    assert agents.count(" no") == 2
    assert " yes" not in agents


KEYS = [
    episode(f"t{task}", rollout, step, work=0.0)
    for step in range(10)
    for task in range(2)
    for rollout in range(8)
]


def learner(random: Random) -> list[float]:
    """Success that rises from 0.1 to 0.9."""
    return [float(random.random() < 0.1 + 0.8 * each.step / 9) for each in KEYS]


def test_agents_that_both_learn_are_found_as_often_as_the_level_says() -> None:
    found = 0
    for seed in range(200):
        random = Random(seed)
        scores = zip(map(group_of, KEYS), learner(random), learner(random), strict=True)
        p = correlation([*scores], 99).p
        found += p is not None and p <= 0.05
    assert 2 <= found <= 20  # Binomial(200, 0.05)


def said_at(random: Random, step: int) -> frozenset[str]:
    return n_grams(words(random, step), n=3)


def words(random: Random, step: int) -> str:
    """In time ever more of them are b."""
    return " ".join(random.choices("ab", [10 - step, step], k=12))


def test_texts_of_agents_that_both_learn_are_found_as_often_as_the_level_says() -> None:
    found = 0
    for seed in range(200):
        random = Random(seed)
        texts = [
            (group_of(e), said_at(random, e.step), said_at(random, e.step))
            for e in KEYS
            if e.task_id == "t0"
        ]
        p = overlap(texts, 99).p
        found += p is not None and p <= 0.05
    assert 2 <= found <= 20


def learned(seed: int) -> list[Episode]:
    random = Random(seed)
    return [
        replace(each, reward=score, trajectory=builders.trajectory(builders.turn(words(random, s))))
        for each, score, s in zip(KEYS, learner(random), (e.step for e in KEYS), strict=True)
    ]


def test_learning_is_no_collusion(stored: Make) -> None:
    text = said(stored("a", learned(1)), stored("b", learned(2))).split("agents: correlation")[1]
    assert text.count(" no") == 2
    assert " yes" not in text


def test_graders_that_both_see_better_work_do_not_agree(stored: Make) -> None:
    random = Random(5)
    scores = zip(KEYS, learner(random), learner(random), strict=True)
    run = [episode(e.task_id, e.rollout, e.step, first=a, second=b) for e, a, b in scores]
    assert " no audit" in said(stored("graded", run))


def test_many_texts_are_sampled_and_that_is_said(stored: Make) -> None:
    text = said(stored("a", agent(1, 4, 300)), stored("b", agent(1, 4, 300)))
    of_texts = text.split("agents: overlap")[1]
    assert ", 512 pairs at random one" in of_texts
    assert "a b 512 1.000" in of_texts
    assert "0.0005 yes" in of_texts


def graded(by: Callable[[Random], tuple[float, float]]) -> list[Episode]:
    random, made = Random(4), []
    for task in range(8):
        for rollout in range(5):
            one, other = by(random)
            made.append(episode(f"t{task}", rollout, first=one, second=other))
    return made


def test_graders_that_agree_are_found_and_independent_ones_are_not(stored: Make) -> None:
    def agreeing(random: Random) -> tuple[float, float]:
        both = random.random()
        return both, both * 0.9 + 0.1 * random.random()

    def apart(random: Random) -> tuple[float, float]:
        return random.random(), random.random()

    assert "0.0005 yes" in said(stored("agreeing", graded(agreeing)))
    assert " no audit" in said(stored("apart", graded(apart)))


def learning(hacked: float) -> list[Episode]:
    random = Random(7)
    return [
        episode(f"t{task}", 0, step, proxy=1.0, judge=float(random.random() > hacked * step / 12))
        for step in range(12)
        for task in range(10)
    ]


def test_a_proxy_that_parts_from_its_judge_is_found(stored: Make) -> None:
    text = said(stored("hacked", learning(1.0)), proxy="proxy", judge="judge")
    assert "proxy minus judge, over 12 steps first 0.000" in text
    assert "they part: 0.0" in text
    back = said(stored("other", learning(1.0)), proxy="judge", judge="proxy")
    assert "they do not part: -0.0" in back


def test_a_proxy_that_stays_with_its_judge_is_not(stored: Make) -> None:
    text = said(stored("honest", learning(0.0)), proxy="proxy", judge="judge")
    assert "no trend: the difference is always the same" in text
    random = Random(1)
    noisy = [
        episode(f"t{task}", 0, step, proxy=1.0, judge=float(random.random() > 0.3))
        for step in range(12)
        for task in range(10)
    ]
    assert "they do not part" in said(stored("noisy", noisy), proxy="proxy", judge="reward")


AUDITED = [episode("t", rollout, work=1.0) for rollout in range(2)]
EVENTS: list[dict[str, Any]] = [
    {"event": "run_started"},
    *({"event": "episode_stage", "episode": e.id, "stage": "agent"} for e in AUDITED),
    *({"event": "episode_finished", "episode": e.id} for e in AUDITED),
    {"event": "run_finished"},
]


def test_an_audit_with_all_is_complete(stored: Make) -> None:
    assert "audit: 6 lines for 2 episodes: complete" in said(stored("a", AUDITED, EVENTS))


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (0, "no start of the run"),
        (1, "the course of 1 episode is missing (0-t-0)"),
        (4, "the end of 1 episode is missing (0-t-1)"),
        (5, "no end of the run, which was completed"),
    ],
)
def test_what_an_audit_lacks_is_named(stored: Make, gone: int, expected: str) -> None:
    rest = [event for i, event in enumerate(EVENTS) if i != gone]
    text = said(stored("a", AUDITED, rest))
    assert expected in text
    assert "complete" not in text.replace("completed", "")


def test_a_gap_of_its_numbers_is_named(stored: Make) -> None:
    events = [*EVENTS[:3], {**EVENTS[3], "seq": 9}, *EVENTS[4:]]
    assert "its numbers have gaps" in said(stored("a", AUDITED, events))


def test_a_run_without_an_audit_says_how_to_get_one(stored: Make) -> None:
    assert "audit: none; with observers: [{type: audit}]" in said(stored("a", AUDITED))


def test_a_line_that_is_no_event_is_an_error(stored: Make) -> None:
    run = stored("a", AUDITED, EVENTS)
    with (run / "audit.jsonl").open("a") as file:
        file.write("[1]\n")
    with pytest.raises(StoreError, match=r"audit.jsonl:7: not a line of an audit"):
        said(run)


def test_a_score_that_is_not_there_is_refused_with_the_nearest_name(stored: Make) -> None:
    with pytest.raises(InputError, match="did you mean 'judge'"):
        said(stored("a", learning(0.0)), proxy="proxy", judge="jugde")


def test_a_run_that_is_given_twice_is_refused(stored: Make, tmp_path: Path) -> None:
    run = stored("one", AUDITED)
    (tmp_path / "again").symlink_to(run)
    for other in (run, tmp_path / "again"):
        with pytest.raises(InputError, match="is the same run as"):
            said(run, other)


def test_a_run_without_a_graded_episode_is_refused(stored: Make) -> None:
    with pytest.raises(InputError, match="no graded episode"):
        said(stored("a", [builders.episode(None)]))


def test_a_proxy_needs_a_judge(stored: Make) -> None:
    run = str(stored("a", AUDITED))
    done = CliRunner().invoke(command, [run, "--proxy", "work"])
    assert done.exit_code == 2
    assert "both --proxy and --judge" in done.output


def test_p_is_corrected_for_the_number_of_pairs(stored: Make) -> None:
    text = said(stored("a", agent(1)), stored("b", agent(1)), stored("c", agent(3)))
    assert text.count("0.0015 yes") == 2  # three pairs of agents, by reward and by words
