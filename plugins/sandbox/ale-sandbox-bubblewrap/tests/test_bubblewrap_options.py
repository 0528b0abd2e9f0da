"""Effects of the options, and errors where the sandbox is not usable."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from ale.errors import InputError, NotUsableError
from ale.plugin import BuildContext
from ale.protocols import SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_bubblewrap import base, capabilities, facts
from ale_sandbox_bubblewrap.cgroups import Cgroups
from ale_sandbox_bubblewrap.options import BubblewrapOptions
from ale_sandbox_bubblewrap.plugin import build, probe

Build = Callable[..., SandboxBackend]
CONNECT = "import socket; socket.create_connection(('127.0.0.1', {port}), 10); print('reached')"


@pytest.mark.parametrize(
    ("option", "task", "reached"),
    [
        (None, True, True),
        (None, None, False),
        (True, None, True),
        (True, False, False),
        (False, True, False),
    ],
)
async def test_the_network_is_shared_only_if_requested_and_not_forbidden(
    shared: Build, option: bool | None, task: bool | None, reached: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = CONNECT.format(port=listener.getsockname()[1])
        async with shared(network=option).open(SandboxSpec(network=task)) as box:
            result = await box.exec(["python3", "-c", code])
    assert (result.stdout == b"reached\n") is reached


async def test_a_shared_network_resolves_names_as_the_host_does(shared: Build) -> None:
    async with shared(network=True).open(SandboxSpec()) as box:
        assert await box.read("/etc/resolv.conf") == Path("/etc/resolv.conf").read_bytes()
        twin = await box.fork()
        assert await twin.read("/etc/resolv.conf") == Path("/etc/resolv.conf").read_bytes()
        await twin.close()


async def test_paths_on_the_allow_list_are_there_to_read(make: Build, tmp_path: Path) -> None:
    shown, other = tmp_path / "shown", tmp_path / "other"
    for folder in (shown, other):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)  # no less: one may be /tmp
    async with make(allowlist_paths=(shown,)).open(SandboxSpec()) as box:
        assert await box.read(f"{shown}/file") == b"shown"
        result = await box.exec(f"echo x > {shown}/file; echo x > {shown}/new; ls {other}")
        assert result.stderr.count(b"Read-only") == 2
        assert b"No such file" in result.stderr
        await box.exec("echo x > written")
        twin = await box.fork()
        assert await twin.read(f"{shown}/file") == b"shown"
        await twin.close()
    assert (shown / "file").read_text() == "shown"


@pytest.mark.parametrize("path", ["/", "/usr/../etc"])
def test_the_whole_host_is_not_shared(path: str) -> None:
    with pytest.raises(ValueError, match="allowlist_paths"):
        BubblewrapOptions(allowlist_paths=(Path(path),))


def test_sockets_pipes_and_the_kernel_are_not_shared(make: Build, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    listener.bind(str(tmp_path / "deep" / "er" / "s"))
    (tmp_path / "link").symlink_to("/run")
    for path, why in (
        ("/run", "sockets of services"),
        ("/proc/self", "the kernel's own"),
        ("/dev/null", "the kernel's own"),
        (tmp_path / "link", "sockets of services"),
        (tmp_path / "pipe", "pipe is a socket, a named pipe or a device"),
        (tmp_path / "deep", "er/s is a socket, a named pipe or a device"),
        (tmp_path / "missing", "not there"),
    ):
        with pytest.raises(InputError, match=why):
            make(allowlist_paths=(Path(path),))
    listener.close()


async def test_the_system_is_read_only_unless_a_task_needs_it(shared: Build) -> None:
    async with shared(writable_system=BubblewrapOptions().writable_system).open(
        SandboxSpec()
    ) as box:
        result = await box.exec("rm /usr/bin/env; echo x > /usr/local/bin/x; echo ok > /etc/mine")
        assert result.stderr.count(b"Read-only") == 2
        assert await box.read("/etc/mine") == b"ok\n"
        twin = await box.fork()
        assert (await twin.exec("cat /etc/mine; rm /usr/bin/env")).exit_code != 0
        await twin.close()


async def test_ignore_image_ignores_the_image(shared: Build) -> None:
    async with shared(ignore_image=True).open(SandboxSpec(image="python:3.12-slim")) as box:
        assert (await box.exec("echo ran")).stdout == b"ran\n"


def test_doctor_reports_limits_and_notes(found: facts.Facts) -> None:
    output = probe()
    assert output.usable
    declared = capabilities.capabilities_of(found, BubblewrapOptions())
    for name, how in declared.limits.items():
        words = {"enforced": "limits enforced", "best-effort": "best effort", "none": "no limit on"}
        assert name in output.facts[words[how]].split(", ")
    assert output.facts["isolation"] == "namespace"
    assert sum(key.startswith("note (") for key in output.facts) == len(declared.notes)


def test_a_limit_is_enforced_only_where_something_holds_it_for_the_whole(
    found: facts.Facts,
) -> None:
    poor = evolve(found, cgroups=Cgroups({}, 1), counts_processes=False, overlay="no such device")
    declared = capabilities.capabilities_of(poor, BubblewrapOptions())
    assert declared.limits == {
        "cpu": "best-effort",
        "memory": "best-effort",
        "processes": "best-effort",
        "file_size": "enforced",
        "disk": "none",
    }
    assert (declared.fork, declared.notes[-1]) == ("copy", capabilities.NO_LAYERS)
    assert capabilities.describe(poor)["control groups"] == "none"


def test_without_bubblewrap_the_package_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    output = probe()
    assert not output.usable
    assert output.reason == "there is no bwrap on PATH"
    assert output.remedy == "sudo apt-get install bubblewrap"
    with pytest.raises(NotUsableError, match="there is no bwrap"):
        build(BubblewrapOptions(), BuildContext())


def test_a_shell_that_can_not_ignore_the_end_of_children_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It resets the signal, as dash does."""
    (tmp_path / "bash").write_text("#!/bin/sh\nexec cat /proc/self/status\n")
    (tmp_path / "bash").chmod(0o755)
    monkeypatch.setattr(base, "PATH", f"{tmp_path}:{base.PATH}")
    output = probe()
    assert not output.usable
    assert output.reason == f"{tmp_path}/bash can't ignore SIGCHLD for what it starts"
    assert output.remedy == "sudo apt-get install bash"


def test_the_error_of_bubblewrap_is_reported(
    found: facts.Facts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program with the output of bubblewrap where user namespaces are disabled."""
    (tmp_path / "bwrap").write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit\n'
        "echo 'bwrap: No permissions to create new namespace' >&2; exit 1\n"
    )
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    output = probe()
    assert not output.usable
    assert output.reason == "bwrap: No permissions to create new namespace"


def test_the_sysctl_that_disables_namespaces_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "switch").write_text("0\n")
    monkeypatch.setattr(
        facts, "_SYSCTLS", ((str(tmp_path / "switch"), "0", "sysctl -w some.switch=1"),)
    )
    assert facts._remedy() == "sudo sysctl -w some.switch=1"


def test_a_root_that_does_not_exist_is_an_error_in_the_config(tmp_path: Path) -> None:
    missing = tmp_path / "not here"
    with pytest.raises(InputError) as caught:
        build(BubblewrapOptions(root=missing), BuildContext())
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == ("sandbox.root", f"no such folder: {missing}")
    assert problem.hint == f"mkdir -p '{missing}'"
