"""What a trainer says of its objective, before a run and in its manifest."""

from collections.abc import Sequence
from typing import Any

from ale._config import structure_config
from ale._registry import Registry
from ale._run.start import check_run, start
from ale.plugin import Component, hookimpl
from ale.protocols import CreditScheme, ObjectiveFacts, ObjectivePart
from ale.strict import from_plain
from ale.testing.fakes import FakeTrainer

FACTS = ObjectiveFacts(
    name="mine",
    parts=(
        ObjectivePart(name="ratio", idle="1 update per step", metrics={"ratio_max": 1.0}),
        ObjectivePart(name="clip", idle="1 update per step", metrics={"clipped_fraction": 0.0}),
        ObjectivePart(name="mask", metrics={"masked_fraction": 0.0}),
    ),
    reduces_to="reinforce",
)


class Telling(FakeTrainer):
    asked: tuple[str, int] = ("", 0)

    def explain_objective(self, credit: CreditScheme, rollouts: int) -> ObjectiveFacts:
        Telling.asked = type(credit).__name__, rollouts
        return FACTS


class Parts:
    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [Component("telling", None, lambda o, c: Telling(), summary="Tells.")]


def test_idle_parts_are_told_before_the_run_and_stored(workplace: Any, registry: Registry) -> None:
    registry.add(Parts(), "ale-parts")
    plain = {
        "tasks": {"type": "list", "n": 2},
        "agent": {"type": "bench"},
        "credit": {"type": "even"},
        "trainer": {"type": "telling"},
        "run": {"directory": str(workplace.directory), "rollouts": 3},
    }
    config = structure_config(from_plain(plain, file="test.yaml"), registry)
    ready = check_run(config, "test", workplace.outside())
    assert [note for note in ready.notes if "never act" in note] == [
        "of the objective mine never act here: ratio, clip (1 update per step). "
        "What is left is reinforce"
    ]
    assert Telling.asked[1] == 3
    run = start(ready, workplace.outside())
    run.store.close()
    stored = run.store.reader.manifest["objective"]
    assert [part["idle"] for part in stored["parts"]] == ["1 update per step"] * 2 + [""]
    assert stored["reduces_to"] == "reinforce"
