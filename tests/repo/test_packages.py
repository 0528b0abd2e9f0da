"""Every package is whole: metadata, documents, tests, and the kit of what it offers."""

import ast
import functools
import importlib.metadata
import re
import runpy
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]
PLUGINS = [path.parent for path in tracked("plugins/*/*/pyproject.toml")]
KITS = {
    "ale_task_sources": "TaskSourceContract",
    "ale_sandboxes": "SandboxContract",
    "ale_llms": "(LLM|LLMServer|OpenAIServer|TrainablePolicy)Contract",
    "ale_agents": "AgentContract",
    "ale_criteria": "CriterionContract",
    "ale_step_scorers": "ScorerContract",
    "ale_chunkers": "ChunkerContract",
    "ale_credit_schemes": "CreditContract",
    "ale_starts": "StartSchemeContract",
    "ale_trainers": "TrainerContract",
    "ale_objectives": "ObjectiveContract",
    "ale_executors": "(Remote)?ExecutorContract",
    "ale_launchers": "LauncherContract",
    "ale_middleware": "MiddlewareContract",
    "ale_observers": "ObserverContract",
}

GROUPS = {
    "tasks": {"ale_task_sources"},
    "sandbox": {"ale_sandboxes"},
    "llm": {"ale_llms"},
    "agent": {"ale_agents", "ale_middleware"},
    "criteria": {"ale_criteria"},
    "credit": {"ale_chunkers", "ale_step_scorers", "ale_credit_schemes"},
    "training": {"ale_trainers", "ale_objectives", "ale_starts"},
    "observe": {"ale_observers"},
    "execution": {"ale_executors", "ale_launchers"},
    "commands": {"ale_commands", "ale_config_formats"},
}
"""The folders of `plugins/`, and the hooks that their packages implement."""

OPTIONAL = ("container", "nats", "tensorboard", "testing", "torch", "wandb")
"""Extras of packages with modules that only some of their users import."""

CLASSIFIERS = {
    "Development Status :: 3 - Alpha",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Typing :: Typed",
}

each_plugin = pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
each_package = pytest.mark.parametrize(
    "folder", [ROOT / "core", *PLUGINS], ids=lambda folder: folder.name
)


def project(folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return made


def source(folder: Path) -> Path:
    if folder.name == "ale-testing":  # its sources are the core's
        return ROOT / "core/src/ale/testing"
    (found,) = folder.glob("src/*/__init__.py")
    return found.parent


# It reads the list of files of everything that is installed.
owners_of_modules = functools.cache(importlib.metadata.packages_distributions)


@functools.cache
def trees(folder: Path) -> list[ast.Module]:
    """Its modules; what is uploaded to run inside a sandbox imports what stands there."""
    paths = [path for path in sorted(folder.rglob("*.py")) if path.parent.name != "inside"]
    return [ast.parse(path.read_text()) for path in paths]


@each_plugin
def test_a_package_has_its_documents_and_tests(folder: Path) -> None:
    for name in ("README.md", "CHANGELOG.md"):
        assert (folder / name).read_text().strip()
    assert "## [Unreleased]\n\n### Added\n" in (folder / "CHANGELOG.md").read_text()
    assert list((folder / "tests").rglob("test_*.py"))
    if folder.name != "ale-testing":
        assert (source(folder) / "py.typed").exists()
        assert source(folder).name == folder.name.replace("-", "_")


@each_plugin
def test_a_package_says_what_it_is_and_which_core_it_fits(folder: Path) -> None:
    about = project(folder)
    assert about["name"] == folder.name
    assert about["description"].endswith(".")
    assert about["requires-python"] == ">=3.11"
    assert about["license"] == "Apache-2.0"
    cores = [line for line in about.get("dependencies", []) if line.startswith("ale-core")]
    assert cores == ["ale-core>=0.1,<0.2"]


@each_package
def test_a_package_can_be_uploaded(folder: Path) -> None:
    """Licence text, authors and classifiers are in its metadata, and so in its wheel and sdist."""
    about = project(folder)
    assert about["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert about["authors"] == [{"name": "The ale authors"}]
    assert set(about["classifiers"]) == CLASSIFIERS


@each_package
def test_versions_and_pins_agree_with_the_core(folder: Path) -> None:
    version = project(ROOT / "core")["version"]
    assert project(folder)["version"] == project(ROOT)["version"] == version
    major, minor = map(int, version.split(".")[:2])
    own = {"ale-core", *(each.name for each in PLUGINS)}
    extras = project(folder).get("optional-dependencies", {}).values()
    in_group = needs_and_tests(folder)
    for line in (*in_group, *(line for extra in extras for line in extra)):
        if _normal(line) in own:
            assert line.endswith(f">={major}.{minor},<{major}.{minor + 1}"), line


@each_plugin
def test_a_package_stands_in_the_group_of_what_it_registers(folder: Path) -> None:
    """A library says so by its folder and its keyword, and two or more packages use it."""
    group = folder.parent.name
    library = group == "libraries"
    assert project(folder)["keywords"] == ["ale-library" if library else "ale-plugin"]
    assert ("entry-points" in project(folder)) != library
    if library:
        users = [other for other in PLUGINS if folder.name in map(_normal, needs_and_tests(other))]
        assert len(users) >= 2, f"only {users} use it: move it there"
    else:
        assert GROUPS[group] & set(_answered(folder)), f"nothing in it belongs into {group}/"


def needs(folder: Path) -> list[str]:
    return list(project(folder).get("dependencies", []))


def needs_and_tests(folder: Path) -> list[str]:
    """A library may be for tests alone."""
    groups = tomllib.loads((folder / "pyproject.toml").read_text())["dependency-groups"]
    return [*needs(folder), *groups["test"]]


@each_plugin
def test_a_package_declares_what_it_imports(folder: Path) -> None:
    """The shared environment would hide an undeclared import until a user meets it."""
    extras = project(folder).get("optional-dependencies", {})
    optional = [line for name in OPTIONAL for line in extras.get(name, ())]
    declared = {_normal(line) for line in (*needs(folder), *optional)}
    assert undeclared(trees(source(folder)), {*declared, folder.name}) == set()


@each_plugin
def test_a_package_declares_what_its_tests_import(folder: Path) -> None:
    """`nox -s plugin` installs nothing else, and what that needs."""
    extras = project(folder).get("optional-dependencies", {}).values()
    lines = [*needs_and_tests(folder), *(line for extra in extras for line in extra)]
    declared = {folder.name, *map(_normal, lines)}
    for _ in range(3):  # as deep as packages need each other here
        declared |= {_normal(line) for name in declared for line in required(name)}
    found = undeclared(trees(folder / "tests"), {*declared, "pytest", "pytest-asyncio"})
    # Of ale-vllm's, a long test trains what a real vLLM samples from: `nox -s vllm`.
    trained = {"ale_llm_policy", "peft", "safetensors", "torch"}
    assert found == (trained if folder.name == "ale-vllm" else set())


@functools.cache
def required(package: str) -> list[str]:
    """What an installed package needs, without its extras."""
    try:
        lines = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [line for line in lines if "extra ==" not in line]


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("import yaml", "yaml"),
        ("def build():\n    from torch.nn import Linear", "torch"),
        ("if TYPE_CHECKING:\n    import ale_grading.answers as answers", "ale_grading"),
    ],
)
def test_an_undeclared_import_is_found_wherever_it_stands(code: str, module: str) -> None:
    declared = {"attrs", "ale-credit"}
    known = ast.parse("import ale.plugin, attrs, json\nfrom ale_credit import options")
    assert undeclared([known, ast.parse(code)], declared) == {module}


