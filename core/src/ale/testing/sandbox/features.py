"""Probes of the optional features; each runs where the backend declares it."""

import pytest

from ale.errors import SandboxError
from ale.protocols import (
    FEATURES,
    ChangesNetwork,
    HasAgentUser,
    HasServiceContainers,
    ListsSessions,
    MakesScratchFolders,
    OpensSiblings,
    Sandbox,
    SandboxBackend,
    SwitchesUser,
)
from ale.testing.sandbox._guard import time_limited, unguarded
from ale.types import SandboxSpec

_NOBODY = "65534"


async def _says(sandbox: Sandbox, command: str) -> str:
    result = await sandbox.exec(command)
    assert result.exit_code == 0, result
    return result.stdout.decode().strip()


async def _interfaces(sandbox: Sandbox) -> list[str]:
    return (await _says(sandbox, "ls /sys/class/net")).split()


@time_limited
@pytest.mark.asyncio
class FeatureProbes:
    async def test_each_declared_feature_has_its_methods(self, box: Sandbox) -> None:
        features = box.capabilities.features
        assert [name for name in features if not isinstance(box, FEATURES[name])] == []

    async def test_open_sessions_are_listed_oldest_first(self, box: Sandbox) -> None:
        if "list-sessions" not in box.capabilities.features:
            return
        assert isinstance(box, ListsSessions)
        first, second = unguarded(await box.session()), unguarded(await box.session())
        assert list(box.sessions) == [first, second]
        await first.close()
        assert list(box.sessions) == [second]

    async def test_a_switched_user_runs_commands_and_owns_files(self, box: Sandbox) -> None:
        if "switch-user" not in box.capabilities.features:
            return
        assert isinstance(box, SwitchesUser)
        own = await _says(box, "id -u")
        await box.switch_user(_NOBODY)
        session = await box.session()
        assert (await session.run("id -u")).stdout.decode().strip() == _NOBODY
        await session.close()
        await box.write("file", b"")
        assert (await _says(box, "id -u; ls -n file")).split()[0] == _NOBODY
        assert (await _says(box, "ls -n file")).split()[2] == _NOBODY
        for user in ("4321", None):  # a number that no file of the sandbox knows
            await box.switch_user("4321" if user is None else None)
            said = (await box.exec("id -u; id -g; id -G", user=user)).stdout.split()
            assert said == [b"4321"] * 3, "an unknown number has another group, such as root's"
        await box.switch_user(None)
        assert await _says(box, "id -u") == own
        with pytest.raises(SandboxError):
            await box.switch_user("no-user-of-this-name")

    async def test_the_agents_user_has_the_commands_after_the_set_up(
        self, backend: SandboxBackend
    ) -> None:
        if "agent-user" not in backend.capabilities.features:
            return
        async with backend.open(SandboxSpec(agent_user=_NOBODY)) as sandbox:
            assert isinstance(sandbox, HasAgentUser)
            own = await _says(sandbox, "id -u")
            assert own != _NOBODY
            for _ in range(2):
                await sandbox.agent_started(_NOBODY)
                assert await _says(sandbox, "id -u") == _NOBODY
            if sandbox.capabilities.fork != "replay":
                fork = await sandbox.fork()
                assert await _says(fork, "id -u") == _NOBODY
                await fork.close()
            await sandbox.agent_started(None)
            assert await _says(sandbox, "id -u") == own
            if sandbox.capabilities.fork != "replay":
                fork = await sandbox.fork()
                assert await _says(fork, "id -u") == own, "a fork has another user than it has now"
                await fork.close()

    async def test_the_network_is_disconnected_and_connected_again(
        self, backend: SandboxBackend
    ) -> None:
        if "change-network" not in backend.capabilities.features:
            return
        async with backend.open(SandboxSpec(network=True)) as sandbox:
            assert isinstance(sandbox, ChangesNetwork)
            assert await _interfaces(sandbox) != ["lo"]
            assert await sandbox.set_network(False) == {}
            assert await _interfaces(sandbox) == ["lo"]
            await self._copies_have_no_network(backend, sandbox)
            assert await sandbox.set_network(True) == {}
            assert await _interfaces(sandbox) != ["lo"]
            if sandbox.capabilities.fork != "replay":
                fork = await sandbox.fork()
                assert await _interfaces(fork) != ["lo"], "a fork lacks the network of its original"
                await fork.close()

    async def _copies_have_no_network(self, backend: SandboxBackend, sandbox: Sandbox) -> None:
        """Nothing that comes from a sandbox gets back the network that was taken from it."""
        if sandbox.capabilities.fork != "replay":
            fork = await sandbox.fork()
            assert await _interfaces(fork) == ["lo"], "a fork has a network that was taken"
            await fork.close()
        if sandbox.capabilities.snapshot:
            async with backend.restore(await sandbox.snapshot(), SandboxSpec()) as restored:
                assert await _interfaces(restored) == ["lo"], "a restored one has a network"
        if isinstance(sandbox, OpensSiblings):
            async with sandbox.open_sibling(SandboxSpec()) as sibling:
                assert await _interfaces(sibling) == ["lo"], "a sibling has a network"

    async def test_a_sibling_is_a_sandbox_of_its_own(self, box: Sandbox) -> None:
        if "open-sibling" not in box.capabilities.features:
            return
        assert isinstance(box, OpensSiblings)
        await box.write("file", b"")
        async with box.open_sibling(SandboxSpec(env={"KIT_VALUE": "b"})) as other:
            assert other.id != box.id
            assert await _says(other, "echo $KIT_VALUE; ls") == "b"
        with pytest.raises(SandboxError):
            await other.exec("true")

    async def test_a_scratch_folder_is_new_closed_to_others_and_removed(self, box: Sandbox) -> None:
        if "scratch-folder" not in box.capabilities.features:
            return
        assert isinstance(box, MakesScratchFolders)
        async with box.scratch_folder("kit-folder") as folder:
            assert folder == await _says(box, 'echo "${TMPDIR:-/tmp}/kit-folder"')
            assert (await _says(box, f"ls -ldn {folder}; ls -A {folder}")).startswith("drwx------")
            assert await _says(box, f"ls -A {folder}; mkdir -p {folder}/a/b") == ""
            assert await _says(box, f"chmod 500 {folder}/a; ls -A {folder}") == "a"
            with pytest.raises(SandboxError):
                async with box.scratch_folder("kit-folder"):
                    raise AssertionError("there is one of that name")
        assert (await box.exec(f"test -e {folder}")).exit_code == 1
        await box.close()
        with pytest.raises(SandboxError):
            async with box.scratch_folder("kit-folder"):
                raise AssertionError("the sandbox is gone")

    async def test_a_service_that_the_task_lacks_is_refused(self, box: Sandbox) -> None:
        if "service-containers" not in box.capabilities.features:
            return
        assert isinstance(box, HasServiceContainers)
        with pytest.raises(SandboxError):
            await box.service("no-such-service")
