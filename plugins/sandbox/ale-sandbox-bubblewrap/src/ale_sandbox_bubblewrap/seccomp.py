"""A seccomp filter of the system calls that a sandbox must not use.

The program is classic BPF over ``struct seccomp_data``, put together here; no library is needed.
Debuggers work: ptrace reaches no further than the sandbox's own processes. Programs of another
architecture (32-bit ones on a 64-bit machine) are killed, because their calls have other numbers.
"""

import errno
import platform
import struct
from collections.abc import Mapping

from ale_sandbox_bubblewrap import kernel

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Name: number on x86_64, number on aarch64 (None: not there).
REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    # Mounts and namespaces, on which the isolation is built.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # The kernel itself: modules, another kernel, its clock, its log, its ports.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "syslog": (103, 116),
    "acct": (163, 89),
    "ioperm": (173, None),
    "iopl": (172, None),
    # Large interfaces with a history of vulnerabilities, which tasks do not need.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    # Shared by all of a user's sandboxes, or access to another process's descriptors.
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
}
_CLONE, _CLONE3, _IOCTL, _SOCKET = (56, 220), (435, 435), (16, 29), (41, 198)
NAMESPACES = sum(kernel.NAMESPACES)
"""Flags of clone(2)."""
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
SOCKET_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Not AF_VSOCK, say: no namespace confines it."""
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000

Line = tuple[int, int, str | None, str | None]
"""Operation, operand, where to go if true, where to go if false; None is the next line."""


def program(machine: str | None = None) -> bytes:
    """The filter for a machine as ``uname -m`` names it: an array of ``struct sock_filter``.

    Raises:
        KeyError: there is no filter for this machine.
    """
    machine = machine or platform.machine()
    which = list(ARCHITECTURES).index(machine) if machine in ARCHITECTURES else -1
    lines: list[tuple[str, Line]] = [
        ("", (_LOAD, _ARCHITECTURE, None, None)),
        ("", (_EQUAL, ARCHITECTURES[machine], None, "kill")),
        ("", (_LOAD, _NUMBER, None, None)),
    ]
    if machine == "x86_64":
        lines.append(("", (_AT_LEAST, _X32, "missing", None)))
    for numbers in REFUSED.values():
        if numbers[which] is not None:
            lines.append(("", (_EQUAL, numbers[which] or 0, "refuse", None)))
    lines += [
        # Its flags are behind a pointer, where no filter can look; libc then uses clone.
        ("", (_EQUAL, _CLONE3[which], "missing", None)),
        ("", (_EQUAL, _CLONE[which], "clone", None)),
        ("", (_EQUAL, _IOCTL[which], "ioctl", None)),
        ("", (_EQUAL, _SOCKET[which], "socket", "allow")),
        ("clone", (_LOAD, _argument(0), None, None)),
        ("", (_ANY_BIT, NAMESPACES, "refuse", "allow")),
        ("ioctl", (_LOAD, _argument(1), None, None)),
        ("", (_EQUAL, TIOCSTI, "refuse", None)),
        ("", (_EQUAL, TIOCLINUX, "refuse", "allow")),
        ("socket", (_LOAD, _argument(0), None, None)),
        *(("", (_EQUAL, family, "allow", None)) for family in SOCKET_FAMILIES),
        ("", (_RETURN, _ERROR | errno.EAFNOSUPPORT, None, None)),
        ("refuse", (_RETURN, _ERROR | errno.EPERM, None, None)),
        ("missing", (_RETURN, _ERROR | errno.ENOSYS, None, None)),
        ("allow", (_RETURN, _ALLOW, None, None)),
        ("kill", (_RETURN, _KILL, None, None)),
    ]
    return _assemble(lines)


def _argument(index: int) -> int:
    """Offset of the low half of an argument; both machines are little-endian."""
    return _ARGUMENTS + 8 * index


def _assemble(lines: list[tuple[str, Line]]) -> bytes:
    places = {label: place for place, (label, _) in enumerate(lines) if label}

    def jump(here: int, label: str | None) -> int:
        return 0 if label is None else places[label] - here - 1

    return b"".join(
        struct.pack("=HBBI", code, jump(here, true), jump(here, false), operand)
        for here, (_, (code, operand, true, false)) in enumerate(lines)
    )
