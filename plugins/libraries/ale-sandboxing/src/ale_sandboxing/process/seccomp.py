"""The system calls that a sandbox must not use: one list, in the two forms that sandboxes take.

`program` is classic BPF over ``struct seccomp_data``, put together here, for a sandbox that sets
the filter itself. Programs of another architecture (32-bit ones on a 64-bit machine) are killed,
because their calls have other numbers. `profile` is the same for container engines; it is kept as
the file `PROFILE`, and admits 32-bit programs, which can open no socket.

Debuggers work: ptrace reaches no further than the sandbox's own processes. Standard library only:
bubblewrap's fork server imports it.
"""

import errno
import json
import platform
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROFILE = Path(__file__).with_name("seccomp.json")
"""`profile` as a file, for what reads it from one."""
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
    # Where memory lies, which the host's other processes would feel.
    "get_mempolicy": (239, 236),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}
REFUSED_32 = ("clock_settime64", "socketcall", "stime", "umount", "vm86", "vm86old")
"""Of 32-bit programs alone. The family of a ``socketcall`` is where no filter can look."""
_CLONE, _CLONE3, _IOCTL, _SOCKET = (56, 220), (435, 435), (16, 29), (41, 198)
NAMESPACE_FLAGS = (1 << 17, *(1 << bit for bit in range(25, 31)))
"""Flags of clone(2): mount; control group, host name, IPC, user, process, network."""
NAMESPACES = sum(NAMESPACE_FLAGS)
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
SOCKET_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Not AF_VSOCK, say: no namespace confines it."""
NETLINK_REFUSED = (6, 12, 21)
"""Protocols of AF_NETLINK: XFRM, netfilter, crypto. Large, with a history of vulnerabilities."""
_NETLINK = 16
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
        ("", (_EQUAL, _NETLINK, "netlink", None)),
        *(("", (_EQUAL, family, "allow", None)) for family in SOCKET_FAMILIES),
        ("", (_RETURN, _ERROR | errno.EAFNOSUPPORT, None, None)),
        ("netlink", (_LOAD, _argument(2), None, None)),
        *(("", (_EQUAL, protocol, "protocol", None)) for protocol in NETLINK_REFUSED),
        ("", (_RETURN, _ALLOW, None, None)),
        ("protocol", (_RETURN, _ERROR | errno.EPROTONOSUPPORT, None, None)),
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


def profile() -> dict[str, Any]:
    """The same rules for a container engine, as its seccomp profiles have them.

    Calls that are not named are allowed. An engine that knows no call of some name leaves its rule
    out.
    """
    families = [family for family in range(_NETLINK) if family not in SOCKET_FAMILIES]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
        ],
        "syscalls": [
            _rule([*REFUSED, *REFUSED_32], errno.EPERM),
            _rule(["clone3"], errno.ENOSYS),
            *(_rule(["clone"], errno.EPERM, _masked(0, flag, flag)) for flag in NAMESPACE_FLAGS),
            *(
                _rule(["ioctl"], errno.EPERM, _masked(1, 0xFFFFFFFF, request))
                for request in (TIOCSTI, TIOCLINUX)
            ),
            *(_rule(["socket"], errno.EAFNOSUPPORT, _compared(0, "EQ", one)) for one in families),
            _rule(["socket"], errno.EAFNOSUPPORT, _compared(0, "GT", _NETLINK)),
            *(
                _rule(
                    ["socket"],
                    errno.EPROTONOSUPPORT,
                    _compared(0, "EQ", _NETLINK),
                    _compared(2, "EQ", protocol),
                )
                for protocol in NETLINK_REFUSED
            ),
        ],
    }


def _rule(names: list[str], error: int, *arguments: dict[str, Any]) -> dict[str, Any]:
    about = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error}
    return {**about, "args": list(arguments)} if arguments else about


def _compared(index: int, how: str, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "op": f"SCMP_CMP_{how}"}


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def main() -> None:
    """Write `PROFILE`."""
    PROFILE.write_text(json.dumps(profile(), indent=1) + "\n")


if __name__ == "__main__":
    main()
