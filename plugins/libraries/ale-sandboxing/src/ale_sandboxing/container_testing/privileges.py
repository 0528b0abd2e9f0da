"""Set-user-id programs of an image, and limits that are lifted. Needs coreutils."""

import asyncio
from pathlib import Path

from ale.testing.waiting import until
from ale.types import SandboxSpec
from ale_sandboxing.container_testing.tools import Make, folder_of, opened, out

_SETUID = """\
FROM {image}
RUN mkdir /su && cp /bin/cat /bin/sleep /su/ && chmod 4755 /su/*
WORKDIR /app
USER 1234
"""
_RUNNING = "cat /proc/[0-9]*/comm | grep -c '^sleep$' || true"


class PrivilegeProbes:
    """Needs one more fixture, ``image``: the name of the image that `make` starts."""

    async def test_a_program_gains_no_privileges(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        backend = make()
        folder = folder_of(tmp_path, _SETUID.format(image=image))
        async with opened(backend, build=folder) as sandbox:
            said = await out(sandbox, "/su/cat /proc/self/status | grep Uid")
            assert said.split() == ["Uid:", *(["1234"] * 4)]
        assert not any(note.startswith("privileges:") for note in backend.capabilities.notes)

    async def test_a_program_that_may_gain_privileges_ends_with_its_command(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        backend = make(new_privileges=True)
        folder = folder_of(tmp_path, _SETUID.format(image=image))
        assert any(note.startswith("privileges:") for note in backend.capabilities.notes)
        async with opened(backend, build=folder) as sandbox:
            said = await out(sandbox, "/su/cat /proc/self/status | grep Uid")
            assert said.split() == ["Uid:", "1234", "0", "0", "0"]
            assert (await sandbox.exec("/su/sleep 100 & wait", timeout_s=2.0)).timed_out
            assert await out(sandbox, _RUNNING) == "0", "it outlived its command's time limit"
            await sandbox.exec("/su/sleep 100 >/dev/null 2>&1 &")

            async def sleeps() -> bool:
                return await out(sandbox, _RUNNING) == "1"

            await until(sleeps, "the start of the program")
            assert await sandbox.end_processes() == 1
            assert await out(sandbox, _RUNNING) == "0"

    async def test_a_program_with_gained_privileges_ends_for_a_switched_user_too(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        backend = make(new_privileges=True, user="0", capabilities=("SETUID", "SETGID"))
        folder = folder_of(tmp_path, _SETUID.format(image=image))
        async with opened(backend, build=folder) as sandbox:
            await sandbox.switch_user("1234")
            ended = await sandbox.exec("id -u; /su/sleep 100 & wait", timeout_s=2.0)
            assert (ended.stdout, ended.timed_out) == (b"1234\n", True)
            assert await out(sandbox, _RUNNING) == "0"

    async def test_a_workspace_of_the_image_keeps_its_owner_and_a_new_one_gets_the_user(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        text = f"FROM {image}\nRUN mkdir /own && mkdir -m 777 /shared\nUSER 1234\n"
        folder, backend = folder_of(tmp_path, text), make()

        async def owned(workdir: str | None, expected: str) -> None:
            async with backend.open(SandboxSpec(build=folder, workdir=workdir)) as sandbox:
                assert await out(sandbox, "stat -c '%u %a' .") == expected

        await asyncio.gather(
            owned("/own", "0 755"),
            owned("/shared", "0 777"),
            owned("/made", "1234 755"),
            owned(None, "1234 755"),
        )
        await backend.aclose()

    async def test_the_agents_user_owns_a_workspace_that_the_image_lacks(self, make: Make) -> None:
        async with opened(make(), agent_user="1234", workdir="/made") as sandbox:
            await sandbox.write("early", b"")
            await sandbox.agent_started("1234")
            await sandbox.write("late", b"")
            assert await out(sandbox, "stat -c %u . early late") == "1234\n0\n1234"

    async def test_null_lifts_each_limit(self, make: Make) -> None:
        lifted = dict.fromkeys(
            ("memory_mb", "processes", "cpu_s", "file_size_mb", "open_files"), None
        )
        backend = make(**lifted)
        limits = backend.capabilities.limits
        assert {limits[name] for name in ("memory", "processes", "cpu", "file_size")} == {"none"}
        async with opened(backend) as sandbox:
            said = (await out(sandbox, "ulimit -t; ulimit -f; ulimit -v")).split()
            assert said == ["unlimited"] * 3
            assert int((await out(sandbox, "ulimit -n")).replace("unlimited", "9999999")) > 4096
            for name in ("pids/pids.max", "pids.max"):
                found = await sandbox.exec(f"cat /sys/fs/cgroup/{name}")
                assert found.stdout in (b"", b"max\n")
            for name in ("memory/memory.limit_in_bytes", "memory.max"):
                found = await sandbox.exec(f"cat /sys/fs/cgroup/{name}")
                text = found.stdout.decode().strip().replace("max", "") or str(1 << 62)
                assert int(text) > 1 << 50
