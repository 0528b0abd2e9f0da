"""How a supervisor creates its sandbox and joins it. Standard library only."""

import json
import os
import resource
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ale_sandbox_bubblewrap import kernel, launch, layers, wire
from ale_sandboxing.process import bounds, seccomp

_TIMEOUT_S = 30.0
_BYTES_A_FILE = 4096
"""Of a file system in memory, for each file that may be in it."""
_SHARE = 4
"""A sandbox may have one in so many of the host's notification queues and watches."""
_NOTIFIED = ("instances", "watches")
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


def bound_notifications() -> None:
    """Leave to others of this user most inotify instances and watches, which the kernel counts by
    user and by each user namespace around it. This process is root in one of its own.
    """
    for name in _NOTIFIED:
        most = int(Path(f"/proc/sys/fs/inotify/max_user_{name}").read_text())
        Path(f"/proc/sys/user/max_inotify_{name}").write_text(str(max(1, most // _SHARE)))


def bound_ipc(proc: int) -> None:
    """Put the settings of `bounds.IPC` on the IPC namespace of this process.

    Args:
        proc: the folder ``/proc``, open.
    """
    for name, value in bounds.IPC.items():
        file = os.open(f"sys/{name.replace('.', '/')}", os.O_WRONLY, dir_fd=proc)
        try:
            os.write(file, value.encode())
        finally:
            os.close(file)


def become(uid: int) -> None:
    """Give up root's rights for those of an ordinary user."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(True)  # or its own /proc entries are closed to it


def make(plan: launch.Plan, request: Mapping[str, Any], sock: socket.socket) -> Inside:
    """Create the sandbox and join it.

    1. In namespaces of its own, this process makes the topmost layer, which the host may fill.
    2. It mounts the layers, and starts bubblewrap, whose first process is in the namespaces of the
       sandbox and only sleeps.
    3. It joins them: all but the process namespace, in which only its children will be.
    4. It gives up every right that a command must not have.

    Args:
        request: see `supervisor.run_supervisor`.

    Raises:
        CreationError: it can't be made.
        OSError: the kernel refused a step.
    """
    fork_server = os.getppid()
    enter_user_namespace()
    if plan.bounded:
        bound_notifications()
    if request["tag"] is not None:
        resource.setrlimit(resource.RLIMIT_RSS, tuple(request["tag"]))
    upper = _make_layer(plan, request["layers"][0])
    _let_host_fill(sock, upper)
    network = bool(request["network"])
    bwrap, pid, merged = _start_over(plan, request["layers"], str(request["control"]), network)
    users = os.open("/proc/self/ns/user", os.O_RDONLY)
    host_processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    first = os.pidfd_open(pid)
    proc = host_processes if plan.bounded else None
    mounts = _join(pid, merged, launch.submounts(plan, network=network), proc, plan.shm_bytes)
    processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    _drop_privileges(request["limits"])
    kernel.die_with_parent()
    if os.getppid() != fork_server:
        raise CreationError("the fork server has ended")
    return Inside(bwrap, first, upper, mounts, users, processes, host_processes)


def _let_host_fill(sock: socket.socket, upper: int) -> None:
    """Hand the new layer to the host process, and wait until it answers."""
    wire.send(sock, {"made": os.getpid()}, [upper])
    if wire.receive(sock) is None:
        raise CreationError("the host process has ended")


def _start_over(
    plan: launch.Plan, stack: Sequence[str], control: str, network: bool
) -> tuple[int, int, int | None]:
    """Start bubblewrap over the layers: as `_start`, and the root still to be put in place.

    Over layers of another sandbox the first process is started on what the host has, because it
    must not run what that sandbox may have changed. The layers then replace its root.
    """
    if len(stack) == 1:
        layers.mount(plan.layout, stack)
        return *_start(plan, control, network=network), None
    layers.mount_pristine(plan.layout)
    bwrap, pid = _start(plan, control, network=network)
    layers.mount(plan.layout, stack)
    return bwrap, pid, kernel.clone_tree(layers.MERGED)


def _make_layer(plan: launch.Plan, layer: str) -> int:
    """The folders of a new layer; a descriptor of what will be written to."""
    if plan.disk_bytes is not None:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        # Each file costs memory beside its content, which `size` does not count.
        options = f"size={plan.disk_bytes},nr_inodes={plan.disk_bytes // _BYTES_A_FILE},mode=755"
        kernel.mount("tmpfs", layers.IN_MEMORY, "tmpfs", flags, options)
    layers.prepare(plan.layout, layer)
    return os.open(f"{plan.layout.place}/{layer}/up", os.O_RDONLY | os.O_DIRECTORY)


def _start(plan: launch.Plan, control: str, *, network: bool) -> tuple[int, int]:
    """Start bubblewrap and wait for its namespaces; its pidfd, and the first process's id."""
    about, about_end = os.pipe()
    ready, ready_end = os.pipe()
    complaints, rules = os.memfd_create("complaints"), os.memfd_create("rules")
    os.write(rules, seccomp.program())
    os.lseek(rules, 0, os.SEEK_SET)
    for descriptor in (about_end, rules):
        os.set_inheritable(descriptor, True)
    line = launch.arguments(plan, control, network=network, info=about_end, rules=rules)
    pid = os.posix_spawn(
        line[0],
        line,
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, ready_end, 1), (os.POSIX_SPAWN_DUP2, complaints, 2)],
        setsigdef=RESTORED,
    )
    for descriptor in (about_end, ready_end, rules):
        os.close(descriptor)
    with os.fdopen(ready, "rb") as answers, os.fdopen(about, "rb") as info:
        if select.select([answers], [], [], _TIMEOUT_S)[0] and answers.readline() == b"ready\n":
            os.close(complaints)
            return os.pidfd_open(pid), json.load(info)["child-pid"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    text = os.pread(complaints, 4096, 0).decode(errors="replace").strip()
    raise CreationError(text or "bubblewrap did not start its first process")


def _join(
    pid: int, merged: int | None, submounts: list[str], proc: int | None, shm_bytes: int
) -> int:
    """Join the namespaces of the first process; a descriptor of the one of mounts.

    Args:
        merged: what replaces its root; None: nothing does.
        submounts: mount points that the new root takes over.
        proc: the host's ``/proc``; None: this kernel lets no namespace have IPC limits of its own.
    """
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    # bubblewrap makes a second user namespace for its first process; the others are the first's.
    inner, outer = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY), kernel.owner_of(mounts)
    joined = [(outer, kernel.CLONE_NEWUSER), *_other_namespaces(pid), (mounts, kernel.CLONE_NEWNS)]
    for descriptor, kind in joined:
        kernel.setns(descriptor, kind)
    if proc is not None:
        bound_ipc(proc)
    flags = kernel.MS_REMOUNT | kernel.MS_NOSUID | kernel.MS_NODEV
    sizes = f"size={shm_bytes},nr_inodes={shm_bytes // _BYTES_A_FILE}"
    kernel.mount("", "/dev/shm", flags=flags, data=sizes)  # noqa: S108
    if merged is not None:
        layers.replace_root(merged, submounts)
    kernel.setns(inner, kernel.CLONE_NEWUSER)
    for descriptor in (inner, *(descriptor for descriptor, _ in joined[:-1])):
        os.close(descriptor)
    os.chdir("/")
    return mounts


def _other_namespaces(pid: int) -> list[tuple[int, int]]:
    """Open those of a process that are not of users or mounts, and that this one is not in yet."""
    kinds = {
        "cgroup": kernel.CLONE_NEWCGROUP,
        "ipc": kernel.CLONE_NEWIPC,
        "uts": kernel.CLONE_NEWUTS,
        "net": kernel.CLONE_NEWNET,
        # Its children start there; this process itself stays outside.
        "pid": kernel.CLONE_NEWPID,
    }
    return [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind)
        for name, kind in kinds.items()
        if Path(f"/proc/{pid}/ns/{name}").readlink() != Path(f"/proc/self/ns/{name}").readlink()
    ]


def _drop_privileges(limits: Mapping[str, int]) -> None:
    """Drop what a command must not have, and what could be used against this process."""
    kernel.forget_keys()
    kernel.drop_capabilities()
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    # Between vfork and exec a command's process is inside, with this process's memory.
    kernel.set_dumpable(False)
    kernel.filter_calls(seccomp.program())
