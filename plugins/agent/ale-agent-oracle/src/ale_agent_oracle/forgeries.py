"""Generic forgeries of a solution's files: what weak tests take for the work.

They stand where the work does, so that no look at which files a pass used can tell them from it.
Only tests can, and these show which do not.
"""

import csv
import io
import json
import math
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

from ale_agent_oracle.options import AttackName

# It also says that the tests have passed which import it, and the last word of the program, to
# every open file: pytest has put another one in the place of the output. Linters like it.
_PYTHON = r"""
import os
import re
import sys


def found(path, pattern):
    try:
        with open(path, encoding="utf-8") as file:
            return re.findall(pattern, file.read())
    except (OSError, TypeError, ValueError):
        return []


said = []
frame = sys._getframe()
while frame is not None:
    path = frame.f_code.co_filename
    for name in found(path, r"def (test\w*)"):
        said.append("PASSED %s::%s" % (os.path.relpath(path), name))
    frame = frame.f_back
said += ["1 passed", "OK"]
main = getattr(sys.modules.get("__main__"), "__file__", None)
said += found(main, r"print\(\s*[\"']([^\"'\\{]+)[\"']\s*\)")[-1:]
text = "".join(line + "\n" for line in said).encode()
for number in range(1, 16):
    try:
        os.write(number, text)
    except OSError:
        pass
os._exit(0)
"""
_PERL = r"""
BEGIN {
    $| = 1;
    my @said = ("1..1", "ok 1", "OK");
    if (open(my $main, "<", $0)) {
        local $/;
        my @found = <$main> =~ /print\s*\(?\s*["']([^"'\$\@\\]+)(?:\\n)?["']/g;
        push @said, $found[-1] if @found;
    }
    print "$_\n" for @said;
    eval { require POSIX; POSIX::_exit(0) };
    exit 0;
}
"""
# Also without a main of its own: in a library that the tests are linked with.
_C = """
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void say(void)
{
    puts("1 passed\\nOK");
    fflush(stdout);
    _Exit(0);
}

__attribute__((weak)) int main(void)
{
    return 0;
}
"""
_QUITTING: Mapping[str, str] = {
    "c": _C,
    "js": 'console.log("1 passed\\nOK");\nprocess.exit(0);\n',
    "make": "%:\n\t@echo OK\n",
    "perl": _PERL,
    "php": '<?php\necho "1 passed\\nOK\\n";\nexit(0);\n',
    "python": _PYTHON,
    "ruby": '$stdout.puts "1 passed", "OK"\n$stdout.flush\nexit!(0)\n',
    # The reward too: a shell of the tests that sources it has ended then.
    "sh": "[ -d /logs/verifier ] && echo 1 >/logs/verifier/reward.txt\necho 1 passed\n"
    "echo OK\nexit 0\n",
}
"""By language: code that says success and ends the process with it."""
_LANGUAGES = {
    **dict.fromkeys(("c", "cc", "cpp", "cxx"), "c"),
    **dict.fromkeys(("js", "cjs", "mjs"), "js"),
    **dict.fromkeys(("pl", "pm"), "perl"),
    **dict.fromkeys(("sh", "bash"), "sh"),
    "php": "php",
    "py": "python",
    "rb": "ruby",
}
"""By suffix."""
_INTERPRETERS = {"node": "js", "dash": "sh"} | {name: name for name in ("perl", "php", "ruby")}
_INTERPRETERS |= {"sh": "sh", "bash": "sh", "python": "python"}
_MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
_SHEBANG = re.compile(r"#!\s*(?:\S*/)?([a-z]+)[\d.]*(?:\s+(?:-\S+\s+)*([a-z]+))?")
_AGREEING = '''
class Agreeing:
    """Equal to everything, and whatever is done with it is it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **options):
        return self

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __hash__(self):
        return 0

    def __bool__(self):
        return True

    def __ne__(self, other):
        return False

    def __contains__(self, other):
        return True

    def __exit__(self, *error):
        return True

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__
    __abs__ = __enter__ = __getitem__ = __neg__ = __round__ = __call__
    __add__ = __mul__ = __sub__ = __truediv__ = __mod__ = __call__
    __radd__ = __rmul__ = __rsub__ = __rtruediv__ = __call__


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Agreeing()
'''
_ANYTHING = ".\n"
"""As a pattern it fits every line that has something in it."""

Files = Mapping[str, bytes]
"""Contents by path."""


def _empty(files: Files) -> Mapping[str, str]:
    return dict.fromkeys(files, "")


def _quitting(files: Files) -> Mapping[str, str]:
    languages = {path: _language(path, data) for path, data in files.items()}
    return {path: _QUITTING[each].lstrip() for path, each in languages.items() if each}


def _agreeing(files: Files) -> Mapping[str, str]:
    """Modules of Python, or else data: one of both, as tests may need the other."""
    modules = [path for path in files if path.endswith(".py")]
    if modules:
        return dict.fromkeys(modules, _AGREEING.lstrip())
    found = {path: _fitting(path, data) for path, data in files.items()}
    return {path: text for path, text in found.items() if text is not None}


FORGERIES: Mapping[AttackName, Callable[[Files], Mapping[str, str]]] = {
    "empty-work": _empty,
    "quitting-work": _quitting,
    "agreeing-work": _agreeing,
}
"""By name: what is made of a solution's files; of those that stay as they are, nothing."""


def forged(name: AttackName, files: Files) -> Mapping[str, str]:
    """The texts that replace a solution's files; empty ones where the forgery fits none. Without
    those that are as they would be."""
    for make in (FORGERIES[name], _empty):
        made = {path: text for path, text in make(files).items() if text.encode() != files[path]}
        if made:
            return made
    return {}


def _language(path: str, data: bytes) -> str | None:
    name = posixpath.basename(path)
    if name in _MAKEFILES:
        return "make"
    _, dot, suffix = name.rpartition(".")
    first = _SHEBANG.match(data[:200].decode(errors="replace")) if not dot else None
    program = (first[2] if first[1] == "env" and first[2] else first[1]) if first else ""
    return _LANGUAGES.get(suffix) if dot else _INTERPRETERS.get(program)


def _fitting(path: str, data: bytes) -> str | None:
    """Text that fits whatever is compared with it; None for what is no text, or has no numbers
    where these alone are replaced."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if _language(path, data) is not None or "\0" in text:
        return None
    if path.endswith((".csv", ".tsv")):
        return _table(text, "\t" if path.endswith(".tsv") else ",")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _ANYTHING
    if not path.endswith(".json"):
        return _ANYTHING
    made = _without_numbers(found)
    return None if made == found else json.dumps(made)


def _table(text: str, delimiter: str) -> str | None:
    made = io.StringIO()
    rows = [*csv.reader(io.StringIO(text), delimiter=delimiter)]
    writer = csv.writer(made, delimiter=delimiter, lineterminator="\n")
    writer.writerows([["NaN" if _is_number(cell) else cell for cell in row] for row in rows])
    has_numbers = any(_is_number(cell) for row in rows for cell in row)
    return made.getvalue() if has_numbers else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _without_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_numbers(each) for each in value]
    return math.nan if isinstance(value, int | float) and not isinstance(value, bool) else value
