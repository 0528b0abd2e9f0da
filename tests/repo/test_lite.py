"""Every statement of the document ALE-lite has a test that is named after its number.

A function ``test_s<numbers>_...`` shows these statements; most stand with the package `ale-lite`.
Those that another package's tests show already are named in `ELSEWHERE`. Here are the ones about
the repository as a whole.
"""

import ast
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]
OWN = (
    *tracked("plugins/commands/ale-lite/tests/test_*.py", "tests/e2e/test_lite*.py"),
    Path(__file__),
)
NUMBERS = range(1, 77)
PROJECTS = [ROOT / "core", *(path.parent for path in tracked("plugins/*/*/pyproject.toml"))]
SOURCES = [folder / "src" for folder in PROJECTS if (folder / "src").is_dir()]
"""All but those of packages that have none of their own: `ale-testing` has the core's kits."""

LIMITS = "plugins/sandbox/ale-sandbox-local/tests/test_local_limits.py"
CONTAINERS = "plugins/libraries/ale-sandboxing/src/ale_sandboxing/container_testing"
ISOLATION = "core/src/ale/testing/sandbox/isolation.py"
CUTS = "plugins/credit/ale-chunkers/tests/test_chunkers_cuts.py"
SCHEMES = "plugins/credit/ale-credit/tests/test_credit_schemes.py"
ELSEWHERE: dict[int, dict[str, str]] = {
    26: {
        "plugins/agent/ale-agent-iflow/tests/test_iflow_limits.py": (
            "test_max_steps_counts_tool_calls"
        )
    },
    34: {"core/src/ale/testing/sandbox/lifecycle.py": "test_however_it_is_left_it_is_removed"},
    35: {
        LIMITS: "test_a_file_stops_at_its_size",
        ISOLATION: "test_memory_without_end_is_stopped_just_as_declared",
    },
    38: {f"{CONTAINERS}/attacks.py": "test_without_a_network_there_is_none"},
    55: {"tests/e2e/test_repeatable.py": "test_two_runs_are_the_same_to_the_byte"},
    56: {CUTS: "test_message_gives_one_chunk_per_message_with_its_calls"},
    57: {CUTS: "test_ale_lite_gives_messages_and_then_their_calls"},
    58: {
        CUTS: "test_ale_lite_cuts_a_message_at_its_micro_steps_before_its_call",
        "plugins/credit/ale-chunkers/tests/test_chunkers_micro_steps.py": (
            "test_an_unclosed_tag_does_not_swallow_the_steps_after_it"
        ),
    },
    59: {
        "core/src/ale/testing/chunker.py": ("test_chunks_partition_a_trajectory_with_known_tokens")
    },
    61: {SCHEMES: "test_ipa_lite_grows_strictly_with_position"},
    62: {SCHEMES: "test_ipa_lite_lowers_the_chunk_of_a_failed_call_and_no_other"},
    68: {
        "plugins/training/ale-trainer-trl/tests/learning/test_trl_reading.py": (
            "test_three_keys_are_a_configuration"
        )
    },
}


def functions(path: Path) -> set[str]:
    """Names of the tests in a file, those in classes too."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def shown(path: Path) -> set[int]:
    """Numbers in the names of a file's tests."""
    found = [re.match(r"test_s((?:\d\d_)+)", name) for name in functions(path)]
    return {int(n) for match in found if match for n in match[1].strip("_").split("_")}


@pytest.mark.parametrize("number", NUMBERS)
def test_every_statement_has_a_test(number: int) -> None:
    elsewhere = ELSEWHERE.get(number, {})
    for file, name in elsewhere.items():
        assert name in functions(ROOT / file), f"{file} has no {name}"
    assert elsewhere or any(number in shown(path) for path in OWN)


def test_no_test_is_named_after_a_statement_that_is_not_there() -> None:
    named = set().union(*map(shown, OWN))
    assert named <= set(NUMBERS)
    assert set(ELSEWHERE) <= set(NUMBERS)


def copy(folder: Path) -> Path:
    """The repository as a fresh clone has it, without tests."""
    for path in tracked("core/**", "plugins/**", "pyproject.toml"):
        name = path.relative_to(ROOT)
        if "tests" not in name.parts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
    return folder


def test_s01_the_roots_install_has_every_package_and_every_command(tmp_path: Path) -> None:
    clone = copy(tmp_path / "clone")
    backend: dict[str, Any] = runpy.run_path(str(clone / "core/workspace/ale_workspace.py"))
    wheel = tmp_path / backend["build_editable"](str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        on_path = archive.read("ale_workspace.pth").decode().split()
        (entries,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        scripts = archive.read(entries).decode()
    assert len(on_path) == len(SOURCES)
    for command in ("ale", "iflow", "tbp", "roll", "rock"):
        assert re.search(rf"^{command} = ", scripts, re.M), command
    offered = [*clone.glob("plugins/commands/ale-lite/src/*.dist-info/entry_points.txt")]
    assert "ale_lite.plugin" in offered[0].read_text()


def test_the_documents_path_of_the_example_config_works_as_typed() -> None:
    typed = ROOT / "examples" / "configs" / "local_lmstudio.yaml"
    assert typed.samefile(ROOT / "configs" / "local_lmstudio.yaml")


def test_s72_ruff_finds_nothing() -> None:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "check", "--force-exclude", *map(str, tracked("**/*.py"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_s73_mypy_is_strict_and_sees_every_src_and_benchmark() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"] is True
    seen = {path for pattern in settings["files"] for path in ROOT.glob(pattern)}
    assert seen >= {*SOURCES, ROOT / "tests" / "bench"}


def test_s74_tests_pass_without_a_network(tmp_path: Path) -> None:
    alone = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"]).returncode:
        pytest.skip("no network namespace can be made here")
    tests = [
        "tests/core/test_config.py",
        "plugins/commands/ale-lite/tests/test_statements_config.py",
        f"--basetemp={tmp_path / 't'}",
    ]
    done = subprocess.run(
        [*alone, sys.executable, "-m", "pytest", "-c", "pyproject.toml", *tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_s75_metadata_is_that_of_pep_621(folder: Path) -> None:
    about = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert {"name", "version", "description", "requires-python", "license"} <= set(about)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "plugins/commands/ale-lite/README.md"]
)
def test_s76_it_is_said_what_it_is_inspired_by_and_that_it_is_not_the_authors(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    assert "arXiv:2512.24873" in text
    assert re.search(r"not the authors' code", text)


def test_s64_the_documentation_calls_it_an_approximation() -> None:
    for page in ("plugins/credit/ale-credit/README.md", "plugins/commands/ale-lite/README.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert re.search(r"`ipa-lite` is (ALE-lite's|an) approximation", text), page
        assert re.search(r"(`ipa` is the paper's|the paper's own credit is `ipa`)", text), page
