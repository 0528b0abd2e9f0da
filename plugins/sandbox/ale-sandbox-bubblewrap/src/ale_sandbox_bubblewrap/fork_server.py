"""One process per backend, from which supervisors are forked: a warm start for each sandbox.

It has the rights of an ordinary user: a host process that is root lets it become another one.
In mount and user namespaces of its own it prepares the lowest layers, in memory, so that they go
with it. It ends when the host process does, and with it every supervisor and every sandbox.

Standard library only. Run as ``python -I -S -c 'import ...; main(fd, lock_fd)'``.
"""

import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ale_sandbox_bubblewrap import base, creation, kernel, launch, layers, supervisor, wire


def main(descriptor: int, lock_fd: int) -> None:
    """Serve the host process at the other end of a socket.

    Args:
        lock_fd: a lock that this process and its supervisors keep open (`process_lock`).
    """
    sock = socket.socket(fileno=descriptor)
    for one in (descriptor, lock_fd):
        os.set_inheritable(one, False)
    received = wire.receive(sock)
    if received is None:
        return
    settings = received[0]
    plan = _plan(settings)
    try:
        _prepare(plan, settings)
    except OSError as error:
        wire.send(sock, {"failed": str(error)})
        return
    controls = os.open(layers.CONTROL, os.O_PATH | os.O_DIRECTORY)
    wire.send(sock, {"ready": True}, [controls])
    os.close(controls)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while (received := wire.receive(sock)) is not None:
        message, descriptors = received
        if os.fork() == 0:
            sock.close()
            _as_child(plan, message, descriptors)
        for one in descriptors:
            os.close(one)


def _plan(settings: Mapping[str, Any]) -> launch.Plan:
    fields = dict(settings["plan"])
    return launch.Plan(**{**fields, "layout": layers.Layout(*fields["layout"])})


def _prepare(plan: launch.Plan, settings: Mapping[str, Any]) -> None:
    """Become an unprivileged user, and make the lowest layers."""
    os.umask(0o022)
    uid = settings["uid"]
    if os.geteuid() == uid:
        creation.enter_user_namespace()
        _mount_staging(settings["store"], uid=0)
    else:
        # Only root can reach the store, whose folders belong to the other user.
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        _mount_staging(settings["store"], uid=uid)
        creation.become(uid)
        creation.enter_user_namespace()
    os.chdir(layers.STAGING)
    Path(layers.ROOT).mkdir()
    base.make(Path(layers.ROOT))
    base.make_folders(plan.layout.system)
    base.install(plan.programs, Path(layers.PROGRAMS))


def _mount_staging(store: str, *, uid: int) -> None:
    """A file system in memory with the folders of the store in it."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", layers.STAGING, "tmpfs", flags, f"mode=755,uid={uid},gid={uid}")
    for name in (layers.MERGED, layers.IN_MEMORY, layers.LAYERS, layers.CONTROL):
        Path(layers.STAGING, name).mkdir()
    kernel.mount(
        f"{store}/{layers.LAYERS}", f"{layers.STAGING}/{layers.LAYERS}", flags=kernel.MS_BIND
    )


def _as_child(plan: launch.Plan, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Do one task in a forked process, and exit."""
    sock = socket.socket(fileno=descriptors[0])
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if message["do"] == "open":
            supervisor.run_supervisor(plan, message, sock)
        else:
            _report(plan, message, sock, descriptors[1:])
    except BaseException:
        # The host reads it when no answer comes.
        sys.stderr.write(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def _report(
    plan: launch.Plan, message: Mapping[str, Any], sock: socket.socket, descriptors: Sequence[int]
) -> None:
    try:
        done = _change(plan, message, descriptors)
    except OSError as error:
        wire.send(sock, {"failed": str(error)})
    else:
        wire.send(sock, {"done": done})


def _change(plan: launch.Plan, message: Mapping[str, Any], descriptors: Sequence[int]) -> bool:
    task = message["do"]
    if task == "switch":
        mounts, users = descriptors
        kernel.setns(users, kernel.CLONE_NEWUSER)
        kernel.unshare(kernel.CLONE_NEWNS)
        submounts = launch.submounts(plan, network=bool(message["network"]))
        return layers.switch(plan.layout, message["layers"], mounts, submounts)
    if task == "copy":
        source, target = descriptors
        for tree in message.get("trees", plan.layout.trees):
            layers.apply(_folder(source, tree), _folder(target, tree))
        return True
    if task == "merge":
        layers.merge(plan.layout, message["layers"], message["into"])
        return True
    raise ValueError(f"the host asks for {task!r}")


def _folder(parent: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
