"""What is written for each kind: quickly as modules, then for real in a fresh environment."""

import ast
import asyncio
import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ale import protocols
from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale_workbench.new.about import About
from ale_workbench.new.kinds import COMMAND, KINDS, Kind
from ale_workbench.new.names import names
from ale_workbench.new.writing import render, write

ROOT = Path(__file__).parents[5]
REGISTERED: Mapping[str, tuple[str, type, Mapping[str, Any]]] = {
    "tasks": ("ale_task_sources", protocols.TaskSource, {"path": Path("tasks.jsonl")}),
    "sandbox": ("ale_sandboxes", protocols.SandboxBackend, {}),
    "llm": ("ale_llms", protocols.LLM, {}),
    "agent": ("ale_agents", protocols.Agent, {}),
    "middleware": ("ale_middleware", protocols.Middleware, {}),
    "criterion": ("ale_criteria", protocols.Criterion, {"path": "a.txt"}),
    "chunker": ("ale_chunkers", protocols.Chunker, {}),
    "scorer": ("ale_step_scorers", protocols.StepScorer, {}),
    "credit": ("ale_credit_schemes", protocols.CreditScheme, {}),
    "starts": ("ale_starts", protocols.StartScheme, {}),
    "trainer": ("ale_trainers", protocols.Trainer, {}),
    "objective": ("ale_objectives", protocols.Objective, {}),
    "observer": ("ale_observers", object, {}),
    "executor": ("ale_executors", protocols.Executor, {}),
    "launch": ("ale_launchers", protocols.Launcher, {}),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)


def distribution(kind: Kind) -> str:
    return f"ale-{kind.prefixes[0]}-third-party"


@every_kind
def test_every_file_is_filled_in(kind: Kind) -> None:
    for path, text in render(kind, names(distribution(kind), kind), About()).items():
        assert not re.search(r"\$[{a-z]", text), path
        assert (text == "") == path.endswith("py.typed"), path
        if path.endswith(".py"):
            assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
        if path.endswith(".toml"):
            tomllib.loads(text)


@every_kind
def test_its_extra_brings_what_its_tests_import(kind: Kind) -> None:
    """Where ale is installed from a checkout, ale-testing is there and its needs are not."""
    texts = render(kind, names(distribution(kind), kind), About())
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    brought = {
        re.split(r"[^a-z0-9-]", each)[0] for each in project["optional-dependencies"]["test"]
    }
    imported = {
        module.split(".")[0]
        for path, text in texts.items()
        if path.startswith("tests/")
        for module in re.findall(r"^(?:import|from) ([\w.]+)", text, re.MULTILINE)
    }
    ours = {"ale", "attrs", "click", names(distribution(kind), kind).module}
    assert {"pytest", "pytest-asyncio"} <= brought
    assert imported - brought - ours <= sys.stdlib_module_names


