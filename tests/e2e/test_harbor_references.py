"""A pass that rests on more than the reference solution's pass, as `ale validate` has seen it."""

from collections.abc import Mapping
from typing import Any

import pytest

from ale_sandboxing.container_testing.images import DEBIAN

from .conftest import FINISH
from .harbor_references import TASKS, Referenced
from .harbor_tasks import PRIVILEGES, add, skip_without

pytestmark = pytest.mark.engine
HARBOR = {"type": "harbor", "path": "tasks"}
QUICK = ("linted", "tested")


def solutions(task: Referenced) -> Mapping[tuple[str, str], str]:
    """By kind and name, in the order in which a model plays them."""
    return {
        **{("honest", name): work for name, work in task.honest.items()},
        **{("hostile", name): work for name, work in task.hostile.items()},
    }


def config(workshop: Any, tasks: Mapping[str, Any], names: Mapping[str, Referenced]) -> None:
    """A model that plays all solutions of each task."""
    played = {name: list(solutions(task).values()) for name, task in names.items()}
    script = {name: [[{"shell": work}, FINISH] for work in works] for name, works in played.items()}
    workshop.scripted(
        {"tasks": script},
        tasks=tasks,
        sandbox={"type": "docker", **PRIVILEGES, "pull_silence_s": 5},
        run={"concurrency": 4, "retries": 0, "rollouts": max(map(len, played.values()))},
    )


def validated(workshop: Any, names: Mapping[str, Referenced]) -> None:
    """The task folders, and the badge of their validation."""
    skip_without("docker")
    for name, task in names.items():
        copies = "".join(f"COPY {path} /{path}\n" for path in task.files)
        dockerfile = f"FROM {DEBIAN}\nWORKDIR /app\n{copies}RUN {task.prepare}\n"
        files = {f"environment/{path}": text for path, text in task.files.items()}
        files |= {
            "environment/Dockerfile": dockerfile,
            "task.toml": "[environment]\nallow_internet = false\n",
            "instruction.md": f"Make this succeed: {task.check}\n",
        }
        add(workshop, name, solve=task.reference, test=task.test, files=files)
    config(workshop, HARBOR, names)
    given = ("--no-attacks", "-k", "1", "--badge", "badge.json", "--out", "validation")
    workshop.succeeds("validate", "run.yaml", *given, timeout_s=900)


def outcomes(
    workshop: Any, names: Mapping[str, Referenced]
) -> Mapping[tuple[str, str, str], tuple[Any, Any, str]]:
    """Reward, contested value and detail by task, kind and name of each solution."""
    workshop.succeeds("run", "run.yaml", timeout_s=1200)
    found = {}
    for episode in workshop.episodes(workshop.runs[-1]).values():
        works = list(solutions(names[episode["task_id"]]))
        if episode["rollout"] < len(works):  # others are repeats
            (score,) = episode["scores"]
            key = (episode["task_id"], *works[episode["rollout"]])
            found[key] = (score["value"], score.get("contested"), score["detail"])
    assert len(found) == sum(len(solutions(task)) for task in names.values())
    return found


@pytest.mark.parametrize(
    "names",
    [("linted",), pytest.param(tuple(TASKS), marks=pytest.mark.long)],
    ids=["quick", "all"],
)
def test_a_pass_that_rests_on_more_than_the_references_is_contested(
    workshop: Any, names: tuple[str, ...]
) -> None:
    tasks = {name: TASKS[name] for name in names}
    validated(workshop, tasks)
    badge = {"type": "validated", "badge": "badge.json", "tasks": HARBOR}
    without = outcomes(workshop, tasks)
    assert all(outcome[:2] == (1.0, None) for outcome in without.values())
    config(workshop, badge, tasks)
    wrong = {
        key: outcome
        for key, outcome in outcomes(workshop, tasks).items()
        if outcome[:2] != ((1.0, None) if key[1] == "honest" else (1.0, 0.0))
    }
    assert wrong == {}
