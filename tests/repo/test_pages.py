"""What pages and READMEs say is so: links, packages, examples of configs."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ale._config.load import select
from ale._config.model import PARTS, RunOptions
from ale._registry import Registry
from ale.strict import Node, parse_yaml, structure

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]
DOCS = ROOT / "docs"
ADDRESSES: dict[str, Any] = runpy.run_path(str(ROOT / "core/workspace/addresses.py"))
WRITTEN = tracked("docs/**/*.md")
READMES = tracked("README.md", "core/*.md", "plugins/*/*/*.md")
SECTIONS = {*PARTS, "launch", "middleware", "scorers", "evaluation", "observers", "run", "extends"}
LISTS = {"middleware": "middleware", "scorers": "scorer", "observers": "observer"}

each_page = pytest.mark.parametrize(
    "page", [*READMES, *WRITTEN], ids=lambda path: str(path.relative_to(ROOT))
)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.installed()


@each_page
def test_a_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path = target.partition("#")[0]
        of_repository = ADDRESSES["addressed_file"](path)
        if not path or (":" in path and of_repository is None):
            continue
        linked = of_repository or (page.parent / path).resolve()
        assert linked.exists(), target


@each_page
def test_a_test_that_a_page_names_is_there(page: Path) -> None:
    for named in re.findall(
        r"`((?:tests/(?:core|e2e|repo|bench)|plugins)/[\w./-]+)`", page.read_text()
    ):
        assert (ROOT / named).exists(), named


def test_the_table_of_packages_has_every_package_and_no_other() -> None:
    text = (DOCS / "packages.md").read_text()
    linked = set(re.findall(r"\]\(\.\./plugins/[a-z]+/([a-z0-9-]+)/README\.md\)", text))
    assert linked == {path.parent.name for path in tracked("plugins/*/*/pyproject.toml")}


def configs(page: Path) -> Iterator[Node]:
    """The examples of configs on a page, whole ones and single sections."""
    fences = re.findall(
        r"^```(?:yaml|\{code-block\} yaml\n(?::[^\n]*\n)?)\n(.*?)^```$",
        page.read_text(),
        re.M | re.S,
    )
    for text in fences:
        node = parse_yaml(text, file=str(page))
        if node.mapping and {*node.mapping} <= SECTIONS:
            yield node


@each_page
def test_an_example_of_a_config_is_one(page: Path, registry: Registry) -> None:
    for config in configs(page):
        for kind in (*PARTS, "launch"):
            part = config.get(kind)
            if part is not None and part.get("type") is not None:
                select(part, kind, registry, path=kind)
        evaluation = config.get("evaluation")
        if evaluation is not None:
            select(evaluation.get("tasks"), "tasks", registry, path="evaluation.tasks")
        for section, kind in LISTS.items():
            listed = config.get(section)
            for item in (listed and listed.items) or []:
                select(item, kind, registry, path=section)
        run = config.get("run")
        if run is not None:
            structure(run, RunOptions, path="run")


def test_examples_of_configs_are_found() -> None:
    found = [page for page in (*READMES, *WRITTEN) if list(configs(page))]
    assert len(found) > 12
    assert {ROOT / "README.md", DOCS / "index.md", DOCS / "how-to" / "use-a-model.md"} <= {*found}