@pytest.mark.parametrize("kind", REGISTERED)
def test_its_component_is_registered_and_built(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = names(distribution(KINDS[kind]), KINDS[kind])
    write(tmp_path / chosen.distribution, render(KINDS[kind], chosen, About()))
    monkeypatch.syspath_prepend(tmp_path / chosen.distribution / "src")
    hook, protocol, options = REGISTERED[kind]
    plugin = importlib.import_module(f"{chosen.module}.plugin")
    (component,) = getattr(plugin, hook)()
    product = component.build(component.options(**options), BuildContext(run_directory=tmp_path))
    assert component.name.replace("_", "-") == "third-party"
    assert isinstance(product, protocol)
    assert [f.name for f in component.options.__attrs_attrs__ if "doc" not in f.metadata] == []


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The modules of a generated sandbox, importable."""
    chosen = names("ale-sandbox-third-party", KINDS["sandbox"])
    write(tmp_path / "package", render(KINDS["sandbox"], chosen, About()))
    monkeypatch.syspath_prepend(tmp_path / "package/src")
    return tmp_path


async def test_a_shell_that_has_just_started_ends_with_its_sandbox(
    sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux shows it without its environment, by which processes are found, for a moment."""
    module = importlib.import_module("ale_sandbox_third_party.sandbox")
    processes = importlib.import_module("ale_sandbox_third_party.processes")
    monkeypatch.setattr(processes, "_marked", lambda mark: set())
    async with module.ThirdPartyBackend(sandbox / "sandboxes", tags={}).open(SandboxSpec()) as box:
        session = await box.session()
        closing = asyncio.ensure_future(box.close())
        await asyncio.wait([closing], timeout=5)
        in_time = closing.done()
        if not in_time:  # else the test would hang in place of failing
            session._process.kill()
        assert in_time
        assert session.closed


@pytest.mark.parametrize(("started", "found"), [(True, b"\0A=1\0"), (False, b"\0")])
def test_the_environment_of_a_program_that_is_starting_is_read_again(
    sandbox: Path, started: bool, found: bytes
) -> None:
    processes = importlib.import_module("ale_sandbox_third_party.processes")
    entry = sandbox / "1"
    entry.mkdir()
    (entry / "environ").write_bytes(b"")
    (entry / "exe").symlink_to("/bin/sh")
    later = threading.Timer(0.003, (entry / "environ").write_bytes, [b"A=1\0" if started else b""])
    later.start()
    assert processes._environ(entry) == found
    later.join()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the core and one generated package of each kind, and nothing else.

    Returns:
        The folder of the environment; the packages are in its folder ``packages``.
    """
    uv = shutil.which("uv")
    assert uv is not None, "these tests make environments with uv: pip install uv"
    folder = tmp_path_factory.mktemp("environment")
    run(uv, "venv", "-q", "--python", sys.executable, folder)
    packages = folder / "packages"
    packages.mkdir()
    for kind in KINDS.values():
        chosen = names(distribution(kind), kind)
        write(packages / chosen.distribution, render(kind, chosen, About()))
    # A copy, so that uv sees no workspace around it: a third party has none.
    core = shutil.copytree(
        ROOT / "core", folder / "core", ignore=shutil.ignore_patterns("*.dist-info")
    )
    # Torch is large, and only the tests of objectives need it: they run in this environment.
    editable = []
    for kind in KINDS.values():
        path = packages / distribution(kind)
        editable += ["-e", f"{path}" if kind.test_needs else f"{path}[test]"]
    install = (uv, "pip", "install", "-q", "--python", folder / "bin/python")
    kits = ROOT / "plugins" / "libraries" / "ale-testing"
    run(*install, "--no-sources", core, kits, *editable, "mypy", "ruff")
    return folder


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command outside this workspace; its output."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@every_kind
def test_a_generated_package_passes_its_whole_contract_kit(kind: Kind, environment: Path) -> None:
    package = environment / "packages" / distribution(kind)
    python: Path | str = environment / "bin/python"
    if kind.test_needs:
        pytest.importorskip("torch")
        python = sys.executable
    found = (f"-opythonpath={package / 'src'}", "-p", "no:cacheprovider")
    passed = run(python, "-m", "pytest", "-q", *found, cwd=package)
    assert " passed" in passed
    assert "skipped" not in passed


@every_kind
def test_a_generated_package_is_found_by_ale(kind: Kind, environment: Path) -> None:
    chosen = names(distribution(kind), kind)
    ale = environment / "bin/ale"
    if kind == COMMAND:
        assert run(ale, chosen.component, "Ada") == "Hello, Ada!\n"
    else:
        listed = run(ale, "plugins", kind.name, chosen.component)
        assert f"from {chosen.distribution} 0.1.0" in listed


def test_generated_packages_are_formatted_and_typed(environment: Path) -> None:
    packages, tools = environment / "packages", environment / "bin"
    run(tools / "ruff", "check", "--no-cache", ".", cwd=packages)
    run(tools / "ruff", "format", "--no-cache", "--check", ".", cwd=packages)
    modules = [path.parent.name for path in packages.glob("*/src/*/py.typed")]
    assert len(modules) == len(KINDS)
    run(tools / "mypy", "--strict", *(f"-p{name}" for name in modules), cwd=packages)
