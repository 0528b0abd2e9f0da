"""The command line of bubblewrap, and the host paths that it binds. Standard library only."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ale_sandbox_bubblewrap import base, layers

# The first process of the sandbox: it sleeps for ever, and the kernel reaps the orphans that it
# inherits, because it ignores SIGCHLD. Nothing inside can signal it.
FIRST = f"{base.IGNORE_CHILDREN}; echo ready; exec {base.SLEEP} 2147483647 >/dev/null 2>&1"


class Plan(NamedTuple):
    """What is the same for every sandbox of a backend."""

    bwrap: str
    layout: layers.Layout
    bound: Sequence[str]
    """System folders that are bound read-only, and mounts below those that are not."""
    read_only: Sequence[str]
    """Other paths of the host to bind read-only."""
    programs: Mapping[str, str]
    """Path by name: sh, bash, sleep."""
    shm_bytes: int
    """Size of /dev/shm."""
    disk_bytes: int | None
    """Keep what is written in memory, at most so much."""
    bounded: bool
    """This kernel lets a sandbox have limits of its own on shared memory and inotify."""


def submounts(plan: Plan, *, network: bool) -> list[str]:
    """What is mounted below the root, layers apart, in an order in which it can be mounted."""
    resolver = ["/etc/resolv.conf"] if network else []
    return [*plan.bound, "/proc", "/dev", *resolver, *plan.read_only]


def arguments(plan: Plan, control: str, *, network: bool, info: int, rules: int) -> list[str]:
    """The command line of bubblewrap.

    Args:
        control: name of the folder of the host's pipes.
        info: descriptor for its JSON about itself.
        rules: descriptor of the seccomp filter.
    """
    line = [
        plan.bwrap,
        "--unshare-user",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-uts",
        "--unshare-cgroup-try",
        *("--uid", str(base.UID), "--gid", str(base.UID)),
        *("--hostname", "sandbox"),
        "--as-pid-1",
        "--die-with-parent",
        *("--info-fd", str(info), "--seccomp", str(rules)),
        "--clearenv",
        *("--bind", f"{layers.STAGING}/{layers.MERGED}", "/"),
    ]
    for path in plan.bound:
        line += ["--ro-bind", path, path]
    line += ["--proc", "/proc", "--dev", "/dev"]
    line += ["--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108
    line += ["--ro-bind", f"{layers.STAGING}/{layers.CONTROL}/{control}", base.CONTROL]
    line += ["--ro-bind", f"{layers.STAGING}/{layers.PROGRAMS}", base.PROGRAMS]
    line += ["--remount-ro", "/dev"]
    if network:
        line += ["--ro-bind", os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf"]
    else:
        line.append("--unshare-net")
    for path in plan.read_only:
        line += ["--ro-bind", path, path]
    shell = base.BASH if "bash" in plan.programs else base.SHELL
    return [*line, *("--chdir", "/"), shell, "-c", FIRST]
