"""Podman of a normal user. Where control groups are of version 1 it has none, and declares that."""

import json
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from attrs import frozen

from ale.errors import UnsupportedError
from ale.testing.sandbox import SandboxContract
from ale.testing.sandbox.files import FileProbes
from ale.testing.sandbox.isolation import IsolationProbes
from ale.testing.waiting import wait_for
from ale.types import SandboxSpec
from ale_sandboxing.container.sealed import SealedShells
from ale_sandboxing.container_testing.attacks import AttackProbes
from ale_sandboxing.container_testing.commands import CommandProbes
from ale_sandboxing.container_testing.distance import DistanceProbes
from ale_sandboxing.container_testing.elsewhere import INSIDE, PYTHON, imported, own_engine
from ale_sandboxing.container_testing.fixtures import OfItsKit, maker, shells_at
from ale_sandboxing.container_testing.images import BUSYBOX, provide
from ale_sandboxing.container_testing.tools import Make, opened, out

pytestmark = pytest.mark.engine

# What such a user may not reach is mounted where it may.
_SHOWN = """
place=$1; shift
while [ "$1" != -- ]; do
  mkdir -p "$place$1" && mount --bind "$1" "$place$1" || exit
  shift
done
shift; exec "$@"
"""


LISTED = {
    "task.toml": f'[environment]\ndocker_image = "{BUSYBOX}"\nworkdir = "/app"\n'
    'network_mode = "allowlist"\nallowed_hosts = ["allowed.invalid"]\n',
    "instruction.md": "Do it.\n",
    "solution/solve.sh": "#!/bin/sh\n"
    "for host in other.invalid allowed.invalid; do wget -O - http://$host/; done 2>&1 |\n"
    "  grep -o 'HTTP/1.[01] [0-9]*' | cut -d' ' -f2 >said\n",
    "tests/test.sh": "#!/bin/sh\nrm -f /logs/verifier/reward.txt\n"
    'case "$(echo $(cat said))" in "403 502") echo 1 ;; *) echo 0 ;; esac '
    ">/logs/verifier/reward.txt\n",
}
"""A task folder of Harbor: the proxy refuses one host and does not find the other."""


