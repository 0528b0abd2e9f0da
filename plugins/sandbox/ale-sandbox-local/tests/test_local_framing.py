"""No string of shell words breaks the framing of a session."""

import random

import pytest

from ale.protocols import Sandbox

WORDS = [
    "echo a",
    "true",
    "false",
    "'",
    '"',
    "`",
    "$(",
    ")",
    "(",
    "{ ",
    "}",
    ";",
    "&",
    "&&",
    "\n",
    "<<E\n",
    "E\n",
    "if ",
    "then ",
    "fi",
    "case x in ",
    "esac",
    "done",
    "for i in 1 2; do ",
    "while false; do ",
    "f() {",
    "# c",
    "\\",
    "! ",
    "[[ ",
    "]] ",
    "(( ",
    "))",
    ">f ",
    "<f ",
    "2>&1",
    "$x",
    "${x",
    "${x:-",
    "exec 3>f ",
    "set -u;",
    "trap 'echo t' EXIT ",
    "local x",
    "return 2",
    "break",
    "-n ",
    "é",
    "\t",
    "\x01",
    "<(",
    "$'",
    "time ",
    "coproc ",
    "select x in ",
    "x=1 ",
    "[ ",
    "exit 4",
    "kill -9 $$",
    "exec >f",
    "cat",
    "\r",
]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_after_any_command_the_next_one_is_answered(box: Sandbox, seed: int) -> None:
    choose = random.Random(seed)
    session = await box.session()
    for _ in range(200):
        line = "".join(choose.choices([*WORDS, " "], k=choose.randint(1, 9)))
        result = await session.run(line, timeout_s=30)
        assert not result.timed_out, line
        if session.closed:
            session = await box.session()
            continue
        after = await session.run("trap - EXIT; set +u; echo out; echo err >&2; (exit 3)")
        assert (after.exit_code, after.stdout, after.stderr) == (3, b"out\n", b"err\n"), line
