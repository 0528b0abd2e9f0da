"""The filter program and the engines' profile refuse the same calls, in the same way."""

import errno
import itertools
import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from ale_sandbox_process import seccomp

_OTHERS = {"clone": (56, 220), "clone3": (435, 435), "ioctl": (16, 29), "socket": (41, 198)}
_OTHERS |= {"read": (0, 63), "openat": (257, 56), "ptrace": (101, 117)}
NUMBERS = {**seccomp.REFUSED, **_OTHERS}


def run(machine: str, number: int, arguments: Sequence[int]) -> int | None:
    """The error with which the program refuses a call; None if it allows it."""
    data = struct.pack("<iIQ6Q", number, seccomp.ARCHITECTURES[machine], 0, *arguments)
    lines = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    place, held = 0, 0
    while True:
        code, true, false, operand = lines[place]
        if code == 0x06:
            assert operand >> 16 in (0x7FFF, 0x0005), "it kills"
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


def test_the_file_is_the_profile() -> None:
    """`python -m ale_sandbox_process.seccomp` writes it."""
    assert json.loads(seccomp.PROFILE.read_text()) == seccomp.profile()
