"""Pages that name the code name what is there, and a code host shows all of them."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ale import hookspecs
from ale._cli.main import cli
from ale._config.load import select
from ale._config.model import PARTS, RunOptions
from ale._registry import Registry
from ale.strict import parse_yaml, structure

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if not {"_build", "generated"} & {*path.parts}
]


def test_the_generated_parts_of_pages_are_those_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "docs/_ext/ale_reference"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not checked.stderr, checked.stderr
    assert not checked.returncode, (
        f"`nox -s reference` (or `python docs/_ext/ale_reference`) writes\n{checked.stdout}"
    )


def test_a_page_has_nothing_that_sphinx_alone_can_show() -> None:
    """A code block is one everywhere; what these would include is missing on a code host."""
    alone = re.compile(r"\{(?:include|eval-rst|toctree|raw|literalinclude|download|py:\w+)\}")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in PAGES
        for match in alone.finditer(path.read_text())
    ]
    assert not found, "write Markdown, or <!-- generated: NAME --> and <!-- end -->"
    assert len(PAGES) > 90


PLACES = re.compile(r"((?:`\w+`(?:, | and )?)+) in\s+\[[^\]]+\]\(\.\./([^)]+\.py)\)")


def test_the_page_that_follows_a_run_names_functions_where_they_are() -> None:
    text = (ROOT / "docs/one-run.md").read_text()
    named = [(re.findall(r"\w+", names), path) for names, path in PLACES.findall(text)]
    assert len(named) > 30
    for names, path in named:
        source = (ROOT / path).read_text()
        for name in names:
            assert re.search(rf"^ *(?:async )?(?:def|class) {name}\b", source, re.M), (name, path)


def test_each_of_the_five_questions_is_answered_in_three_files() -> None:
    text = (ROOT / "docs/one-run.md").read_text()
    _, *answers = text[text.index("## Five questions") :].split("\n### ")
    assert len(answers) == 5
    for answer in answers:
        assert [*re.findall(r"^(\d)\. ", answer, re.M)] == ["1", "2", "3"], answer


def offered(page: str) -> list[str]:
    """The code in the last column of the tables of a page, and in its lists."""
    lines = [line for line in page.splitlines() if line.startswith(("| ", "- ", "  "))]
    last = [line.rstrip(" |").rpartition(" | ")[2] for line in lines if "|---" not in line]
    return [code for cell in last for code in re.findall(r"`([^`]+)`", cell)]


def test_every_key_beside_those_of_other_frameworks_is_one() -> None:
    registry = Registry.installed()
    given = offered((ROOT / "docs/coming-from.md").read_text())
    sections = [each for each in given if re.match(r"\w+: \{", each)]
    assert len(sections) > 30
    for text in sections:
        node = parse_yaml(text, file="docs/coming-from.md")
        ((section, part),) = (node.mapping or {}).items()
        if section == "run":
            structure(part, RunOptions, path="run")
        else:
            assert section in PARTS, text
            select(part, section, registry, path=section)
    for text in set(given) - set(sections):
        assert resolves(text), text


def resolves(text: str) -> bool:
    """Is it a command, a hook, a public name or, in a sentence, an option or an agent?"""
    if text.startswith("ale "):
        return text.split()[1] in cli.list_commands(click.Context(cli))
    if text.startswith("ale_"):
        return hasattr(hookspecs, text)
    if text.startswith("ale."):
        module, _, name = text.rpartition(".")
        return hasattr(importlib.import_module(module), name)
    return text in ("ale", "--resume RUN")


def test_every_command_names_what_it_writes_in_one_way() -> None:
    """ALE-lite's programs have ``--out`` too."""

    def options(group: click.Group) -> Iterator[tuple[str, str]]:
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            if isinstance(command, click.Group):
                yield from options(command)
            elif command is not None:
                yield from ((name, each) for param in command.params for each in param.opts)

    found = [(name, option) for name, option in options(cli) if re.match("--out(?!come)", option)]
    assert {option for _, option in found} == {"--out"}, found
    assert len(found) > 10
