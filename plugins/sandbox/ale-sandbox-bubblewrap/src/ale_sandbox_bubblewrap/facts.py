"""Features of this machine that sandboxes need, found by trying."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from attrs import frozen

from ale.errors import PluginError
from ale_sandbox_bubblewrap import base
from ale_sandbox_bubblewrap.cgroups import Cgroups
from ale_sandbox_bubblewrap.client import python
from ale_sandboxing.process.seccomp import ARCHITECTURES

_TIMEOUT_S = 20.0
_TIMED_OUT = 124
_USER = 0x616C65
"""The user that sandboxes of a root host process become; no account has such a number."""
_COUNTED_SINCE = (5, 14)
"""Since then the kernel counts the processes of each user namespace by themselves."""
_SYSCTLS = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
)


@frozen(kw_only=True)
class Facts:
    """What was found. A field of type ``str | None`` says why not; None means that it works."""

    missing: str | None
    """Why no sandbox can be made."""
    remedy: str | None
    bwrap: str
    """Path."""
    version: str
    overlay: str | None
    """Layers on disk."""
    memory: str | None
    """Layers in memory."""
    bounds: str | None
    """Limits of a sandbox's own on shared memory and inotify."""
    uid: int
    """The user of the host that sandboxes have."""
    cgroups: Cgroups
    counts_processes: bool


def find(folder: Path | None = None) -> Facts:
    """Check and try; takes a tenth of a second.

    Args:
        folder: where the layers will be; default: the temporary folder.

    Raises:
        PluginError: the check itself failed, which says nothing about this machine.
    """
    uid = _uid()
    bwrap = shutil.which("bwrap") or ""
    missing, remedy = _missing_requirement(bwrap)
    version = ""
    tried: dict[str, str | None] = dict.fromkeys(("overlay", "memory", "bounds"), "not tried")
    if missing is None:
        version = _run([bwrap, "--version"]).stdout.decode().split()[-1]
        tried = _check_features(uid, folder)
        missing = tried["namespaces"] and f"user namespaces: {tried['namespaces']}"
        missing = missing or _bwrap_error(bwrap)
        remedy = missing and _remedy()
    return Facts(
        missing=missing,
        remedy=remedy,
        bwrap=bwrap,
        version=version,
        overlay=tried["overlay"],
        memory=tried["memory"],
        bounds=tried["bounds"],
        uid=uid,
        cgroups=Cgroups.find(),
        counts_processes=_release() >= _COUNTED_SINCE,
    )


def _missing_requirement(bwrap: str) -> tuple[str | None, str | None]:
    if not sys.platform.startswith("linux"):
        return f"needs Linux, found {sys.platform}", None
    if platform.machine() not in ARCHITECTURES:
        return f"has no filter of system calls for {platform.machine()}", None
    if not bwrap:
        return "there is no bwrap on PATH", "sudo apt-get install bubblewrap"
    shell = shutil.which("bash", path=base.PATH) or "/bin/sh"
    if not _can_ignore_children(shell):
        return f"{shell} can't ignore SIGCHLD for what it starts", "sudo apt-get install bash"
    return None, None


def _can_ignore_children(shell: str) -> bool:
    """Can it make the first process ignore SIGCHLD, so that the kernel reaps orphans?"""
    script = f"{base.IGNORE_CHILDREN}; exec cat /proc/self/status"
    ignored = _run([shell, "-c", script]).stdout.partition(b"SigIgn:")[2].split()[:1]
    return bool(ignored) and bool(int(ignored[0], 16) >> signal.SIGCHLD - 1 & 1)


def _release() -> tuple[int, ...]:
    numbers = platform.release().split("-")[0].split(".")
    return tuple(int(number) for number in numbers[:2] if number.isdigit())


def _uid() -> int:
    """This user, or for root one that owns nothing. In a container few numbers may be mapped."""
    uid = os.geteuid()
    if uid:
        return uid
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= _USER < first + count:
            return _USER
    return 65534


def _run(line: list[str]) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(line, capture_output=True, check=False, timeout=_TIMEOUT_S, env={})
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(line, _TIMED_OUT, b"", b"it timed out")


def _check_features(uid: int, folder: Path | None) -> dict[str, str | None]:
    with tempfile.TemporaryDirectory(prefix="ale-trial-", dir=folder) as name:
        os.chown(name, uid, uid)
        call = f"main({uid}, {name!r})"
        done = _run(python(f"from ale_sandbox_bubblewrap.feature_check import main; {call}"))
    why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if done.returncode < 0 or done.returncode == _TIMED_OUT:
        # A filter of system calls around this machine may kill instead of refusing.
        ended = why or f"killed by {signal.Signals(-done.returncode).name}"
        return dict.fromkeys(("namespaces", "overlay", "memory", "bounds"), ended)
    if done.returncode:
        raise PluginError(f"the feature check of ale-sandbox-bubblewrap failed: {why}")
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


def _bwrap_error(bwrap: str) -> str | None:
    """Why bubblewrap can't make a sandbox here; None where it can."""
    walls = ["--unshare-all", "--die-with-parent", "--proc", "/proc"]
    # No more of the host than a sandbox has: elsewhere mounts come and go.
    for name in base.SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            walls += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            walls += ["--ro-bind", str(path), str(path)]
    # What versions before 0.5 do not know.
    walls += ["--dev", "/dev", "--clearenv", "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108
    done = _run([bwrap, *walls, "--", "/bin/sh", "-c", "exit 42"])
    if done.returncode == 42:
        return None
    return done.stderr.decode(errors="replace").strip() or f"bwrap ends with {done.returncode}"


def _remedy() -> str | None:
    for name, value, command in _SYSCTLS:
        path = Path("/proc/sys", name)
        if path.exists() and path.read_text().strip() == value:
            return f"sudo {command}"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "start the container around this with --privileged"
    return None
