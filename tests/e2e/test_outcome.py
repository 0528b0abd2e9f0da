"""The summary of a run says what went wrong: causes of broken episodes, training without effect."""

from typing import Any

TRAINER = """\
from ale.plugin import Component, hookimpl
from ale.types import PolicySnapshot, StepReport


class Idle:
    def attach(self, llm):
        pass

    async def step(self, batch):
        return StepReport(step=batch.step, policy_version=0, metrics={"updates": 0.0})

    def snapshot(self):
        return PolicySnapshot(version=0)

    def save(self, directory):
        pass

    def load(self, directory):
        pass


@hookimpl
def ale_trainers():
    return [Component("idle", None, lambda o, c: Idle(), summary="Makes no update.")]
"""


def test_causes_of_broken_episodes_are_counted(workshop: Any, shell: Any) -> None:
    workshop.task("good")
    workshop.task("bad")
    gone = [{"error": "connection refused at http://127.0.0.1:41234"}]
    workshop.scripted(
        {"tasks": {"bad": [gone], "good": [shell("touch done")]}},
        run={"rollouts": 3, "retries": 0},
    )
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 3, ended.text
    cause = "3 x agent: LLMError: connection refused at http://127.0.0.1:41234"
    assert f"  broken       3  (no reward)\n    {cause}\n" in ended.out
    assert cause in workshop.ale("show", str(workshop.run)).out


def test_training_without_an_update_is_reported_where_people_look(
    workshop: Any, shell: Any
) -> None:
    workshop.write("site/idle.py", TRAINER)
    info = "site/ale_idle-1.0.dist-info"
    workshop.write(f"{info}/METADATA", "Metadata-Version: 2.1\nName: ale-idle\nVersion: 1.0\n")
    workshop.write(f"{info}/entry_points.txt", "[ale]\nidle = idle\n")
    workshop.environ["PYTHONPATH"] = str(workshop.folder / "site")
    workshop.task("t")
    workshop.scripted(
        {"default": shell("touch done")},
        trainer={"type": "idle"},
        run={"rollouts": 2, "steps": 2},
    )
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 0, ended.text
    warning = "no update in any step: nothing was learned (no group had two different rewards)"
    assert f"  training     {warning}\n" in ended.out
    for step in (0, 1):
        line = f"step {step}: no group had two different rewards: nothing was learned"
        assert line in ended.err
    assert warning in workshop.ale("show", str(workshop.run)).out
    assert workshop.ale("report", str(workshop.run)).code == 0
    assert warning.capitalize() in (workshop.run / "report.html").read_text()