@frozen
class Rootless:
    """A user, and its engine."""

    name: str
    home: Path
    address: str

    def command(self, argv: Sequence[str], **env: str) -> list[str]:
        """An argument vector as this user."""
        return [
            *("setpriv", f"--reuid={self.name}", f"--regid={self.name}", "--init-groups"),
            *("env", "--ignore-environment", f"HOME={self.home}"),
            *("PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", f"TMPDIR={self.home}"),
            f"XDG_RUNTIME_DIR={self.home}/run",
            *(f"{name}={value}" for name, value in env.items()),
            *argv,
        ]

    def python(self, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """This interpreter, with what is imported here."""
        paths, place = imported(), f"{self.home}/shown"
        env = {
            "PYTHONPATH": os.pathsep.join(place + path for path in paths),
            # An interpreter may look for its own library where this user may not.
            "LD_LIBRARY_PATH": f"{place}{sys.base_prefix}/lib",
            "CONTAINER_HOST": self.address,
        }
        return subprocess.run(
            [
                *("unshare", "--mount", "sh", "-c", _SHOWN, "sh", place),
                *(*paths, sys.base_prefix, "--"),
                *self.command([f"{place}{sys.base_prefix}/{PYTHON}", *argv], **env),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )


@pytest.fixture(scope="module")
def rootless() -> Iterator[Rootless]:
    """It, with an image."""
    missing = [tool for tool in ("podman", "runc", "newuidmap") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(
            f"a user with an engine is made by root, with podman, runc and uidmap {missing}"
        )
    name = f"ale-{secrets.token_hex(4)}"
    # With ranges of further users, which Debian's tool assigns to each that it makes.
    subprocess.run(["useradd", "--home-dir", "/nonexistent", name], check=True)
    try:
        with own_engine("rootless", lambda folder, address: _service(name, folder, address)) as own:
            user = Rootless(name, Path(own.address.removeprefix("unix://")).parent, own.address)
            provide(["podman", "--remote", "--url", own.address], BUSYBOX)
            yield user
    finally:
        _remove(name)


@pytest.fixture
def neighbour() -> Iterator[Rootless]:
    """One whose engine is beside this process, as with a user who has logged in here."""
    if shutil.which("newuidmap") is None or os.geteuid() != 0:
        pytest.skip("a user with an engine is made by root, with uidmap")
    name = f"ale-{secrets.token_hex(4)}"
    folder = Path(tempfile.mkdtemp(prefix="ale-neighbour-", dir="/var/tmp"))
    subprocess.run(["useradd", "--home-dir", "/nonexistent", name], check=True)
    user = Rootless(name, folder, f"unix://{folder}/socket")
    argv = _service(name, folder, user.address)
    with (folder / "log").open("w") as log:
        engine = subprocess.Popen(argv, cwd="/", stderr=log)
    try:
        wait_for((folder / "socket").exists, lambda: (folder / "log").read_text(), 60)
        provide(["podman", "--remote", "--url", user.address], BUSYBOX)
        yield user
    finally:
        engine.kill()
        engine.wait()
        _remove(name)
        shutil.rmtree(folder, ignore_errors=True)


def _remove(name: str) -> None:
    """End what is left of a user's engine, which keeps the user, and remove the user."""
    subprocess.run(["pkill", "--signal", "KILL", "--uid", name], check=False)
    wait_for(lambda: not _processes(name), lambda: str(_processes(name)), 60)
    subprocess.run(["userdel", name], check=True)


def _processes(name: str) -> str:
    argv = ["pgrep", "--uid", name, "--runstates", "DRSIT"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _service(name: str, folder: Path, address: str) -> list[str]:
    (folder / "run").mkdir(mode=0o700)
    (folder / "containers.conf").write_text("[containers]\ndefault_ulimits = []\n")
    for path in (folder, folder / "run"):
        shutil.chown(path, name, name)
    podman = ["podman", "--runtime=runc", "--storage-driver=vfs", "--cgroup-manager=cgroupfs"]
    return Rootless(name, folder, address).command(
        [*podman, "system", "service", "--time=0", address],
        CONTAINERS_CONF=f"{folder}/containers.conf",
    )


@pytest.fixture(scope="module")
def shells(plugin: ModuleType, rootless: Rootless) -> Iterator[SealedShells]:
    yield from shells_at(plugin, rootless.address)


@pytest.fixture
def make(plugin: ModuleType, shells: SealedShells, rootless: Rootless, tmp_path: Path) -> Make:
    return maker(plugin, BUSYBOX, shells, tmp_path, rootless.address)


class TestFilesAndLimits(OfItsKit, FileProbes, IsolationProbes):
    """The user's processes write the files, and no group of control holds the containers."""


@pytest.mark.long
class TestDistance(DistanceProbes):
    """Commands are the streams' work, as with every other engine."""


@pytest.mark.long
class TestAll(OfItsKit, SandboxContract):
    many = 12
    concurrency = 6


@pytest.mark.long
class TestAttacks(AttackProbes, CommandProbes):
    pass


async def test_root_inside_is_the_user_outside(make: Make, rootless: Rootless) -> None:
    async with opened(make()) as box:
        (line, *_) = (await out(box, "cat /proc/self/uid_map")).splitlines()
        capabilities = box.capabilities
    assert line.split() == ["0", str(pwd.getpwnam(rootless.name).pw_uid), "1"]
    assert not [note for note in capabilities.notes if note.startswith("root:")]


async def test_a_copy_is_made_or_refused_just_as_declared(make: Make) -> None:
    async with opened(make()) as box:
        if box.capabilities.fork == "layer":
            await (await box.fork()).close()
        else:
            for copy in (box.fork, box.snapshot):
                with pytest.raises(UnsupportedError, match="can't pause"):
                    await copy()
            assert not box.capabilities.snapshot
            assert [note for note in box.capabilities.notes if "can't pause" in note]


async def test_an_allow_list_of_hosts_is_refused(make: Make) -> None:
    backend = make()
    with pytest.raises(UnsupportedError, match="engine's own machine"):
        async with backend.open(SandboxSpec(network=False, allowed_hosts=("example.com",))):
            pass
    await backend.aclose()


@pytest.mark.long
def test_an_allow_list_of_hosts_holds_where_engine_and_ale_are_of_one_user(
    neighbour: Rootless,
) -> None:
    """Its containers have no control group where those are of version 1."""
    tasks = neighbour.home / "tasks"
    for name, text in LISTED.items():
        path = tasks / "listed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    chosen = ["--agent", "oracle", "--sandbox", "podman", "--no-checks"]
    out = ["--out", f"{neighbour.home}/out"]
    done = neighbour.python(["-P", "-m", "ale", "eval", str(tasks), *chosen, *out])
    assert "success      1 of 1" in done.stdout + done.stderr, done.stdout + done.stderr


def test_ale_works_as_that_user(rootless: Rootless) -> None:
    options = json.dumps({"image": BUSYBOX, "host": rootless.address})
    done = rootless.python(["-c", INSIDE, "ale_sandbox_podman.plugin", options])
    assert done.stdout == "b'from inside' 3\n", done.stderr[-2000:]


def test_ale_doctor_tells_that_user_which_limits_hold(rootless: Rootless, make: Make) -> None:
    done = rootless.python(["-m", "ale", "doctor"])
    limits = make().capabilities.limits
    unlimited = ", ".join(sorted(name for name, level in limits.items() if level == "none"))
    said = done.stdout[done.stdout.index("podman") :]
    assert "mapped to another user" in said, done.stdout + done.stderr
    assert f"no limit on: {unlimited}" in " ".join(said.split()), said
