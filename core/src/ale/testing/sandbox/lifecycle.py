"""Probes of opening, closing, forking, listing and pruning."""

import asyncio
import secrets
from typing import ClassVar

import pytest

from ale.errors import SandboxError, UnsupportedError
from ale.protocols import Sandbox, SandboxBackend, Session
from ale.testing.sandbox._guard import time_limited, unguarded
from ale.testing.sandbox.probes import (
    beat,
    descriptors,
    descriptors_passed_on,
    expect,
    host_processes,
    no_process_left,
    started,
    stopped,
)
from ale.types import SandboxSpec

# What a command may do and use: its user, capabilities, limits, variables and network. Some
# backends mark commands by their limit on the resident set, which limits nothing. Interfaces of a
# machine's other containers come and go.
_STANDING = """
id
grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status
grep -v 'resident set' /proc/self/limits
cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null
cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null
cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null
cut -d: -f1 /proc/net/dev | grep -vE '^ *(veth|br-)'
env | grep -E '^(KIT_VALUE|PATH|LANG|USER)=' | sort
test -w /; echo root is writable: $?
"""


async def ids(backend: SandboxBackend) -> set[str]:
    """Ids of all sandboxes that the backend knows."""
    return {info.id for info in await backend.list()}


@time_limited
@pytest.mark.asyncio
class LifecycleProbes:
    many: ClassVar[int] = 200
    """Sandboxes that `test_many_sandboxes_leave_nothing` opens and closes."""
    concurrency: ClassVar[int] = 20
    """How many of these are open at the same time."""

    async def test_it_keeps_the_protocols(self, backend: SandboxBackend, box: Sandbox) -> None:
        assert isinstance(unguarded(backend), SandboxBackend), "not a `SandboxBackend`"
        assert isinstance(unguarded(box), Sandbox), "`open` did not give a `Sandbox`"
        session = unguarded(await box.session())
        assert isinstance(session, Session), "`session` did not give a `Session`"
        assert box.capabilities == backend.capabilities, "sandbox and backend declare differently"

    async def test_a_fresh_workspace_is_empty_and_writable(self, box: Sandbox) -> None:
        result = await box.exec("ls -A; touch file; ls -A")
        expect(result, stdout=b"file\n")
        assert box.workdir.startswith("/")

    async def test_sandboxes_are_independent(self, backend: SandboxBackend, box: Sandbox) -> None:
        async with backend.open(SandboxSpec()) as other:
            assert other.id != box.id
            await box.write("file", b"of one")
            with pytest.raises(FileNotFoundError):
                await other.read("file")

    async def test_the_specs_env_is_everywhere(self, backend: SandboxBackend) -> None:
        async with backend.open(SandboxSpec(env={"KIT_VALUE": "a 'b'"})) as sandbox:
            expect(await sandbox.exec('echo "$KIT_VALUE"'), stdout=b"a 'b'\n")
            session = await sandbox.session()
            expect(await session.run('echo "$KIT_VALUE"'), stdout=b"a 'b'\n")

    async def test_a_closed_sandbox_raises(self, backend: SandboxBackend) -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            await sandbox.close()
            await sandbox.close()
            assert session.closed, "`close` left a session open"
            with pytest.raises(SandboxError):
                await sandbox.exec("true")
            with pytest.raises(SandboxError):
                await sandbox.session()
            with pytest.raises(SandboxError):
                await sandbox.read("file")
            with pytest.raises(SandboxError):
                await sandbox.write("file", b"")
            with pytest.raises(SandboxError):
                await session.run("true")
        assert sandbox.id not in await ids(backend), "`list` still names it after `close`"

    async def test_closing_ends_a_running_command(self, backend: SandboxBackend) -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            running = [
                asyncio.ensure_future(sandbox.exec(beat("one"))),
                asyncio.ensure_future(session.run(beat("two"))),
            ]
            await started(sandbox, "one")
            await started(sandbox, "two")
        results = await asyncio.gather(*running, return_exceptions=True)
        for result in results:
            failed = isinstance(result, SandboxError) or result.exit_code != 0  # type: ignore[union-attr]
            assert failed, f"a command that `close` ended gave {result!r}"

    async def test_no_process_outlives_its_sandbox(self, backend: SandboxBackend) -> None:
        word = f"86400.{secrets.randbelow(10**9)}"
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            await sandbox.exec(f"sleep {word} & (sleep {word} &); nohup sleep {word} >/dev/null &")
            await session.run(f"(sleep {word} &); sleep {word} &")
            if not host_processes(word):
                pytest.skip("this host can't see the processes of the sandbox")
        no_process_left(word)

    @pytest.mark.parametrize("how", ["error", "cancel"])
    async def test_however_it_is_left_it_is_removed(
        self, backend: SandboxBackend, how: str
    ) -> None:
        seen: list[str] = []
        entered = asyncio.Event()

        async def work() -> None:
            async with backend.open(SandboxSpec()) as sandbox:
                seen.append(sandbox.id)
                entered.set()
                if how == "error":
                    raise ValueError("a bug of the caller")
                await sandbox.exec("sleep 60")

        task = asyncio.ensure_future(work())
        opening = asyncio.ensure_future(entered.wait())
        await asyncio.wait([task, opening], return_when=asyncio.FIRST_COMPLETED)
        opening.cancel()
        if how == "cancel":
            await asyncio.sleep(0.1)
            task.cancel()
        with pytest.raises(ValueError if how == "error" else asyncio.CancelledError):
            await task
        assert seen[0] not in await ids(backend), "`list` still names it after `close`"

    async def test_many_sandboxes_leave_nothing(self, backend: SandboxBackend) -> None:
        word = f"86400.{secrets.randbelow(10**9)}"
        slots = asyncio.Semaphore(self.concurrency)
        opened: set[str] = set()

        async def one(number: int) -> None:
            async with slots, backend.open(SandboxSpec()) as sandbox:
                opened.add(sandbox.id)
                await sandbox.write("file", b"data")
                await sandbox.exec(f"sleep {word} &")
                session = await sandbox.session()
                result = await session.run(f"sleep {word} & echo {number}")
                expect(result, stdout=b"%d\n" % number)

        await one(0)  # creates what is made once and kept
        before = descriptors()
        await asyncio.gather(*(one(number) for number in range(1, self.many)))
        no_process_left(word)
        listed = opened & await ids(backend)  # others may use the same engine
        assert not listed, f"`list` still names closed sandboxes: {sorted(listed)}"
        left = descriptors() - before
        assert len(left) <= 2, f"descriptors left open: {sorted(left)}"

    async def test_it_is_listed_with_its_tags_while_it_is_open(
        self, backend: SandboxBackend
    ) -> None:
        spec = SandboxSpec(tags={"run": "kit", "episode": "0-demo-0"})
        async with backend.open(spec) as sandbox:
            found = [info for info in await backend.list() if info.id == sandbox.id]
            assert len(found) == 1, f"`list` names an open sandbox {len(found)} times"
            (info,) = found
            assert info.backend == backend.name
            assert info.owner_alive
            assert info.age_s >= 0
            assert spec.tags.items() <= info.tags.items()
        assert sandbox.id not in await ids(backend), "`list` still names it after `close`"

    async def test_prune_spares_what_is_in_use(self, backend: SandboxBackend) -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            removed = await backend.prune()
            assert sandbox.id not in {info.id for info in removed}
            expect(await session.run("echo alive"), stdout=b"alive\n")

    async def test_end_processes_ends_all_and_leaves_the_sandbox(self, box: Sandbox) -> None:
        session = await box.session()
        await session.run(f"(({beat('one')}) &)")
        await box.exec(f"(({beat('two')}) >/dev/null 2>&1 &)")
        running = asyncio.ensure_future(box.exec(beat("three")))
        for name in ("one", "two", "three"):
            await started(box, name)
        killed = await box.end_processes()
        assert killed >= 4, f"`end_processes` reports {killed} killed, expected at least 4"
        await stopped(box, "one", "two", "three", after="`end_processes`")
        expect(await running, exit_code=137)
        assert session.closed, "`end_processes` left a session open"
        killed = await box.end_processes()
        assert killed == 0, f"a second `end_processes` reports {killed} killed"
        expect(await box.exec("echo alive"), stdout=b"alive\n")

    async def test_a_fork_is_independent_or_refused(
        self, backend: SandboxBackend, box: Sandbox
    ) -> None:
        if backend.capabilities.fork == "replay":
            with pytest.raises(UnsupportedError):
                await box.fork()
            return
        await box.exec(
            "mkdir -p sub; echo both > sub/file; chmod 750 sub/file; ln -s sub/file link;"
            'ln -s "$PWD/sub/file" absolute; mkfifo pipe'
        )
        twin = await box.fork()
        try:
            assert twin.id != box.id
            assert twin.id in await ids(backend)
            both = await twin.exec("cat sub/file link absolute; ls -l sub/file")
            assert both.stdout.startswith(b"both\nboth\nboth\n-rwxr-x---")
            await twin.exec("echo twin > sub/file; echo more > absolute; touch twin")
            await box.exec("touch first")
            assert await box.read("sub/file") == b"both\n"
            assert b"twin" not in (await box.exec("ls")).stdout
            assert b"first" not in (await twin.exec("ls")).stdout
            await box.close()
            assert await twin.read("sub/file") == b"more\n"
        finally:
            await twin.close()
        assert twin.id not in await ids(backend), "`list` still names a closed fork"

    async def test_a_fork_is_as_isolated_and_limited_as_its_original(
        self, backend: SandboxBackend
    ) -> None:
        if backend.capabilities.fork == "replay":
            return
        spec = SandboxSpec(env={"KIT_VALUE": "a 'b'"}, memory_mb=256, cpus=1.0)
        async with backend.open(spec) as sandbox:
            twin = await sandbox.fork()
            second = await twin.fork()
            original = await sandbox.exec(_STANDING)
            assert b"KIT_VALUE=a 'b'\n" in original.stdout
            for copy in (twin, second):
                expect(await copy.exec(_STANDING), stdout=original.stdout)
                await copy.close()

    async def test_a_snapshot_is_restored_or_refused(
        self, backend: SandboxBackend, box: Sandbox
    ) -> None:
        if not backend.capabilities.snapshot:
            with pytest.raises(UnsupportedError):
                await box.snapshot()
            return
        await box.exec("mkdir sub; echo then > sub/file")
        ref = await box.snapshot()
        await box.exec("echo now > sub/file; touch later")
        for _ in range(2):  # a snapshot is not used up
            async with backend.restore(ref, SandboxSpec()) as sandbox:
                expect(await sandbox.exec("cat sub/file; ls"), stdout=b"then\nsub\n")
                await sandbox.exec("echo changed > sub/file")
        assert await box.read("sub/file") == b"now\n"

    async def test_folders_of_any_depth_and_mode_are_copied_and_removed(
        self, backend: SandboxBackend
    ) -> None:
        """Deeper than Python may recurse, and closed to everybody."""
        deep = "i=0; while [ $i -lt 1100 ]; do mkdir d && cd -P d || exit; i=$((i + 1)); done"
        async with backend.open(SandboxSpec()) as sandbox:
            closed = "mkdir -p closed/inner; echo kept > closed/file; chmod 000 closed/file closed"
            expect(await sandbox.exec(f"{closed}; {deep}"), exit_code=0)
            if backend.capabilities.fork != "replay":
                twin = await sandbox.fork()
                says = await twin.exec("ls -ld closed; chmod 700 closed; cd closed && ls -l file")
                assert says.stdout.startswith(b"d---------"), says
                assert b"\n----------" in says.stdout, says
                expect(await twin.exec(deep.replace("mkdir d", ":")), exit_code=0)
                await twin.close()
        assert sandbox.id not in await ids(backend), "`list` still names it after `close`"

    async def test_an_unknown_snapshot_is_an_error(self, backend: SandboxBackend) -> None:
        with pytest.raises(SandboxError):
            async with backend.restore("no-such-snapshot", SandboxSpec()):
                pass

    async def test_without_images_a_spec_that_names_one_is_refused(
        self, backend: SandboxBackend
    ) -> None:
        if backend.capabilities.images:
            return  # a backend with images has its own tests that it starts from them
        with pytest.raises(UnsupportedError):
            async with backend.open(SandboxSpec(image="python:3.12-slim")):
                pass

    async def test_aclose_may_be_called_again(self, backend: SandboxBackend) -> None:
        await backend.aclose()
        await backend.aclose()

    async def test_other_programs_of_the_host_inherit_nothing(
        self, backend: SandboxBackend
    ) -> None:
        before = descriptors_passed_on()
        async with backend.open(SandboxSpec()) as sandbox:
            await (await sandbox.session()).run("true")
            inherited = descriptors_passed_on()
            assert inherited == before, f"other programs inherit the descriptors {inherited}"
