"""How a supervisor creates its sandbox and joins it. Standard library only."""

import json
import os
import resource
import select
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ale_sandbox_bubblewrap import kernel, launch, layers, seccomp, wire

_TIMEOUT_S = 30.0
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores and a command must not."""


class CreationError(Exception):
    """The sandbox could not be created; the text says why."""


class Inside(NamedTuple):
    """Descriptors that a supervisor has of its sandbox."""

    bwrap: int
    """pidfd of bubblewrap, which ends when the first process does."""
    first: int
    """pidfd of the first process, with which all others end."""
    upper: int
    """Folder of the topmost layer."""
    mounts: int
    """Its mount namespace."""
    users: int
    """The user namespace above that one, in which its layers are mounted."""
    processes: int
    """Its /proc."""
    host_processes: int
    """The host's /proc."""


def enter_user_namespace() -> None:
    """A user and a mount namespace of this process's own, in which it is root."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)


def make(plan: launch.Plan, request: Mapping[str, Any], sock: socket.socket) -> Inside:
    """Create the sandbox and join it.

    Raises:
        CreationError: it can't be made.
        OSError: the kernel refused a step.
    """
    parent = os.getppid()
    enter_user_namespace()
    if request["tag"] is not None:
        resource.setrlimit(resource.RLIMIT_RSS, tuple(request["tag"]))
    top, *below = request["layers"]
    upper = _make_layer(plan, top)
    wire.send(sock, {"made": os.getpid()}, [upper])
    # The host may copy files into the layer now.
    if wire.receive(sock) is None:
        raise CreationError("the host process has ended")
    if below:
        # Its first process must not run what another sandbox may have changed.
        layers.mount_pristine(plan.layout)
    else:
        layers.mount(plan.layout, [top])
    network = bool(request["network"])
    bwrap, pid = _start(plan, str(request["control"]), network=network)
    merged = None
    if below:
        layers.mount(plan.layout, [top, *below])
        merged = kernel.clone_tree(layers.MERGED, recursive=True)
    users = os.open("/proc/self/ns/user", os.O_RDONLY)
    host_processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    first = os.pidfd_open(pid)
    mounts = _join(pid, merged, launch.submounts(plan, network=network))
    processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    _drop_privileges(request["limits"], parent)
    return Inside(bwrap, first, upper, mounts, users, processes, host_processes)


def _make_layer(plan: launch.Plan, layer: str) -> int:
    """The folders of a new layer; a descriptor of what will be written to."""
    if plan.disk_bytes is not None:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("tmpfs", layers.IN_MEMORY, "tmpfs", flags, f"size={plan.disk_bytes},mode=755")
    layers.prepare(plan.layout, layer)
    return os.open(f"{plan.layout.place}/{layer}/up", os.O_RDONLY | os.O_DIRECTORY)


def _start(plan: launch.Plan, control: str, *, network: bool) -> tuple[int, int]:
    """Start bubblewrap and wait for its namespaces; its pidfd, and the first process's id."""
    info, info_end = os.pipe()
    output, output_end = os.pipe()
    complaints, rules = os.memfd_create("complaints"), os.memfd_create("rules")
    os.write(rules, seccomp.program())
    os.lseek(rules, 0, os.SEEK_SET)
    for descriptor in (info_end, rules):
        os.set_inheritable(descriptor, True)
    line = launch.arguments(plan, control, network=network, info=info_end, rules=rules)
    pid = os.posix_spawn(
        line[0],
        line,
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, output_end, 1), (os.POSIX_SPAWN_DUP2, complaints, 2)],
        setsigdef=RESTORED,
    )
    for descriptor in (info_end, output_end, rules):
        os.close(descriptor)
    with os.fdopen(output, "rb") as answers, os.fdopen(info, "rb") as about:
        if select.select([answers], [], [], _TIMEOUT_S)[0] and answers.readline() == b"ready\n":
            os.close(complaints)
            return os.pidfd_open(pid), json.load(about)["child-pid"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.lseek(complaints, 0, os.SEEK_SET)
    text = os.read(complaints, 4096).decode(errors="replace").strip()
    raise CreationError(text or "bubblewrap did not start its first process")


def _join(pid: int, merged: int | None, submounts: list[str]) -> int:
    """Join the namespaces of the first process; a descriptor of the one of mounts."""
    joined = (
        ("cgroup", kernel.CLONE_NEWCGROUP),
        ("ipc", kernel.CLONE_NEWIPC),
        ("uts", kernel.CLONE_NEWUTS),
        ("net", kernel.CLONE_NEWNET),
        # Its children start there; this process itself stays outside.
        ("pid", kernel.CLONE_NEWPID),
    )
    last, mounts = (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in ("user", "mnt"))
    others = [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind)
        for name, kind in joined
        # One shared with the host is already joined.
        if Path(f"/proc/{pid}/ns/{name}").readlink() != Path(f"/proc/self/ns/{name}").readlink()
    ]
    # bubblewrap makes a second user namespace for its first process; the others are the first's.
    owner = kernel.owner_of(mounts)
    kernel.setns(owner, kernel.CLONE_NEWUSER)
    for descriptor, kind in others:
        kernel.setns(descriptor, kind)
        os.close(descriptor)
    kernel.setns(mounts, kernel.CLONE_NEWNS)
    if merged is not None:
        layers.replace_root(merged, submounts)
    kernel.setns(last, kernel.CLONE_NEWUSER)
    os.close(owner)
    os.close(last)
    os.chdir("/")
    return mounts


def _drop_privileges(limits: Mapping[str, int], parent: int) -> None:
    """Drop what a command must not have, and what could be used against this process."""
    kernel.forget_keys()
    kernel.drop_capabilities()
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    # Between vfork and exec a command's process is inside, with this process's memory.
    kernel.set_dumpable(False)
    kernel.filter_calls(seccomp.program())
    kernel.die_with_parent()
    if os.getppid() != parent:
        raise CreationError("the fork server has ended")
