"""Who made a sandbox unusable, and when: the agent has failed, anything else breaks the episode."""

from collections.abc import Callable
from typing import Any

import pytest

from ale._run.grading import Damage, check_works
from ale._run.run import Run
from ale.errors import (
    GradingError,
    LLMError,
    NoVerdictError,
    SandboxDamagedError,
    SandboxError,
    SandboxLostError,
)
from ale.protocols import AgentContext
from ale.testing.fakes import FolderSandbox
from ale.types import CriterionSpec, Episode, ExecResult, SandboxSpec, Score, Stop, Task, replace

from .conftest import episodes

DAMAGE = "no shell can be started"
PASSED = Score(criterion="done", passed=True, value=1.0)


async def one_episode(
    bench: Any,
    workplace: Any,
    *,
    opening: Callable[[SandboxSpec], Any] | None = None,
    agent: Exception | None = None,
    grading: Exception | None = None,
    **options: Any,
) -> tuple[Episode, Run]:
    """The episode of an agent and a criterion that raise these errors."""

    async def work(context: AgentContext) -> Stop:
        if agent is not None:
            raise agent
        return Stop(reason="finished")

    async def grade(sandbox: Any) -> Score:
        if grading is not None:
            raise grading
        return PASSED

    bench.agent, bench.grade = work, grade
    if opening is not None:
        bench.open_hook = opening
    run = await workplace.ran(workplace.config(retries=0, stop_after_broken=None, **options))
    return episodes(run)["t0"], run


def from_another(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("agent", "grading", "lost", "reward"),
    [
        (SandboxDamagedError(DAMAGE), None, "broken", 1.0),
        (SandboxDamagedError(DAMAGE), SandboxDamagedError(DAMAGE), "broken", 0.0),
        (SandboxDamagedError(DAMAGE), SandboxError("no folder"), "broken", 0.0),
        (SandboxDamagedError(DAMAGE), GradingError("no python"), "broken", 0.0),
        (SandboxDamagedError(DAMAGE), LLMError("the judge is down"), "broken", None),
        (SandboxDamagedError(DAMAGE), KeyError("a bug"), "broken", None),
        (None, SandboxDamagedError(DAMAGE), "broken", 0.0),
        (None, from_another(GradingError("no"), SandboxDamagedError(DAMAGE)), "broken", 0.0),
        (None, SandboxError("the engine does not answer"), "broken", None),
        (None, GradingError("no python"), "broken", None),
        (SandboxError("the engine does not answer"), None, "broken", None),
        (SandboxLostError("exit code 137"), None, "broken", None),
        (SandboxLostError("exit code 137"), SandboxLostError("exit code 137"), "failed", 0.0),
        (SandboxError("the engine does not answer"), None, "failed", None),
    ],
)
async def test_what_the_agent_did_to_its_sandbox_is_graded(
    bench: Any,
    workplace: Any,
    agent: Exception | None,
    grading: Exception | None,
    lost: str,
    reward: float | None,
) -> None:
    episode, run = await one_episode(
        bench, workplace, agent=agent, grading=grading, lost_sandbox=lost
    )
    assert episode.reward == reward
    assert (episode.failure is None) == (reward is not None)
    if reward is not None:
        assert episode.damaged in (DAMAGE, "exit code 137")
        assert run.store.index.damaged() == 1
    if agent is not None and reward is not None:
        assert episode.trajectory.stop.reason == "agent_error"
        assert "the sandbox was damaged: " in episode.trajectory.stop.detail
    if reward == 0.0:
        assert "the agent damaged the sandbox: " in episode.scores[0].detail


async def test_damage_before_the_agent_breaks_the_episode(bench: Any, workplace: Any) -> None:
    async def opening(spec: SandboxSpec) -> None:
        raise SandboxDamagedError("the image has no shell")

    episode, run = await one_episode(bench, workplace, opening=opening)
    assert episode.reward is None
    assert run.store.index.damaged() == 0


async def test_damage_by_the_set_up_of_a_step_is_not_the_agents() -> None:
    """It is found before the first agent has begun, in a sandbox that is open."""
    damage, error = Damage(lost="failed"), SandboxDamagedError(DAMAGE)
    sandbox = FolderSandbox()
    await sandbox.close()
    assert not damage.caused(error)
    assert not await damage.found(GradingError("no python"), sandbox)
    assert damage.message is None
    damage.began = True
    assert damage.caused(error)


class NoCommands(FolderSandbox):
    """Commands can't be started in it."""

    async def execute(self, command: Any) -> ExecResult:
        return replace(await super().execute(command), exit_code=126)


class NoShell(FolderSandbox):
    """Its own programs include no shell."""

    async def execute(self, command: Any) -> ExecResult:
        result = await super().execute(command)
        own = not isinstance(command.command, str)
        return replace(result, exit_code=127) if own else result


class NoEnds(FolderSandbox):
    """Commands wait for something that does not come."""

    async def execute(self, command: Any) -> ExecResult:
        return replace(await super().execute(command), exit_code=137, timed_out=True)


