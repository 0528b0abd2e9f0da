"""Install commands of messages and pages work in a clone too, and are up to date."""

import ast
import importlib.metadata
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from ale.runs import Registry

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]
FOLDERS = [path.parent for path in tracked("plugins/*/*/pyproject.toml")]
OURS = {"ale-core", *(folder.name for folder in FOLDERS)}
IN_A_CLONE = "in a clone"
"""A hint that names one of our packages says what to type in a clone, which has them already."""


def hints(folder: Path) -> Iterator[str]:
    """Texts of a package's code, docstrings apart, that have such a command."""
    for file in sorted(folder.glob("src/**/*.py")):
        tree = ast.parse(file.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and id(node) not in docs and "pip install" in text:
                yield text


def required(folder: Path, *, extras: bool = True) -> set[str]:
    """What a package requires, with and without its extras."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    optional = project.get("optional-dependencies", {}) if extras else {}
    return {*project.get("dependencies", ()), *(each for of in optional.values() for each in of)}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_command_that_installs_something_is_right(folder: Path) -> None:
    for hint in hints(folder):
        for command in re.findall(r"pip install ((?:[^;:,]|[,:](?! ))+)", hint):
            for word in shlex.split(command):
                name = re.split(r"[\[<>=]", word)[0]
                if name in OURS and "--upgrade" not in command:
                    assert IN_A_CLONE in hint, f"{hint!r}: {name} may be on no index"
                elif re.search("[<>=]", word):
                    assert word in required(folder), f"{hint!r}: pyproject.toml has another {name}"


def test_what_a_probe_says_to_install_is_on_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose probe runs is installed: what it lacks is of others."""

    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    registry = Registry.installed()
    monkeypatch.setattr(importlib.metadata, "version", nothing)
    asked = 0
    for kind in ("llm", "trainer", "executor", "launch", "observer"):
        for registration in registry.registrations(kind):
            found = registration.probe()
            if found is not None and found.remedy is not None and "pip install" in found.remedy:
                asked += 1
                assert not {*re.findall(r"[a-z0-9-]+", found.remedy)} & OURS, registration.full_name
    assert asked > 10


PAGES = tracked("README.md", "docs/**/*.md", "core/README.md", "plugins/*/*/README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_what_to_type_in_a_clone_for_an_extra(page: Path) -> None:
    """A clone has our packages; what an extra of theirs adds has another name on an index."""
    for paragraph in page.read_text().split("\n\n"):
        extras = set(re.findall(r"(ale-[a-z0-9-]+)\[", paragraph)) & OURS
        assert not extras or IN_A_CLONE in paragraph, f"{page}: {extras}: {paragraph}"


TYPED = tracked("README.md", "AGENTS.md", "CONTRIBUTING.md", "docs/index.md", "docs/packages.md")


def typed_installs(page: Path) -> Iterator[tuple[str, str]]:
    """Folder and extras of each `pip install` on a page that installs a folder of the clone."""
    for arguments in re.findall(r"pip install ([^`#\n]+)", page.read_text()):
        for word in shlex.split(arguments):
            if found := re.fullmatch(r"(\.[^\[]*)(?:\[(.+)\])?", word):
                yield found[1], found[2] or ""


@pytest.mark.parametrize("page", TYPED, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_says_to_install_from_a_clone_is_there(page: Path) -> None:
    made = re.findall(r"^ale new \S+ (\S+)$", page.read_text(), re.MULTILINE)
    asked = [each for each in typed_installs(page) if each[0].removeprefix("./") not in made]
    assert asked
    for folder, extras in asked:
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert {*filter(None, extras.split(","))} <= {*project.get("optional-dependencies", {})}


def test_uv_finds_what_the_starter_needs_in_the_clone() -> None:
    assert ("./plugins/ale-starter", "") in typed_installs(ROOT / "README.md")
    command = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--offline"]
    command += ["--python", sys.executable, "./plugins/ale-starter"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^ \+ (ale-\S+) @ file://", done.stderr, re.MULTILINE)
    starter = ROOT / "plugins/ale-starter/pyproject.toml"
    needed = tomllib.loads(starter.read_text())["project"]["dependencies"]
    assert {re.split("[<>=]", line)[0] for line in needed} <= {*found}
