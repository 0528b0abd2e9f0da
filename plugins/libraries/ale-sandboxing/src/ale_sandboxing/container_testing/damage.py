"""What an agent may do to its own container: the error says that, and not that the engine failed.

Not in the kit of all sandboxes: where one is not isolated, these commands would hit the host.
"""

from typing import ClassVar

import pytest

from ale.errors import SandboxDamagedError, SandboxLostError
from ale.testing.sandbox.isolation import NO_FILES
from ale.types import SandboxSpec
from ale_sandboxing.container import worker
from ale_sandboxing.container.backend import ContainerBackend
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container_testing.images import DEBIAN
from ale_sandboxing.container_testing.tools import Make

DAMAGE = (
    "rm -rf /bin/* /usr/bin/*",
    'chmod 000 "$(readlink -f /bin/sh)" "$(readlink -f /bin/bash)"',
    "rm -rf --no-preserve-root / 2>/dev/null",
    'for sh in sh bash; do printf "#!/nowhere\\n" >"$(readlink -f /bin/$sh).new"; '
    'mv "$(readlink -f /bin/$sh).new" "$(readlink -f /bin/$sh)"; done',
)


async def filled(box: ContainerSandbox) -> None:
    """Fill the memory until the container ends."""
    for _ in range(5):
        session = await box.session()
        await session.run("cat /dev/zero >/tmp/$$", timeout_s=20)
        await box.end_processes()


async def used_again(box: ContainerSandbox) -> None:
    """End what runs, and begin something."""
    await box.end_processes()
    await box.exec("exit 0", timeout_s=4)


@pytest.mark.asyncio
class DamageProbes:
    """Commands that leave a container useless."""

    container_image = DEBIAN
    tries_out_of_memory: ClassVar[int] = 1
    """Containers of which one at least has to be seen out of memory."""

    @pytest.mark.parametrize("command", DAMAGE)
    async def test_a_sandbox_without_its_programs_says_that_it_was_damaged(
        self, backend: ContainerBackend, command: str
    ) -> None:
        async with backend.open(SandboxSpec()) as box:
            await box.write("file", b"kept")
            session = await box.session()
            assert (await session.run(f"{command}; exit 0", timeout_s=60)).exit_code == 0
            for _ in range(2):
                with pytest.raises(SandboxDamagedError):
                    await box.session()
                with pytest.raises(SandboxDamagedError):
                    await box.exec("exit 0", timeout_s=20)
                await box.end_processes()
            if "rm -rf --no-preserve-root /" not in command:
                assert await box.read("file") == b"kept"
        async with backend.open(SandboxSpec()) as fresh:
            assert (await fresh.exec("exit 0")).exit_code == 0

    async def test_an_agent_that_forbids_open_files_to_what_runs_it_breaks_nothing(
        self, backend: ContainerBackend
    ) -> None:
        """The kit asks this too, of images that have a program for it: here by a session."""
        async with backend.open(SandboxSpec()) as box:
            assert (await box.exec("command -v prlimit || command -v python3")).exit_code == 0
            for _ in range(2):
                await (await box.session()).run(NO_FILES, timeout_s=30)
                await box.exec("echo on", timeout_s=30)
                await box.end_processes()
                assert (await box.exec("echo alive")).stdout == b"alive\n"

    @pytest.mark.long
    async def test_a_sandbox_in_which_every_program_waits_says_that_it_was_damaged(
        self, backend: ContainerBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The loader reads the file at the start of every program: it opens a pipe, and waits."""
        async with backend.open(SandboxSpec()) as box:
            await box.exec("mkfifo /etc/ld.so.preload")
            monkeypatch.setattr(worker, "ANSWER_S", 8.0)
            with pytest.raises(SandboxDamagedError):
                await used_again(box)
            with pytest.raises(SandboxDamagedError):
                await box.session()

    async def test_a_missing_program_is_no_damage(self, box: ContainerSandbox) -> None:
        for command in ("no-such-program", "exit 126", "exit 127"):
            assert (await box.exec(command)).exit_code in (126, 127)

    async def test_a_container_that_was_out_of_memory_was_damaged(self, make: Make) -> None:
        """What is in a file system in memory is charged to no process that could be killed.

        An engine that watches for this by an event can miss it where the kernel kills all within
        milliseconds (conmon, with control groups of version 1). Then nothing tells this end from
        that of a container which somebody has killed, and `run.lost_sandbox` decides.
        """
        backend = make(memory_mb=24, tmp_mb=64)
        found: list[bool] = []
        try:
            while True not in found and len(found) < self.tries_out_of_memory:
                async with backend.open(SandboxSpec()) as box:
                    with pytest.raises((SandboxDamagedError, SandboxLostError)) as raised:
                        await filled(box)
                    found.append(isinstance(raised.value, SandboxDamagedError))
        finally:
            await backend.aclose()
        assert True in found, "nothing was said to be out of memory"
