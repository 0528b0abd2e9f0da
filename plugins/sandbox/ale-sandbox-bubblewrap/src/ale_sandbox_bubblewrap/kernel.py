"""System calls that Python does not wrap. Standard library only: the fork server imports it.

Every function raises OSError as the ``os`` module does.
"""

import ctypes
import fcntl
import os
import platform

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_REMOUNT = 2, 4, 32
MS_BIND, MS_REC, MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_MNT_DETACH = 2

OPEN_TREE_CLONE = 1
AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_MOVE_MOUNT_F_EMPTY_PATH = 4
_FSPICK_CLOEXEC, _FSCONFIG_SET_FLAG, _FSCONFIG_CMD_RECONFIGURE = 1, 0, 7

# Calls newer than Linux 5.0 have one number everywhere.
_OPEN_TREE, _MOVE_MOUNT, _FSCONFIG, _FSPICK = 428, 429, 431, 433
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1

_NS_GET_USERNS = 0xB701

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _checked(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result


def _syscall(name: str, number: int, *args: object) -> int:
    return _checked(_libc.syscall(ctypes.c_long(number), *args), name)


def _prctl(option: int, argument: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(argument), *[ctypes.c_ulong(0)] * 3), "prctl")


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Join a namespace."""
    _checked(_libc.setns(descriptor, kind), "setns")


def owner_of(namespace: int) -> int:
    """A descriptor of the user namespace that owns another namespace."""
    return fcntl.ioctl(namespace, _NS_GET_USERNS)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); an empty text is a null pointer."""
    texts = [os.fsencode(text) if text else None for text in (source, target, kind, data)]
    done = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _checked(done, f"mount {target}")


def detach(path: str) -> None:
    """Detach a mount; processes that use it can still do so."""
    _checked(_libc.umount2(os.fsencode(path), _MNT_DETACH), f"umount {path}")


def clone_tree(path: str) -> int:
    """A descriptor of a copy of the mounts at `path`, attached nowhere yet."""
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE
    return _syscall(f"open_tree {path}", _OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)


def attach(tree: int, folder: int, path: str) -> None:
    """Attach such a copy at `path`, below a folder."""
    _syscall(
        f"move_mount {path}", _MOVE_MOUNT, tree, b"", folder, os.fsencode(path),
        _MOVE_MOUNT_F_EMPTY_PATH,
    )  # fmt: skip


def make_read_only(path: str, read_only: bool = True) -> None:
    """Make a file system read-only for everybody, or undo it.

    Raises:
        OSError: EBUSY: a file on it is open for writing.
    """
    picked = _syscall(f"fspick {path}", _FSPICK, _AT_FDCWD, os.fsencode(path), _FSPICK_CLOEXEC)
    try:
        flag = b"ro" if read_only else b"rw"
        _syscall("fsconfig", _FSCONFIG, picked, _FSCONFIG_SET_FLAG, flag, None, 0)
        _syscall(f"remount {path}", _FSCONFIG, picked, _FSCONFIG_CMD_RECONFIGURE, None, None, 0)
    finally:
        os.close(picked)


def pivot_root_here() -> None:
    """Make the mount at the current folder the root of every process of this mount namespace.

    The old root stays mounted on top of it until `detach`.
    """
    _syscall("pivot_root", _PIVOT_ROOT[platform.machine()], b".", b".")


def forget_keys() -> None:
    """Leave the session keyring of the host for an empty one."""
    _syscall("keyctl", _KEYCTL[platform.machine()], _KEYCTL_JOIN_SESSION_KEYRING, None)


def set_dumpable(dumpable: bool) -> None:
    """May processes of the same user look into this one and what it forks, until it execs?"""
    _prctl(_PR_SET_DUMPABLE, int(dumpable))


def die_with_parent() -> None:
    """SIGKILL when the parent ends. Changes of user or capabilities undo it: do them before."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def drop_capabilities() -> None:
    """Give up every capability, also for what is executed later."""
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:  # noqa: PTH123
        last = int(file.read())
    for capability in range(last + 1):
        _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    empty = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(header, empty), "capset")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def filter_calls(program: bytes) -> None:
    """Put a seccomp filter (`seccomp.program`) on this process and all it starts, for ever."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    filter_program = _Program(len(program) // 8, program)
    done = _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_program), 0, 0)
    _checked(done, "seccomp")
