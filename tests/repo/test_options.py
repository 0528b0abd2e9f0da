"""Each option of a config is shown in use: in a config, on a page or in an example."""

import json
import re
import runpy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ale._config import structure_config
from ale._registry import Registry
from ale.errors import InputError, Problem
from ale.strict import Former, former_options, from_plain, structure

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]
COUNTS = runpy.run_path(str(ROOT / "docs/_ext/counts.py"))
CLASSES: set[type] = {cls for _, cls in COUNTS["offered"]()}
OPTIONS: Mapping[tuple[str, str], set[str]] = COUNTS["config_options"]()
"""Each option by the class that declares it, with the components that have it."""
SET_BY: Mapping[str, tuple[str, str]] = {
    "ale_llm_policy.options.ServersOptions": (
        "plugins/llm/ale-llm-policy/src/ale_llm_policy/servers.py",
        "follow",
    ),
    "ale_starts.options.PrefixOptions": (
        "plugins/training/ale-starts/src/ale_starts/commands.py",
        "episodes per_task step",
    ),
    "ale_tasks_harbor.options.TaskTestsOptions": (
        "plugins/tasks/ale-tasks-harbor/src/ale_tasks_harbor",
        "agent_needs artifacts collect env min_rewards next_agent_network record_key remove_tests "
        "restart_command restart_timeout_s result same_shell script separate_verifier tests "
        "tests_network timeout_s user",
    ),
    "ale_tasks_swe.options.SweTestsOptions": (
        "plugins/tasks/ale-tasks-swe/src/ale_tasks_swe/source.py",
        "base_commit fail_to_pass pass_to_pass test_patch",
    ),
}
"""Options that code sets and nobody writes: by their class, the code and their names."""


@cache
def shown() -> tuple[tuple[str, str], ...]:
    """Whole texts, and the code in them: configs, and on pages what is in fences and backticks."""
    found = [(text := path.read_text(), text) for path in tracked("configs/**/*.yaml")]
    found += [
        (text := path.read_text(), text) for path in tracked("configs/*.py", "examples/**/*.*")
    ]
    pages = tracked("README.md", "docs/*.md", "docs/how-to/*.md", "docs/tutorial/*.md")
    for page in (*pages, *tracked("plugins/*/*/README.md", "plugins/*/README.md")):
        text = re.sub(r"<!-- generated: .*?<!-- end -->", "", page.read_text(), flags=re.S)
        found.append((text, "\n".join(code_in(text))))
    return tuple(found)


def code_in(page: str) -> Iterator[str]:
    fence = r"^( *)(```+)[^\n]*\n(.*?)^\1\2"
    yield from (match[3] for match in re.finditer(fence, page, re.S | re.M))
    rest = re.sub(fence, "", page, flags=re.S | re.M)
    yield from re.findall(r"`([^`]+)`", rest)


def is_shown(name: str, components: set[str]) -> bool:
    """Does code set the option, in a text that names one of its components?"""
    sets = re.compile(rf"(?<![\w-])[\"']?{name}[\"']?\s*[:=](?!=)")
    names = [re.compile(rf"(?<![\w-]){re.escape(each)}(?![\w-])") for each in components]
    return any(
        any(each.search(text) for each in names) and sets.search(code) for text, code in shown()
    )


def test_each_option_is_shown_in_use_or_set_by_code() -> None:
    missing = defaultdict(list)
    for (owner, name), components in sorted(OPTIONS.items()):
        if not is_shown(name, components):
            missing[owner].append(name)
    by_code = {owner: names for owner, (_, names) in SET_BY.items()}
    assert {owner: " ".join(names) for owner, names in missing.items()} == by_code


@pytest.mark.parametrize("owner", SET_BY)
def test_the_code_that_sets_an_option_names_it(owner: str) -> None:
    place, names = SET_BY[owner]
    files = tracked(f"{place}/**" if (ROOT / place).is_dir() else place)
    code = "\n".join(path.read_text() for path in files if path.name != "options.py")
    assert [name for name in names.split() if not re.search(rf"\b{name}\b", code)] == []


FORMER = [
    pytest.param(cls, name, former, id=f"{cls.__name__}-{name}")
    for cls in sorted(CLASSES, key=lambda cls: cls.__qualname__)
    for name, former in former_options(cls).items()
]


@pytest.mark.parametrize(("cls", "name", "former"), FORMER)
def test_a_former_option_is_read_with_the_value_that_is_built_in(
    cls: type, name: str, former: Former
) -> None:
    """A stored run lists each option that its components had; `tests/core/data` has two."""
    assert problems_of(cls, {name: former.value}) == []
    (problem,) = problems_of(cls, {name: "another"})
    assert (problem.path, problem.message) == (name, "option was removed")


def problems_of(cls: type, values: Mapping[str, Any]) -> list[Problem]:
    """The problems that are about these options, and not about required ones."""
    try:
        structure(from_plain(values), cls)
    except InputError as error:
        return [problem for problem in error.problems if problem.path in values]
    return []


@pytest.mark.parametrize("manifest", tracked("tests/core/data/**/manifest.json"))
def test_the_config_of_a_run_of_an_earlier_version_is_read(manifest: Path) -> None:
    stored = json.loads(manifest.read_text())["config"]
    assert "grace_s" in stored["run"]
    config = structure_config(from_plain(stored, file=str(manifest)), Registry.installed())
    assert "grace_s" not in config.resolved["run"]


@pytest.mark.parametrize("code", ["wait_s: 3", '{"wait_s": 3}', "--set agent.wait_s=3"])
def test_what_counts_as_use(code: str) -> None:
    sets = re.compile(r"(?<![\w-])[\"']?wait_s[\"']?\s*[:=](?!=)")
    assert sets.search(code)
