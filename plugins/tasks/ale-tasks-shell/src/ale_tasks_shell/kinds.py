"""The kinds of steps, in a table.

Append new kinds at the end: which sequences are held out depends on the index (`planner`).
"""

from collections.abc import Mapping
from typing import Any

from ale_tasks_shell import effects
from ale_tasks_shell.contents import FILES, FOLDER, GIVEN
from ale_tasks_shell.effects import Change, column, plain, written
from ale_tasks_shell.kind import Effect, Kind
from ale_tasks_shell.scene import ARCHIVE


def _same(*types: str) -> dict[str, tuple[str, ...]]:
    return {type_: (type_,) for type_ in types}


def _to(made: str, *types: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(types, (made,))


def _or_few(*unchanged: str) -> dict[str, tuple[str, ...]]:
    """Files of these types retain their type; others become ``few``."""
    return {**_to("few", *FILES), **_same(*unchanged)}


_TREES = {FOLDER: GIVEN, **_same(*FILES)}


def _kind(
    name: str,
    goal: str,
    command: str | tuple[str, ...],
    becomes: Mapping[str, tuple[str, ...]],
    effect: Effect,
    **more: Any,
) -> Kind:
    commands = (command,) if isinstance(command, str) else command
    return Kind(name=name, goal=goal, commands=commands, becomes=becomes, effect=effect, **more)


def _reader(
    name: str, goal: str, command: str, becomes: Mapping[str, tuple[str, ...]], change: Change
) -> Kind:
    return _kind(name, goal, command, becomes, written(change), reads=True, spares=True)


_MANY = ("words", "table", "numbers", "tidy")
_PLAIN = ("words", "tidy")
_ARCHIVES = tuple(type_ + ARCHIVE for type_ in FILES)
_NAMED = {"word": GIVEN}

KINDS: tuple[Kind, ...] = (
    _kind("write", "Write the word {w} to {b}.", "echo {w} > {b}", {"": ("word",)}, effects.write),
    _kind(
        "write_inside", "Write the word {w} to {b}.", "echo {w} > {b}",
        _to("word", FOLDER), effects.write_inside,
    ),
    _kind(
        "make_folders", "Make the folders {a} and {b}.", "mkdir {a} {b}",
        {"": (FOLDER,)}, effects.folders,
    ),
    _kind("make_inside", "Make the folder {b}.", "mkdir {b}", _same(FOLDER), effects.folder_inside),
    _reader("copy", "Copy {a} to {b}.", "cp {a} {b}", _same(*FILES), plain(tuple)),
    _kind("rename", "Rename {a} to {b}.", "mv {a} {b}", _same(FOLDER, *FILES), effects.rename),
    _kind(
        "copy_inside", "Copy {a} into the folder {b}.", "cp {a} {b}", _TREES, effects.copy_inside,
        reads=True,
    ),
    _kind(
        "move_inside", "Move {a} into the folder {b}.", "mv {a} {b}", _TREES, effects.move_inside
    ),
    _kind(
        "delete", "Delete {a} and {b}.", "rm {a} {b}",
        {"": ("",), **_same(FOLDER, *FILES, *_ARCHIVES)}, effects.delete, deletes_source=True,
    ),
    _kind(
        "append", "Add the line {w} to {a}.", "echo {w} >> {a}",
        _or_few("words", "tidy"), effects.append,
    ),
    _kind(
        "replace", "Replace {w} with {v} in {a}.", "sed -i s/{w}/{v}/ {a}",
        _same("words", "table", "tidy"), effects.replace,
    ),
    _reader(
        "count", "Write the number of lines of {a} to {b}.", "wc -l < {a} > {b}",
        _to("number", *_MANY, "few"), plain(lambda lines: [str(len(lines))]),
    ),
    _reader(
        "sort", "Write the lines of {a} sorted to {b}.", "sort {a} > {b}",
        {"words": ("tidy",), "table": ("few",)}, plain(sorted),
    ),
    _reader(
        "unique", "Write the lines of {a} sorted and once each to {b}.", "sort -u {a} > {b}",
        {"words": ("tidy",)}, plain(lambda lines: sorted(set(lines))),
    ),
    _reader(
        "reverse", "Write the lines of {a} from last to first to {b}.", "tac {a} > {b}",
        {**_same("tidy", "numbers"), "words": ("tidy",), "table": ("few",)},
        plain(lambda lines: lines[::-1]),
    ),
    _reader(
        "upper", "Write the lines of {a} in capital letters to {b}.", "tr a-z A-Z < {a} > {b}",
        _to("few", "words", "table", "tidy", "word"),
        plain(lambda lines: [line.upper() for line in lines]),
    ),
    _reader(
        "pick", "Write the lines of {a} with {w} to {b}.", "grep {w} {a} > {b}",
        _to("few", "words", "table"), effects.with_word,
    ),
    _reader(
        "drop", "Write the lines of {a} without {w} to {b}.", "grep -v {w} {a} > {b}",
        {"words": ("tidy",), "table": ("few",)}, effects.without_word,
    ),
    _reader(
        "line", "Write line {n} of {a} to {b}.", "sed -n {n}p {a} > {b}",
        {**_to("word", *_PLAIN), "numbers": ("number",)}, effects.nth,
    ),
    _reader(
        "head", "Write the first {n} lines of {a} to {b}.", "head -n {n} {a} > {b}",
        _to("few", *_MANY), effects.first,
    ),
    _reader(
        "tail", "Write the last {n} lines of {a} to {b}.", "tail -n {n} {a} > {b}",
        _to("few", *_MANY), effects.last,
    ),
    _reader(
        "names", "Write the words of {a} without the numbers to {b}.", "cut -d ' ' -f 1 {a} > {b}",
        {"table": ("words",)}, column(0),
    ),
    _reader(
        "numbers", "Write the numbers of {a} without the words to {b}.",
        "cut -d ' ' -f 2 {a} > {b}", {"table": ("numbers",)}, column(1),
    ),
    _reader(
        "largest", "Write the largest number of {a} to {b}.", "sort -n {a} | tail -n 1 > {b}",
        {"numbers": ("number",)}, plain(lambda lines: [max(lines, key=int)]),
    ),
    _reader(
        "sum", "Write the sum of the numbers of {a} to {b}.",
        "awk '{{n += $1}} END {{print n}}' {a} > {b}",
        {"numbers": ("number",)}, plain(lambda lines: [str(sum(map(int, lines)))]),
    ),
    _kind(
        "join", "Write the lines of {a} and then of {c} to {b}.", "cat {a} {c} > {b}",
        _or_few("words", "tidy"), effects.join, reads=True, spares=True,
    ),
    _kind(
        "make_executable", "Make {a} and {b} executable.", "chmod +x {a} {b}",
        _same(*FILES), effects.make_executable,
    ),
    _kind("link", "Make {b} a symbolic link to {a}.", "ln -s {a} {b}", _same(*FILES), effects.link),
    _kind(
        "pack", "Pack {a} into {b}.", "tar -cf {b} {a}",
        {type_: (type_ + ARCHIVE,) for type_ in FILES}, effects.pack, spares=True,
    ),
    _kind(
        "unpack", "Unpack {a} into a new folder {b}.", ("mkdir {b}", "tar -xf {a} -C {b}"),
        {type_ + ARCHIVE: (type_,) for type_ in FILES}, effects.unpack,
    ),
    _kind(
        "copy_named", "Copy the file that {a} names to {b}.", ("cat {a}", "cp {w} {b}"),
        _NAMED, effects.copy_named, reads=True, spares=True,
    ),
    _kind(
        "rename_named", "Rename the file that {a} names to {b}.", ("cat {a}", "mv {w} {b}"),
        _NAMED, effects.rename_named, reads=True, spares=True,
    ),
    _kind(
        "write_named", "Write the word {b} to the file that {a} names.",
        ("cat {a}", "echo {b} > {w}"), {"word": ("",)}, effects.write_named,
        reads=True, spares=True,
    ),
    _kind(
        "copy_named_twice", "The file that {a} names also names a file. Copy that one to {b}.",
        ("cat {a}", "cat {w}", "cp {v} {b}"), _NAMED, effects.copy_named_twice,
        reads=True, spares=True,
    ),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
