# ruff: noqa: D102
"""What a network does to calls costs time, and nothing else: no command is lost or run twice."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from ale.errors import SandboxDamagedError, SandboxError
from ale.protocols import SandboxBackend
from ale.types import SandboxSpec
from ale_sandboxing.remote import jobs
from ale_sandboxing.remote.testing.services import FakeService

Make = Callable[..., SandboxBackend]


async def none_left(backend: SandboxBackend) -> None:
    """Wait for removals, and check that the service holds nothing."""
    await backend.aclose()
    assert list(await backend.list()) == []


class FaultProbes:
    """Tests over the fixtures `service`, `make` (options of a backend) and `backend`."""

    image: str | None = "python:0"
    """What the service refuses; None where tasks can't name an image."""

    async def test_every_command_runs_just_once_while_four_calls_of_ten_fail(
        self, service: FakeService, backend: SandboxBackend
    ) -> None:
        service.go_wrong(share=0.4)
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            for number in range(5):
                result = await sandbox.exec(f"echo {number} >> one; echo {number}; exit {number}")
                assert (result.exit_code, result.stdout) == (number, b"%d\n" % number)
                result = await session.run(f"echo {number} >> two; echo {number}; (exit {number})")
                assert (result.exit_code, result.stdout) == (number, b"%d\n" % number)
            lines = b"0\n1\n2\n3\n4\n"
            assert await sandbox.read("one") == lines
            assert await sandbox.read("two") == lines
            await sandbox.write("data", bytes(range(256)) * 1000)
            assert await sandbox.read("data") == bytes(range(256)) * 1000
        await none_left(backend)
        assert len(service.calls("exec")) > 15

    async def test_a_sandbox_whose_shell_was_removed_says_that_it_was_damaged(
        self, backend: SandboxBackend
    ) -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            await sandbox.write("file", b"kept")
            await sandbox.exec("rm /bin")
            with pytest.raises(SandboxDamagedError, match="runs no command any more"):
                await sandbox.exec("exit 0")
            with pytest.raises(SandboxDamagedError):
                await sandbox.session()

    async def test_a_connection_that_is_lost_during_a_command_is_made_again(
        self, service: FakeService, backend: SandboxBackend
    ) -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            service.go_wrong(share=0.7, never=["read", "write", "get"])
            result = await sandbox.exec("echo begun >> log; sleep 1; echo ended >> log; exit 9")
            service.go_wrong()
            assert result.exit_code == 9
            assert await sandbox.read("log") == b"begun\nended\n"

    async def test_a_command_may_take_longer_than_a_call(
        self, service: FakeService, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A call waits for 40 s; here for 0.4 s."""
        assert "patience=40" in jobs._SCRIPT
        monkeypatch.setattr(jobs, "_SCRIPT", jobs._SCRIPT.replace("patience=40", "patience=0.4"))
        async with make().open(SandboxSpec()) as sandbox:
            before = len(service.calls("exec"))
            result = await sandbox.exec("echo x >> log; sleep 2; trap 'exit 3' INT; kill -INT $$")
            assert (result.exit_code, await sandbox.read("log")) == (3, b"x\n")
            assert len(service.calls("exec")) - before >= 4

    async def test_what_was_never_started_is_started_under_another_name(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first call made the job's folder, and was lost before it started the command."""
        monkeypatch.setattr(jobs, "_SCRIPT", jobs._SCRIPT.replace("patience=40", "patience=0.4"))
        async with make().open(SandboxSpec()) as sandbox:
            names = iter(["lost-job", "second-job", "third-job", "fourth-job"])
            root = sandbox._jobs.path("")  # type: ignore[attr-defined]
            await sandbox.exec(["mkdir", f"{root}/lost-job"])
            monkeypatch.setattr(jobs, "new_token", lambda: next(names))
            result = await sandbox.exec("echo x >> log; cat log")
            assert result.stdout == b"x\n"
            assert next(names) == "third-job"

    async def test_a_service_that_never_answers_breaks_the_sandbox_and_says_so(
        self, service: FakeService, make: Make
    ) -> None:
        backend = make(retry_s=0.5)
        async with backend.open(SandboxSpec()) as sandbox:
            service.go_wrong(share=1.0)
            with pytest.raises(SandboxError, match=rf"{backend.name}: run in sandbox sb-\w+: "):
                await sandbox.exec("true")
            service.go_wrong()

    async def test_a_slow_start_is_waited_for(
        self, service: FakeService, backend: SandboxBackend
    ) -> None:
        service.go_wrong(starts_in_s=1.0)
        started = time.monotonic()
        async with backend.open(SandboxSpec()) as sandbox:
            assert time.monotonic() - started >= 1.0
            assert (await sandbox.exec("echo here")).stdout == b"here\n"

    async def test_a_sandbox_that_does_not_start_in_time_is_removed(
        self, service: FakeService, make: Make
    ) -> None:
        service.go_wrong(starts_in_s=60)
        backend = make(start_timeout_s=0.5)
        with pytest.raises(SandboxError, match=r"it does not run after 0\.5 s"):
            async with backend.open(SandboxSpec()):
                pass
        await none_left(backend)

    @pytest.mark.parametrize("after_s", [0.0, 0.05, 0.4])
    async def test_opening_that_is_cancelled_leaves_nothing(
        self, service: FakeService, backend: SandboxBackend, after_s: float
    ) -> None:
        service.go_wrong(starts_in_s=60)

        async def work() -> None:
            async with backend.open(SandboxSpec()):
                pass

        opening = asyncio.ensure_future(work())
        await asyncio.sleep(after_s)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await none_left(backend)

    async def test_a_lost_answer_to_a_creation_leaves_no_second_sandbox(
        self, service: FakeService, backend: SandboxBackend
    ) -> None:
        service.go_wrong(share=0.6, never=["exec", "get", "list", "delete", "write"])
        async with contextlib.AsyncExitStack() as stack:
            opening = (stack.enter_async_context(backend.open(SandboxSpec())) for _ in range(8))
            await asyncio.gather(*opening)
            assert len(await backend.list()) == 8
            assert len(service.calls("create")) > 8

    async def test_a_refusal_is_said_at_once(
        self, service: FakeService, backend: SandboxBackend
    ) -> None:
        service.go_wrong(refuse="image python:0 is unknown")
        with pytest.raises(SandboxError, match=r"create a sandbox: .*image python:0 is unknown"):
            async with backend.open(SandboxSpec(image=self.image)):
                pass
        service.go_wrong()
        await none_left(backend)

    async def test_a_sandbox_that_the_service_has_ended_raises(self, make: Make) -> None:
        backend = make(lifetime_s=1, retry_s=1)
        async with backend.open(SandboxSpec()) as sandbox:
            await asyncio.sleep(1.2)
            with pytest.raises(SandboxError):
                await sandbox.exec("true")

    async def test_a_sandbox_that_is_gone_can_be_closed(self, backend: SandboxBackend) -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            await backend._client.delete(sandbox.id)  # type: ignore[attr-defined]
        await none_left(backend)

    async def test_the_quota_is_waited_for_and_learnt(
        self, service: FakeService, backend: SandboxBackend
    ) -> None:
        await self.check_quota_of_two(service, backend, quota=2)

    async def check_quota_of_two(
        self, service: FakeService, backend: SandboxBackend, **faults: Any
    ) -> None:
        """Open eight sandboxes while the service holds two."""
        service.go_wrong(**faults)
        held, most = 0, 0

        async def one(number: int) -> bytes:
            nonlocal held, most
            async with backend.open(SandboxSpec()) as sandbox:
                held += 1
                most = max(most, held)
                result = await sandbox.exec(f"sleep 0.2; echo {number}")
                held -= 1
                return result.stdout

        outputs = await asyncio.gather(*map(one, range(8)))
        assert outputs == [b"%d\n" % number for number in range(8)]
        assert most == 2
        # Six are refused at first; then one at a time asks, when another has ended.
        assert len(service.calls("over quota")) <= 12
        await none_left(backend)

    async def test_a_quota_that_others_use_is_asked_for_again(
        self, service: FakeService, backend: SandboxBackend
    ) -> None:
        service.go_wrong(quota=0)

        async def one() -> bytes:
            async with backend.open(SandboxSpec()) as sandbox:
                return (await sandbox.exec("echo done")).stdout

        opening = asyncio.ensure_future(one())
        await asyncio.sleep(0.7)
        assert not opening.done()
        service.go_wrong()
        assert await opening == b"done\n"
