"""Prepare a sandbox for a task: its requirements, files and setup steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ale.errors import SetupError
from ale.protocols import HasAgentUser, Sandbox
from ale.types import ExecResult, SandboxSpec, Task

_EXCERPT_BYTES = 2000
"""Bytes of a failed setup step's output that the error quotes."""


def sandbox_spec(task: Task, tags: Mapping[str, str]) -> SandboxSpec:
    """The sandbox that a task requires."""
    required = task.environment
    environments = [part.environment for part in (task, *task.steps)]
    return SandboxSpec(
        image=required.image,
        build=required.build,
        workdir=required.workdir,
        network=task.constraints.network,
        allowed_hosts=task.constraints.allowed_hosts,
        env=required.env,
        cpus=required.cpus,
        memory_mb=required.memory_mb,
        storage_mb=required.storage_mb,
        user=required.user,
        agent_user=required.agent_user,
        requires=tuple({name: None for one in environments for name in one.requires}),
        tags=tags,
    )


async def set_up(task: Task, sandbox: Sandbox, timeout_s: float) -> None:
    """Copy the task's files into the workspace, run its setup steps and hand over to the agent.

    Args:
        timeout_s: time limit for each step, in seconds.

    Raises:
        SetupError: a step failed.
    """
    if task.files is not None:
        await sandbox.upload(Path(task.files), ".")
    await _run_commands(task.setup_steps, sandbox, timeout_s)
    # In a task with steps, each step's agent starts after that step's own setup.
    if not task.steps:
        if isinstance(sandbox, HasAgentUser):
            await sandbox.agent_started(task.environment.agent_user)
        await _run_commands(task.agent_setup_steps, sandbox, timeout_s)


async def _run_commands(commands: Sequence[str], sandbox: Sandbox, timeout_s: float) -> None:
    for command in commands:
        result = await sandbox.exec(command, timeout_s=timeout_s)
        if result.exit_code != 0 or result.timed_out:
            raise SetupError(_message(command, result))


def _message(command: str, result: ExecResult) -> str:
    how = "ran out of time" if result.timed_out else f"exited with {result.exit_code}"
    output = (result.stdout + result.stderr)[-_EXCERPT_BYTES:].decode(errors="backslashreplace")
    return f"setup step `{command}` {how}\n{output}".rstrip()
