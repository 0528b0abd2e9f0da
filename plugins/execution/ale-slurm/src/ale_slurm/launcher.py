"""Submits the script and waits for its job."""

import asyncio
import re
import signal
from collections.abc import Callable

from ale.errors import LaunchError
from ale.protocols import LOST, Launch, Launched
from ale_slurm.options import SlurmOptions
from ale_slurm.script import JOB_LOG, script_of

_POLL_S = 5.0
_PATIENCE_S = 1800.0
"""How long the controller may not answer: as long as an administrator restarts it."""
_ENDED = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("BOOT_FAIL", "DEADLINE", "PREEMPTED"),
}


class SlurmLauncher:
    """Submits one job for everything."""

    def __init__(self, options: SlurmOptions, poll_s: float = _POLL_S) -> None:
        self._options = options
        self._poll_s = poll_s

    def plan(self, launch: Launch) -> str:
        """The script that `start` submits."""
        return script_of(launch, self._options)

    async def start(self, launch: Launch, say: Callable[[str], None]) -> Launched:
        """Submit the job."""
        script = script_of(launch, self._options)
        launch.log(JOB_LOG).parent.mkdir(parents=True, exist_ok=True)
        printed = await slurm("sbatch", "--parsable", stdin=script)
        id = printed.strip().partition(";")[0]
        job = Job(id, say, detached=self._options.detach, poll_s=self._poll_s)
        say(f"job {job.id}; its own log is {JOB_LOG}.log")
        return job


class Job:
    """A submitted job."""

    def __init__(
        self, id: str, say: Callable[[str], None], *, detached: bool, poll_s: float = _POLL_S
    ) -> None:
        self.id = id
        self._say = say
        self._detached = detached
        self._poll_s = poll_s
        self._state = ""
        self._sent: signal.Signals | None = None
        """The last signal that was passed on."""

    async def wait(self) -> int:
        """Until the job has ended; a requeued one has not."""
        if self._detached:
            return 0
        while True:
            components = await self._components()
            states = [each["JobState"] for each in components]
            if states[0] != self._state:
                self._state = states[0]
                shown, where = self._shown(components[0]), _where(components[0])
                self._say(f"job {self.id}: {shown} {where}".rstrip())
            if set(states) <= _ENDED:
                return _status(components[0])
            if states[0] == "PENDING" and "RUNNING" in states:
                # The node of the script is lost, and Slurm leaves the other components running:
                # the job could never start again. The refusal of the leader is expected.
                await slurm("scontrol", "requeue", self.id, refused=True)
            await asyncio.sleep(self._poll_s)

    def _shown(self, component: dict[str, str]) -> str:
        """The state of the job; after a signal of ours, Slurm's "failed" is what was asked for."""
        state = component["JobState"]
        if self._sent is None or state != "FAILED":
            return state.lower()
        return f"interrupted by {self._sent.name}, with status {_status(component)}"

    async def send_signal(self, number: signal.Signals) -> None:
        """To the script, which passes it on."""
        self._sent = number
        name = number.name.removeprefix("SIG")
        try:
            await self._answered("scancel", f"--signal={name}", "--batch", self.id)
        except LaunchError as error:
            if not _is_over(error):
                raise

    async def end(self) -> None:
        """Cancel the job until nothing of it runs."""
        if self._detached:
            return
        try:
            while not await self._has_ended():
                # Again: a requeued job, or one of an overloaded controller, can outlive the first.
                await slurm("scancel", "--quiet", self.id, refused=True)
                await asyncio.sleep(self._poll_s)
        except LaunchError as error:
            if not _is_over(error):
                raise

    async def _has_ended(self) -> bool:
        return all(each["JobState"] in _ENDED for each in await self._components())

    async def _components(self) -> list[dict[str, str]]:
        """The job as Slurm shows it."""
        printed = await self._answered("scontrol", "show", "job", "--oneliner", self.id)
        return [_fields(line) for line in printed.splitlines() if line.startswith("JobId=")]

    async def _answered(self, program: str, *arguments: str) -> str:
        """What a program prints, which is run again while the controller does not answer."""
        loop = asyncio.get_running_loop()
        until, reported = loop.time() + _PATIENCE_S, False
        while True:
            try:
                return await slurm(program, *arguments)
            except LaunchError as error:
                if _is_over(error) or loop.time() > until:
                    raise
                if not reported:
                    self._say(f"job {self.id}: {error}; asking again")
                    reported = True
                await asyncio.sleep(self._poll_s)


def _is_over(error: LaunchError) -> bool:
    """Does Slurm say that there is nothing of the job any more?"""
    return any(text in str(error) for text in ("Invalid job id", "already complet"))


def _fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S*)", line))


def _where(component: dict[str, str]) -> str:
    nodes = component.get("NodeList", "(null)")
    return "" if nodes in ("", "(null)") else f"on {nodes}"


def _status(component: dict[str, str]) -> int:
    """The status of the script; with 0, a failed job was ended by a signal or by Slurm."""
    code, state = int(component["ExitCode"].partition(":")[0]), component["JobState"]
    return code if state == "COMPLETED" or (state == "FAILED" and code != 0) else LOST


async def slurm(program: str, *arguments: str, stdin: str = "", refused: bool = False) -> str:
    """What a program of Slurm prints.

    Raises:
        LaunchError: it failed, unless it may be `refused`.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise LaunchError(f"{program} of Slurm is not installed here") from error
    out, err = await process.communicate(stdin.encode())
    if process.returncode != 0 and not refused:
        raise LaunchError(f"{program} failed: {err.decode(errors='replace').strip()}")
    return out.decode(errors="replace")
