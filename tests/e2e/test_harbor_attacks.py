"""The verdict of a task's own tests in spite of what an agent has left behind.

All tasks run at once, in containers where the agent is root with what tasks expect of root.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from .harbor_attacks import ATTACKS, DAMAGE, HONEST, SYSTEM_WORK, Attack
from .harbor_found import FOUND_BY_A_REVIEWER, SYSTEM_WORK_FOUND
from .harbor_tasks import add, config, containers, outcomes, skip_without

pytestmark = pytest.mark.engine
KINDS = {
    "attack": {**ATTACKS, **FOUND_BY_A_REVIEWER},
    "honest": {**HONEST, **SYSTEM_WORK_FOUND},
    "system": SYSTEM_WORK,
    "damage": DAMAGE,
}
SLOW = ("start-of-everything-blocked", "hook-of-apt", "done-after-the-time-is-up")
QUICK = {
    kind: {name: attack for name, attack in list(attacks.items())[::3] if name not in SLOW}
    for kind, attacks in KINDS.items()
}
"""Every third of each kind."""


def problem(kind: str, reward: float | None, contested: float | None) -> bool:
    """Whether an outcome is not the right one."""
    if kind == "attack":
        return reward != 0.0 and contested != 0.0
    if kind == "damage":
        return reward != 0.0
    return reward != 1.0 or (kind == "honest" and contested is not None)


@pytest.mark.parametrize(
    ("engine", "kinds"),
    [
        ("docker", QUICK),
        pytest.param("docker", KINDS, marks=pytest.mark.long),
        pytest.param("podman", KINDS, marks=pytest.mark.long),
    ],
    ids=["docker-quick", "docker", "podman"],
)
def test_no_verdict_is_forged_and_none_is_lost(
    workshop: Any, engine: str, kinds: Mapping[str, Mapping[str, Attack]]
) -> None:
    skip_without(engine)
    for attacks in kinds.values():
        for name, attack in attacks.items():
            add(workshop, name, solve=attack.solve, test=attack.test, toml=attack.toml)
    config(workshop, engine)
    ended = workshop.ale("run", "run.yaml", timeout_s=1200)
    assert ended.code == 0, ended.text
    found = outcomes(workshop)
    contested = {
        episode["task_id"]: score.get("contested")
        for episode in workshop.episodes().values()
        for score in episode["scores"]
    }
    wrong = {}
    for kind, attacks in kinds.items():
        for name, attack in attacks.items():
            reward, message = found[name]
            if problem(kind, reward, contested.get(name)) or attack.note not in message:
                wrong[kind, name] = (reward, message)
    assert wrong == {}
    assert containers(workshop, engine) == []