class NoSessions(FolderSandbox):
    """No session can be opened in it."""

    async def open_session(self, env: Any, cwd: str | None) -> Any:
        raise SandboxError("no shell")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (NoCommands, "a fresh sandbox of the task fails too, with 126"),
        (NoEnds, "a fresh sandbox of the task fails too, with 137"),
        (NoSessions, "no shell"),
    ],
)
async def test_a_fresh_sandbox_has_to_run_commands_and_sessions(
    kind: type[FolderSandbox], why: str
) -> None:
    sandbox, working = kind(), FolderSandbox()
    try:
        with pytest.raises(SandboxError, match=why):
            await check_works(sandbox, DAMAGE)
        await check_works(working, DAMAGE)
    finally:
        await sandbox.close()
        await working.close()


@pytest.mark.parametrize(
    ("kind", "why"),
    [(NoCommands, "no command can be run"), (NoEnds, "none ends within 30 s"), (FolderSandbox, "")],
)
async def test_a_sandbox_in_which_no_command_ends_was_damaged(
    kind: type[FolderSandbox], why: str
) -> None:
    sandbox, damage = kind(), Damage(began=True)
    try:
        assert await damage.found(GradingError("no answer"), sandbox) == bool(why)
    finally:
        await sandbox.close()
    assert why in (damage.message or "")


async def test_damage_of_every_fresh_sandbox_is_not_the_agents(bench: Any, workplace: Any) -> None:
    """A set-up may do it, or an engine that ends whatever it starts."""
    opened: list[SandboxSpec] = []

    async def opening(spec: SandboxSpec) -> None:
        opened.append(spec)
        if len(opened) > 1:
            raise SandboxError("the engine does not answer")

    damage = SandboxDamagedError(DAMAGE)
    episode, run = await one_episode(bench, workplace, opening=opening, agent=damage)
    assert len(opened) == 2
    assert episode.reward is None
    assert "the engine does not answer" in str(episode.failure)
    assert run.store.index.damaged() == 0


@pytest.mark.parametrize(("damage", "reward"), [('rm -rf "$PWD"', 0.0), ("true", None)])
async def test_a_criterion_that_cannot_run_in_what_the_agent_left_gives_0(
    bench: Any, workplace: Any, damage: str, reward: float | None
) -> None:
    async def work(context: AgentContext) -> Stop:
        await context.sandbox.exec(damage)
        return Stop(reason="finished")

    async def grade(sandbox: Any) -> Score:
        raise GradingError("the sandbox could not start a command for grading")

    bench.agent, bench.grade = work, grade
    run = await workplace.ran(workplace.config(retries=0, stop_after_broken=None))
    episode = episodes(run)["t0"]
    assert episode.reward == reward
    assert (episode.damaged is not None) == (reward is not None)


async def test_a_shell_that_the_agent_took_away_is_its_failure() -> None:
    """A backend may run a line by a shell of its own: criteria start the sandbox's."""
    damage, sandbox = Damage(began=True), NoShell()
    try:
        assert (await sandbox.exec("exit 0")).exit_code == 0
        assert await damage.found(GradingError("the sandbox no longer answers"), sandbox)
        with pytest.raises(SandboxError, match="a fresh sandbox of the task fails too, with 127"):
            await check_works(sandbox, DAMAGE)
    finally:
        await sandbox.close()


@pytest.mark.parametrize(
    ("fails", "reward", "n_tries"),
    [
        ("in the agent's", 0.0, 3),
        ("in every sandbox", None, 3),
        ("once", 1.0, 2),
    ],
)
async def test_a_check_without_a_verdict_is_the_agents_failure_if_a_fresh_sandbox_has_one(
    bench: Any, workplace: Any, fails: str, reward: float | None, n_tries: int
) -> None:
    tries: list[bool] = []

    async def work(context: AgentContext) -> Stop:
        await context.sandbox.write("touched", b"")
        return Stop(reason="finished")

    async def grade(sandbox: Any) -> Score:
        own = (await sandbox.exec("test -e touched")).exit_code == 0
        tries.append(own)
        if fails == "in every sandbox" or (own and (fails != "once" or len(tries) == 1)):
            raise NoVerdictError("python3 can't be started")
        return PASSED

    bench.agent, bench.grade = work, grade
    run = await workplace.ran(workplace.config(retries=0, stop_after_broken=None))
    episode = episodes(run)["t0"]
    assert (episode.reward, tries) == (reward, [True, True, False][:n_tries])
    assert (episode.damaged is not None) == (reward == 0.0)
    assert "python3 can't be started" in str((episode.failure, episode.damaged)) or reward == 1.0


async def test_the_steps_after_the_damage_have_failed(bench: Any, workplace: Any) -> None:
    done = (CriterionSpec(type="done"),)
    steps = tuple(Task(id=name, goal="", criteria=done) for name in ("one", "two", "three"))
    bench.tasks = lambda _: [Task(id="t0", goal="", steps=steps)]
    calls: list[str] = []

    async def work(context: AgentContext) -> Stop:
        calls.append(context.task.id)
        if context.task.id == "two":
            raise SandboxDamagedError(DAMAGE)
        return Stop(reason="finished")

    bench.agent, bench.grade = work, lambda sandbox: PASSED
    run = await workplace.ran(workplace.config(retries=0))
    episode = episodes(run)["t0"]
    assert calls == ["one", "two"]
    assert [score.value for score in episode.scores] == [1.0, 1.0, 0.0]
