"""The filter program and the engines' profile refuse the same calls, in the same way."""

import errno
import itertools
import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from ale_sandboxing.process import seccomp

_OTHERS = {"clone": (56, 220), "clone3": (435, 435), "ioctl": (16, 29), "socket": (41, 198)}
_OTHERS |= {"read": (0, 63), "openat": (257, 56), "ptrace": (101, 117)}
NUMBERS = {**seccomp.REFUSED, **_OTHERS}


# Of Linux's own asm/unistd_64.h and asm-generic/unistd.h.
HEADERS = """
mount 165 40, umount2 166 39, pivot_root 155 41, open_tree 428 428, move_mount 429 429,
fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442,
unshare 272 97, setns 308 268, name_to_handle_at 303 264, open_by_handle_at 304 265,
quotactl 179 60, quotactl_fd 443 443, init_module 175 105, finit_module 313 273,
delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294, reboot 169 142,
swapon 167 224, swapoff 168 225, settimeofday 164 170, clock_settime 227 112,
clock_adjtime 305 266, syslog 103 116, acct 163 89, ioperm 173 -, iopl 172 -, bpf 321 280,
perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425, io_uring_enter 426 426,
io_uring_register 427 427, fanotify_init 300 262, modify_ldt 154 -, uselib 134 -, ustat 136 -,
sysfs 139 -, lookup_dcookie 212 18, nfsservctl 180 42, keyctl 250 219, add_key 248 217,
request_key 249 218, pidfd_getfd 438 438, kcmp 312 272, get_mempolicy 239 236,
set_mempolicy 238 237, set_mempolicy_home_node 450 450, mbind 237 235, migrate_pages 256 238,
move_pages 279 239
"""
FOREIGN = {"x86_64": (0x40000003, 0xC00000B7), "aarch64": (0x40000028, 0xC000003E)}
"""What 32-bit programs of each machine, and programs of the other one, say that they are."""


def run(
    machine: str, number: int, arguments: Sequence[int] = (0,) * 6, architecture: int | None = None
) -> int | str | None:
    """The error with which the program refuses a call; None if it allows it, or that it kills."""
    architecture = architecture or seccomp.ARCHITECTURES[machine]
    data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments)
    lines = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    place, held = 0, 0
    while True:
        code, true, false, operand = lines[place]
        if code == 0x06:
            if operand == 0x80000000:
                return "killed"
            assert operand >> 16 in (0x7FFF, 0x0005)
            return None if operand == 0x7FFF0000 else operand & 0xFFFF
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, operand)
            place += 1
            continue
        met = {0x15: held == operand, 0x35: held >= operand, 0x45: bool(held & operand)}[code]
        place += 1 + (true if met else false)


def look_up(name: str, arguments: Sequence[int]) -> int | None:
    """Likewise of the profile."""
    for rule in seccomp.profile()["syscalls"]:
        if name in rule["names"] and all(_met(one, arguments) for one in rule.get("args", ())):
            return int(rule["errnoRet"])
    return None


def _met(about: dict[str, Any], arguments: Sequence[int]) -> bool:
    found, value = arguments[about["index"]], about["value"]
    if about["op"] == "SCMP_CMP_MASKED_EQ":
        return bool(found & value == about["valueTwo"])
    return bool(found == value if about["op"] == "SCMP_CMP_EQ" else found > value)


def cases() -> list[tuple[str, tuple[int, ...]]]:
    plain = [(name, (0, 0, 0)) for name in NUMBERS if name != "socket"]
    flags = [0, 17, *seccomp.NAMESPACE_FLAGS, sum(seccomp.NAMESPACE_FLAGS), 0x3D0F00]
    plain += [("clone", (flag | 17, 0, 0)) for flag in flags]
    plain += [("ioctl", (0, request, 0)) for request in (0x5401, 0x5412, 0x541C, 1 << 32 | 0x5412)]
    return plain + [("socket", each) for each in itertools.product(range(50), (1, 3), range(25))]


@pytest.mark.parametrize("machine", list(seccomp.ARCHITECTURES))
def test_program_and_profile_agree(machine: str) -> None:
    which = list(seccomp.ARCHITECTURES).index(machine)
    decided = set()
    for name, arguments in cases():
        number = NUMBERS[name][which]
        if number is None:
            continue
        expected = look_up(name, arguments)
        assert run(machine, number, [*arguments, 0, 0, 0]) == expected, (name, arguments)
        decided.add(expected)
    refusals = {errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
    assert decided == {None, *refusals}


def test_the_numbers_of_calls_are_those_of_the_kernel() -> None:
    for entry in HEADERS.replace("\n", " ").split(","):
        name, *numbers = entry.split()
        known = tuple(None if each == "-" else int(each) for each in numbers)
        assert seccomp.REFUSED[name] == known, name
        for machine, number in zip(seccomp.ARCHITECTURES, known, strict=True):
            assert number is None or run(machine, number) == errno.EPERM, (name, machine)


@pytest.mark.parametrize("machine", list(seccomp.ARCHITECTURES))
def test_calls_with_other_numbers_never_pass(machine: str) -> None:
    """As those of 32-bit programs, and of the x32 ones of a 64-bit machine."""
    for architecture in FOREIGN[machine]:
        assert {run(machine, n, architecture=architecture) for n in range(500)} == {"killed"}
    if machine == "x86_64":
        calls = {run(machine, 0x40000000 + n) for n in range(600)}
        assert calls == {errno.ENOSYS}


def test_the_file_is_the_profile() -> None:
    """`python -m ale_sandboxing.process.seccomp` writes it."""
    assert json.loads(seccomp.PROFILE.read_text()) == seccomp.profile()
