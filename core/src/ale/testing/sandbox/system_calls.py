"""Probes of what a command may ask of the kernel, where it is the host's.

A sandbox on the host's kernel refuses the calls that no task needs, whatever the user. If a backend
can't, a note of its capabilities begins with ``system calls:``.
"""

import pytest

from ale.protocols import Sandbox, SandboxBackend
from ale.testing.sandbox._guard import time_limited
from ale.testing.sandbox.probes import case, expect
from ale.types import SandboxSpec

# Shells have these, busybox's too. Each prints its name if it was not refused.
_BY_PROGRAM = """
unshare -U true && echo a user namespace
unshare -r mount -t tmpfs none /tmp && echo a mount in a user namespace
unshare -n true && echo a network namespace
mount -t tmpfs none /tmp && echo a mount
nsenter -t 1 -m true && echo the mounts of process 1
exit 0
"""
# Prints the name of each call that was not refused. A call whose arguments are wrong was not.
_BY_CALL = r"""
import ctypes, errno, mmap, os, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
REFUSALS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
USER, TREE = 0x10000000, 17
which = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
NUMBERS = {
    "unshare": (272, 97), "clone": (56, 220), "clone3": (435, 435), "setns": (308, 268),
    "mount": (165, 40), "fsopen": (430, 430), "open_tree": (428, 428), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "io_uring_setup": (425, 425),
    "kexec_load": (246, 104), "init_module": (175, 105), "open_by_handle_at": (304, 265),
    "pidfd_getfd": (438, 438), "move_pages": (279, 239), "syslog": (103, 116),
}
ARGUMENTS = {"unshare": [USER], "clone": [USER | TREE], "keyctl": [0, -4, 0], "userfaultfd": [1]}

def reached(name, call):
    # In a process of its own, which a filter may kill.
    child = os.fork()
    if child == 0:
        mine = os.getpid()
        done = call()
        if os.getpid() != mine:
            os._exit(0)
        refused = done < 0 and ctypes.get_errno() in REFUSALS
        os._exit(3 if refused else 0)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        print(name)

def syscall(number, *arguments):
    words = [ctypes.c_long(word) for word in (*arguments, *[0] * (6 - len(arguments)))]
    return libc.syscall(ctypes.c_long(number), *words)

def opened(family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
        return 0
    except OSError as error:
        ctypes.set_errno(error.errno)
        # A family that is there has other types, or is not for everyone.
        return -1 if error.errno in REFUSALS | {errno.ESOCKTNOSUPPORT, errno.EINVAL} else 0

def old_socket():
    # A 32-bit program's way to a socket: its arguments are behind a pointer.
    libc.mmap.restype = ctypes.c_void_p
    place = libc.mmap(None, 4096, 7, 0x62, -1, 0)
    code = bytes.fromhex("5389f889f389d1cd805bc3")
    ctypes.memmove(place, code + bytes(64 - len(code)) + b"".join(
        word.to_bytes(4, "little") for word in (40, 1, 0)), 76)
    done = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint] * 3)(place)(102, 1, place + 64)
    ctypes.set_errno(-done if done < 0 else 0)
    return done

if which is None:
    sys.exit()
for name, numbers in NUMBERS.items():
    reached(name, lambda: syscall(numbers[which], *ARGUMENTS.get(name, ())))
for family in range(46):
    if family not in (1, 2, 10, 16):
        for kind in (1, 2, 3, 5):
            reached(f"socket family {family}", lambda: opened(family, kind))
for protocol in (6, 12, 21):
    reached(f"netlink {protocol}", lambda: opened(16, 3, protocol))
if platform.machine() == "x86_64":
    reached("socketcall", old_socket)
"""


@time_limited
@pytest.mark.asyncio
class SystemCallProbes:
    async def test_calls_that_no_task_needs_are_refused_just_as_declared(
        self, backend: SandboxBackend
    ) -> None:
        declared = backend.capabilities
        on_the_hosts_kernel = declared.isolation in ("namespace", "container")
        if not on_the_hosts_kernel or any(n.startswith("system calls:") for n in declared.notes):
            return
        async with backend.open(SandboxSpec()) as sandbox:
            users = (None, "65534") if "switch-user" in declared.features else (None,)
            for user in users:
                with case(f"as user {user or 'of the sandbox'}"):
                    await self._attacked(sandbox, user)

    async def _attacked(self, sandbox: Sandbox, user: str | None) -> None:
        expect(await sandbox.exec(_BY_PROGRAM, user=user), exit_code=0, stdout=b"")
        if (await sandbox.exec("command -v python3")).exit_code == 0:
            result = await sandbox.exec(["python3", "-c", _BY_CALL], user=user)
            expect(result, exit_code=0, stdout=b"")
