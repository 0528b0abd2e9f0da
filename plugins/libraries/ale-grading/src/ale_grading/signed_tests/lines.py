"""The programs and modules that a line of shell needs, as far as the line itself says it."""

import re
import shlex
from collections.abc import Iterator, Sequence

from ale_grading.signed_tests.tools import Look

_OWN_WAY = re.compile(
    r"<<|\(\)|(?:^|[\s;&|(])(?:while|until|case|for|function|alias|trap|which|type|hash|"
    r"command|eval|PATH=\S*|export)(?=[\s;]|$)"
)
"""A line that handles what is missing, defines names, or changes the path is not looked into."""
_ENDS = frozenset({";", "&", "&&", "|", "|&", "(", "{"})
_OPENS = frozenset({"!", "if", "elif", "then", "else", "fi"})
"""Words of the shell after which a command begins."""
_REPORTS = frozenset({"exit", "false", "return", "echo", "printf"})
"""Programs behind ``||`` of a command that is needed, and has no substitute."""
_CARRIERS = frozenset({"env", "exec", "nice", "nohup", "time", "timeout", "sudo"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_PYTHON = re.compile(r"python3?(?:\.\d+)?")
_PASSED = re.compile(r"-.*|\w+=.*|[\d.]+[smhd]?")
_SUBSTITUTED = re.compile(r"\$\(\s*([A-Za-z][\w.+-]*)")


async def lacking_of_line(command: str, look: Look) -> frozenset[str]:
    """What a line of shell needs and a sandbox lacks. Raises `SandboxError`."""
    programs, modules = needs(command)
    missing = await look.programs(programs)
    for python, module in modules:
        if python not in missing:
            missing |= await look.modules([module], python=python)
    return missing


def inverts(command: str) -> bool:
    """Whether a line has ``!`` or ``if``, and may so succeed for want of a program."""
    return re.search(r"(?:^|[\s;&|(])(?:!|if)\s", command) is not None


def needs(command: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Programs by name, and modules that ``python -m`` runs, each with its interpreter.

    A path (``./build/app``) is no name: the agent makes it, or the task's image has it.
    """
    if _OWN_WAY.search(command):
        return [], []
    try:
        lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # a quotation without an end
        return [], []
    programs, modules = list[str](), list[tuple[str, str]]()
    for program, rest in _commands(words):
        programs.append(program)
        if _PYTHON.fullmatch(program) and rest[:1] == ["-m"] and len(rest) > 1:
            modules.append((program, rest[1].partition(".")[0]))
    return [*programs, *_SUBSTITUTED.findall(command)], modules


def _commands(words: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Each program that is run at any rate, with the words after it.

    Not what stands behind ``||`` and between ``then`` and ``fi``, nor what has a substitute behind
    ``||``.
    """
    branches, found = list[bool](), list[tuple[str, Sequence[str]]]()
    for operator, opened, program, rest in _parts(words):
        if operator == "||":
            if program not in _REPORTS:
                found = []
            continue
        if operator in (";", "&"):
            yield from found
            found = []
        for word in opened:
            _branch(branches, word)
        if program and not any(branches):
            found.append((program, rest))
    yield from found


def _branch(branches: list[bool], word: str) -> None:
    """Note a word of the shell: of each ``if`` that is open, whether its ``then`` has come."""
    if word == "if":
        branches.append(False)
    elif word == "fi":
        del branches[-1:]
    elif word != "!" and branches:
        branches[-1] = True


def _parts(words: Sequence[str]) -> Iterator[tuple[str, list[str], str, Sequence[str]]]:
    """Each command: the operator before it, words of the shell, its program if any, the rest."""
    operator, opened, begins, carried = ";", list[str](), True, False
    for at, word in enumerate(words):
        if word in ("(", "{") and begins:
            continue
        if word in _ENDS or word == "||":
            if opened:
                yield operator, opened, "", ()
            operator, opened, begins, carried = word, [], True, False
        elif begins and not carried and word in _OPENS:
            opened.append(word)
        elif begins and not ("=" in word or (carried and _PASSED.fullmatch(word))):
            carried = word in _CARRIERS
            begins = carried
            program = word if _NAME.fullmatch(word) else ""
            yield operator, opened, program, words[at + 1 :]
            opened = []
            operator = "" if carried else operator
    if opened:
        yield operator, opened, "", ()
