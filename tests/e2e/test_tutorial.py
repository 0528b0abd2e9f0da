"""The tutorial is run as a reader would: block by block, in an environment of its own.

Shell blocks and files of the page are put into one script, in order, so that `cd` and the
environment last. A text block is what the shell block before it must have printed: its lines in
that order, each somewhere in a line of the output; ``...`` stands for lines in between.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "plugin.md"
_BLOCK = re.compile(r"^```\{code-block\} (\w+)\n((?::[^\n]*\n)?)\n?(.*?)^```$", re.M | re.S)
_MARK = "::::: block "


@frozen
class Block:
    """One block of the page."""

    language: str
    caption: str | None
    text: str


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(match[1], match[2].removeprefix(":caption: ").strip() or None, match[3])
        for match in _BLOCK.finditer(page)
    ]


def script(page: Sequence[Block]) -> str:
    """One shell script that does what the page says, and names each block that it begins."""
    return "set -e\n" + "".join(_lines(page))


def _lines(page: Sequence[Block]) -> Iterator[str]:
    for number, block in enumerate(page):
        yield f"echo '{_MARK}{number}'\n"
        if block.caption is not None:
            yield f"cat > {block.caption} <<'END OF FILE'\n{block.text}END OF FILE\n"
        elif block.language == "bash":
            yield block.text


def outputs(printed: str) -> Mapping[int, str]:
    """What each block printed."""
    parts = re.split(rf"^{re.escape(_MARK)}(\d+)\n", printed, flags=re.M)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def missing(expected: str, printed: str) -> str | None:
    """The first expected line that was not printed, or None."""
    lines = iter(printed.splitlines())
    for wanted in expected.splitlines():
        if wanted != "..." and not any(wanted in line for line in lines):
            return wanted
    return None


def local_packages(names: Sequence[str]) -> dict[str, Path]:
    """The folders of these packages and of all that they need of this repository."""
    found: dict[str, Path] = {}
    for name in names:
        folder = ROOT / "core" if name == "ale-core" else ROOT / "plugins" / name
        if folder.is_dir():
            project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
            needs = [re.split(r"[^A-Za-z0-9-]", line)[0] for line in project["dependencies"]]
            found |= {name: folder, **local_packages([need for need in needs if need != name])}
    return found


@pytest.fixture
def published(tmp_path: Path) -> Mapping[str, str]:
    """An environment in which pip finds the packages of this repository as if published."""
    named = sorted(set(re.findall(r"ale-[a-z-]+[a-z]", TUTORIAL.read_text())))
    packages = local_packages(named)
    wheels, builder = tmp_path / "wheels", tmp_path / "builder"
    subprocess.run([sys.executable, "-m", "venv", builder], check=True)
    pip = [builder / "bin" / "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels]
    subprocess.run([*pip, *packages.values()], check=True)
    pinned = tmp_path / "pinned.txt"
    names = [wheel.name.split("-")[:2] for wheel in sorted(wheels.iterdir())]
    pinned.write_text("".join(f"{name}=={version}\n" for name, version in names))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}",
        "PIP_CONSTRAINT": str(pinned),
        "PIP_FIND_LINKS": f"{wheels} {kept.get('PIP_FIND_LINKS', '')}",
    }


@pytest.mark.long
def test_every_block_of_the_tutorial_does_what_it_says(
    tmp_path: Path, published: Mapping[str, str]
) -> None:
    page = blocks(TUTORIAL.read_text())
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=folder,
        env=published,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed = outputs(done.stdout)
    last = max(printed)
    assert done.returncode == 0, f"block {last} failed:\n{page[last].text}\n{printed[last]}"
    for number, block in enumerate(page):
        if block.language == "text":
            line = missing(block.text, printed[number - 1])
            assert line is None, f"block {number}: {line!r} is not in\n{printed[number - 1]}"


def test_the_tutorial_is_read_whole() -> None:
    page = blocks(TUTORIAL.read_text())
    assert len(page) == TUTORIAL.read_text().count("\n```{code-block}")
    assert [block.language for block in page].count("text") >= 4
    assert page[0].text.startswith("python3 -m venv")
    assert [block.caption for block in page if block.language == "yaml"] == [
        "try/tasks/report-good.yaml",
        "try/tasks/report-bad.yaml",
        "try/run.yaml",
    ]


def test_a_line_that_was_not_printed_is_missed() -> None:
    assert missing("a\n...\nc", "0 a\nb\nc 1") is None
    assert missing("c\na", "a\nb\nc") == "a"
    assert missing("", "") is None
