"""ALE-lite as a whole: what takes long or needs more than one package, by number of statement."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "core", *sorted(path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml"))]


def copy(folder: Path) -> Path:
    """The repository as a fresh clone has it, without tests."""
    ignored = shutil.ignore_patterns("__pycache__", "*.dist-info", "tests", ".*")
    for name in ("core", "plugins"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.long
def test_s01_pip_installs_the_root_and_its_commands_start(tmp_path: Path) -> None:
    clone, place = copy(tmp_path / "clone"), tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "-e", str(clone)], check=True, capture_output=True)
    # What they need from outside is here already, and is not what is tested.
    outside = [path for path in sys.path if path.endswith("site-packages")]
    for command in ("iflow", "tbp", "roll", "rock"):
        done = subprocess.run(
            [str(place / "bin" / command), "--help"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(outside)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"Usage: {command} " in done.stdout


@pytest.mark.long
def test_s73_mypy_finds_nothing() -> None:
    found = [path for folder in PROJECTS for path in sorted((folder / "src").glob("ale*"))]
    names = [path.name for path in found if not path.name.endswith("-info")]
    path = os.pathsep.join(str(folder / "src") for folder in PROJECTS)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *(part for name in names for part in ("-p", name))],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_s71_75_a_lock_file_can_be_made_with_the_extra_train(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not on the path")
    clone = copy(tmp_path / "clone")
    done = subprocess.run([uv, "lock"], cwd=clone, capture_output=True, text=True)
    if "ailed to fetch" in done.stderr or "no versions of" in done.stderr:
        pytest.skip("no index of packages can be asked")
    assert done.returncode == 0, done.stderr
    packages = tomllib.loads((clone / "uv.lock").read_text())["package"]
    names = {package["name"] for package in packages}
    assert {folder.name for folder in PROJECTS[1:]} < names
    (root,) = [package for package in packages if package["name"] == "ale-workspace"]
    train = {need["name"] for need in root["optional-dependencies"]["train"]}
    assert {"trl", "peft", "torch"} <= train <= names


@pytest.mark.long
def test_s07_09_69_tasks_pairs_an_adapter_and_the_adapter_at_work(tmp_path: Path) -> None:
    chain = str(ROOT / "tests" / "e2e" / "lite_chain.py")
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, chain, str(tmp_path)], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING ale" not in done.stderr, "the names of the models are those of their servers"
    runs = sorted((tmp_path / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    first, last = ([json.loads(line) for line in episodes(run)] for run in (runs[0], runs[-1]))
    tasks = {path.parent for path in ROOT.glob("tasks/*/*/task.yaml")}
    assert len(first) >= max(50, len(tasks))
    assert {episode["failure"] for episode in first} == {None}
    # They are the tasks' own solutions; one may lose against its time limit on a busy machine.
    assert sum(episode["reward"] for episode in first) > 0.9 * len(first)
    pairs = (tmp_path / "datasets" / "dpo.jsonl").read_text().splitlines()
    assert len(pairs) == len(first)
    by_three_keys, measured = (
        json.loads((tmp_path / "outputs" / name / "training.json").read_text())["trained"]
        for name in ("dpo_adapter", "measured")
    )
    assert by_three_keys["rows"] == len(pairs), "none is too long for the defaults"
    assert measured["metrics"]["eval_rewards/accuracies"] > 0.9
    assert (tmp_path / "outputs" / "dpo_adapter" / "adapter_model.safetensors").exists()
    # What an untrained model says is no matter; that it was asked, answered and was graded is.
    (episode,) = last
    assert episode["failure"] is None
    assert episode["reward"] in (0.0, 1.0)
    answers = [turn["completion"] for turn in episode["trajectory"]["turns"]]
    assert {answer["model"] for answer in answers} == {"outputs/dpo_adapter"}


def episodes(run: Path) -> list[str]:
    return (run / "episodes.jsonl").read_text().splitlines()