def undeclared(modules: list[ast.Module], declared: set[str]) -> set[str]:
    """The modules that these import although no declared package has them."""
    owners = owners_of_modules()
    local = {path.name: path.parents[1].name for path in map(source, PLUGINS)}
    found = set()
    for module in _imports(modules) - set(sys.stdlib_module_names) - {"ale"}:
        packages = {_normal(name) for name in owners.get(module, [module])}
        if not {*packages, local.get(module, "")} & {*declared, "ale-core"}:
            found.add(module)
    return found


def _imports(modules: list[ast.Module]) -> set[str]:
    found = set()
    for module in modules:
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add((node.module or "").partition(".")[0])
    return found


def _normal(requirement: str) -> str:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


@each_plugin
def test_what_a_package_offers_passes_its_contract_kit(folder: Path) -> None:
    tested = "\n".join(path.read_text() for path in (folder / "tests").rglob("*.py"))
    for hook in _answered(folder):
        if hook in KITS:
            derived = re.search(rf"class \w+\(.*\b{KITS[hook]}\b", tested)
            assert derived, f"no test derives from the kit of {hook}"


def _answered(folder: Path) -> set[str]:
    return {
        node.name
        for module in trees(source(folder))
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("ale_")
    }


def test_every_hook_is_documented_and_answered_by_a_package() -> None:
    from ale import hookspecs

    answered = set().union(*(_answered(folder) for folder in PLUGINS))
    hooks = [name for name in dir(hookspecs) if name.startswith("ale_")]
    assert set(KITS) < set(hooks)
    for hook in hooks:
        text = getattr(hookspecs, hook).__doc__ or ""
        assert len(text.splitlines()) >= 1, f"{hook} has no docstring"
        assert re.match(r"(Register|Add|Called) .+[.,]", text), f"{hook} does not say what it is"
        assert hook in answered, f"no package answers {hook}"


def test_what_makes_a_component_is_where_its_name_says_and_needs_nothing_else() -> None:
    from ale._registry import KINDS, Registry

    registry = Registry.installed()
    components = [one.component for kind in KINDS for one in registry.registrations(kind)]
    named = [each._build for each in components if isinstance(each._build, str)]
    assert len(named) > 40
    for each in named:
        module, _, name = each.partition(":")
        spec = find_spec(module)
        assert spec is not None, each
        assert spec.origin is not None, each
        body = ast.parse(Path(spec.origin).read_text()).body
        (found,) = [one for one in body if getattr(one, "name", None) == name]
        if isinstance(found, ast.FunctionDef):
            taken = {one.arg for one in (*found.args.args, *found.args.kwonlyargs)}
            assert taken <= {"options", "context"}, each


def test_every_option_of_every_component_is_documented() -> None:
    from ale._config.describe import describe_options
    from ale._registry import KINDS, Registry

    registry = Registry.installed()
    bare = [
        f"{registration.full_name}: {option.name}"
        for kind in KINDS
        for registration in registry.registrations(kind)
        if registration.component.options is not None
        for option in describe_options(registration.component.options)
        if not option.doc
    ]
    assert not bare
