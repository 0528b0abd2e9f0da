"""The configs that need no model, on every example task and with the real local sandbox."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# Read by others than `ale run`: test_service.py, and configs that extend them.
OTHERS = {"compose.yaml", "loop.yaml", "constitution.yaml"}
CONFIGS = [
    path
    for path in sorted(ROOT.glob("configs/**/*.yaml"))
    if ".script" not in path.name and path.name not in OTHERS
]
TASKS = [*ROOT.glob("tasks/*/*/task.yaml"), *ROOT.glob("tasks/tbp_examples/*.yaml")]


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("noop", 0.0)])
def test_every_task_is_solved_by_its_solution_and_not_by_doing_nothing(
    workshop: Any, agent: str, reward: float
) -> None:
    config = str(ROOT / "configs" / f"{agent}.yaml")
    root = f"sandbox.root={workshop.space}"
    workshop.succeeds("run", config, "-n", "8", "--set", root)
    episodes = workshop.episodes()
    assert len(episodes) == len(TASKS) >= 28
    others = {name: episode["reward"] for name, episode in episodes.items()}
    assert {name for name, given in others.items() if given != reward} == set()
    assert workshop.left_behind() == []


@pytest.mark.parametrize(
    "made",
    [
        "configs/code_problems.py",
        "tests/e2e/code_rewards_corpus.py",
        "tests/e2e/examples_script.py",
        "tests/e2e/quickstart_corpus.py",
    ],
)
def test_generated_files_of_configs_are_up_to_date(made: str) -> None:
    module = runpy.run_path(str(ROOT / made))
    assert module["TARGET"].read_text() == module["text"]()


def _config(path: Path) -> Any:
    needs = [pytest.mark.needs("torch")] * ("type: policy" in _text(path))
    return pytest.param(path, id=path.stem, marks=needs)


def _text(path: Path) -> str:
    """The text of a config and of those it extends."""
    text = path.read_text()
    named = re.search(r"^extends: (.+)$", text, re.M)
    bases = re.findall(r"[^\s,\[\]]+", named[1]) if named else []
    return text + "".join(_text(path.parent / base) for base in bases)


@pytest.mark.parametrize("config", [_config(path) for path in CONFIGS])
def test_every_config_is_valid(workshop: Any, config: Path) -> None:
    # One of ALE-lite's names no tasks: its commands do.
    lite = ["tasks.type=tbp", f"tasks.path={ROOT / 'tasks'}", "sandbox.type=local"]
    settings = lite if config.stem == "local_lmstudio" else []
    # Their models are made by `nox -s smollm`, or by the commands at the top of the config.
    made = config.parent.name == "smollm" or config.stem in ("difficulty", "distillation")
    settings += ["llm.model=null"] if made else []
    workshop.environ["MODEL_KEY"] = "any"
    checked = workshop.succeeds("check", str(config), *(f"--set={setting}" for setting in settings))
    assert "<function" not in checked.text, "internals are not for the reader"
