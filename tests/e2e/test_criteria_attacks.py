"""The verdict of the criteria of the benchmark format, in spite of what an agent has left behind.

All tasks run at once; in containers the agent is root.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from ale_sandboxing.container_testing.images import DEBIAN

from .criteria_attacks import ATTACKS, HONEST, OTHERWISE, UNIT_TEST, Left
from .harbor_tasks import PRIVILEGES, containers, skip_without

pytestmark = pytest.mark.engine
NO_TOOLS = """import ale.judging.judge as judge


async def no_tools(*given):
    return []


judge.tools_among = judge.replaced_among = no_tools
"""
"""Makes a judge look only once."""


def add(workshop: Any, name: str, left: Left) -> None:
    """One task."""
    criteria = []
    for given in left.criteria:
        made = dict(given)
        if made["type"] == "unit_tests_pass":
            workshop.write(f"tests/{name}/test_it.py", UNIT_TEST)
            made["tests"] = str(workshop.folder / "tests" / name)
        criteria.append(made)
    workshop.task(
        name,
        success_criteria=criteria,
        setup_steps=[left.setup],
        solution=[left.solve],
        keep_processes=left.keep,
    )


def run(workshop: Any, engine: str, tasks: Mapping[str, Left], **environ: str) -> None:
    """Run the reference solutions of all tasks."""
    skip_without(engine)
    isolated = engine != "bubblewrap"
    for name, left in tasks.items():
        if isolated or not left.containers:
            add(workshop, name, left)
    own = {"root": str(workshop.space), "writable_system": True}
    options = {**PRIVILEGES, "image": DEBIAN} if isolated else own
    workshop.space.mkdir(exist_ok=True)
    workshop.config(
        sandbox={"type": engine, **options},
        agent={"type": "oracle"},
        run={"concurrency": 4, "retries": 0},
    )
    ended = workshop.ale("run", "run.yaml", timeout_s=1200, **environ)
    assert ended.code == 0, ended.text


@pytest.mark.long
def test_each_attack_works_where_a_judge_looks_only_once(workshop: Any) -> None:
    """So none of them is stopped by a mistake of its own."""
    workshop.write("blind/sitecustomize.py", NO_TOOLS)
    attacks = {name: left for name, left in ATTACKS.items() if name not in OTHERWISE}
    run(workshop, "docker", attacks, PYTHONPATH=str(workshop.folder / "blind"))
    stopped = {
        episode["task_id"]: [score["detail"] for score in episode["scores"]]
        for episode in workshop.episodes().values()
        if episode["reward"] != 1.0
        or any(score.get("contested") is not None for score in episode["scores"])
    }
    assert stopped == {}
    assert len(workshop.episodes()) == len(attacks)


@pytest.mark.parametrize(
    "engine", ["docker", pytest.param("podman", marks=pytest.mark.long), "bubblewrap"]
)
def test_no_criterion_is_deceived_and_no_work_is_lost(workshop: Any, engine: str) -> None:
    isolated = engine != "bubblewrap"
    run(workshop, engine, {**ATTACKS, **HONEST})
    wrong = {}
    for episode in workshop.episodes().values():
        name, scores = episode["task_id"], episode["scores"]
        told = [(score["value"], score.get("contested"), score["detail"]) for score in scores]
        passed = [score["value"] == 1 and score.get("contested") is None for score in scores]
        left = {**ATTACKS, **HONEST}[name]
        noted = all(left.note in score["detail"] for score in scores)
        if episode["reward"] is None or all(passed) != (name in HONEST) or not noted:
            wrong[name] = (episode["reward"], told, episode["failure"])
    assert wrong == {}, "\n".join(f"{name}: {what}" for name, what in sorted(wrong.items()))
    if isolated:
        assert containers(workshop, engine) == []
