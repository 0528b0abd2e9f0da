"""`ale run` over task folders in a sandbox with the host's programs, which can't switch users."""

from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.types import Task
from ale_agent_oracle.validate.badge import fingerprint
from ale_tasks_harbor.options import HarborOptions
from ale_tasks_harbor.source import HarborSource

from .harbor_tasks import add, config, outcomes, skip_without


@pytest.fixture
def sandbox() -> dict[str, Any]:
    skip_without("bubblewrap")
    return {"type": "bubblewrap"}


def test_a_task_with_an_image_is_refused_before_the_run(
    workshop: Any, sandbox: dict[str, Any]
) -> None:
    add(workshop, "one", solve="touch done")
    config(workshop, "bubblewrap", sandbox=sandbox)
    for command in ("check", "run"):
        ended = workshop.ale(command, "run.yaml")
        assert ended.code == 2
        assert "1 task (one) needs an image (" in ended.err
        assert "sandbox.ignore_image: true" in ended.err


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("noop", 0.0)])
def test_a_task_that_needs_no_image_gets_its_verdict(
    workshop: Any, sandbox: dict[str, Any], agent: str, reward: float
) -> None:
    add(workshop, "one", solve="touch done")
    sandbox = {**sandbox, "ignore_image": True}
    config(workshop, "bubblewrap", sandbox=sandbox, agent={"type": agent})
    workshop.succeeds("run", "run.yaml")
    assert outcomes(workshop)["one"][0] == reward


def test_a_badge_holds_when_task_folders_are_read_again(workshop: Any) -> None:
    """Though each reading has a new key, with which what an image holds is recorded."""
    add(workshop, "one", solve="touch done")
    options = HarborOptions(path=workshop.folder / "tasks")

    def read() -> Task:
        (task,) = HarborSource(options, BuildContext()).load()
        return task

    first, again = read(), read()
    assert first.setup_steps != again.setup_steps
    before = fingerprint(first)
    assert before == fingerprint(again)
    script = next((workshop.folder / "tasks").rglob("test.sh"))
    script.write_text(f"{script.read_text()}\ntrue\n")
    assert before != fingerprint(read())


def test_a_task_is_refused_where_its_tests_would_be_put_on_this_machine(workshop: Any) -> None:
    add(workshop, "one", solve="touch done")
    config(workshop, "local", sandbox={"type": "local"})
    ended = workshop.ale("check", "run.yaml")
    assert ended.code == 2
    assert "use docker or podman\n" in ended.err  # this machine's programs alone would not help
    config(workshop, "local", sandbox={"type": "local", "ignore_image": True})
    for command in ("check", "run"):
        ended = workshop.ale(command, "run.yaml")
        assert ended.code == 2
        assert "requires of its sandbox: files of its own; 'local' lacks this" in ended.err


def test_tests_of_another_user_are_refused_before_the_run(
    workshop: Any, sandbox: dict[str, Any]
) -> None:
    add(workshop, "one", solve="touch done", toml="[verifier]\nuser = 'nobody'")
    config(workshop, "bubblewrap", sandbox={**sandbox, "ignore_image": True})
    ended = workshop.ale("check", "run.yaml")
    assert ended.code == 2
    assert "requires of its sandbox: switch-user; 'bubblewrap' lacks this" in ended.err
