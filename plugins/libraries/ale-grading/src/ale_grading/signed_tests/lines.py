"""The programs and modules that a line of shell needs, as far as the line itself says it."""

import re
import shlex
from collections.abc import Iterator, Sequence

from ale_grading.signed_tests.tools import Look

_OWN_WAY = re.compile(
    r"\|\||<<|\(\)|(?:^|[\s;&(])(?:!|if|while|until|case|for|function|alias|trap|which|type|hash|"
    r"command|eval|PATH=\S*|export)(?=[\s;]|$)"
)
"""A line that handles what is missing, defines names, or changes the path is not looked into."""
_ENDS = frozenset({";", "&", "&&", "|", "|&", "(", "{"})
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
    """Each program with the words after it."""
    begins, carried = True, False
    for at, word in enumerate(words):
        if word in _ENDS:
            begins, carried = True, False
        elif begins and not ("=" in word or (carried and _PASSED.fullmatch(word))):
            carried = word in _CARRIERS
            begins = carried
            if _NAME.fullmatch(word):
                yield word, words[at + 1 :]
