"""Repositories with an issue: `ale run` with agents that resolve it, do nothing, or break it."""

import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ale_tasks_swe.options import SweOptions
from ale_tasks_swe.source import swe

from .conftest import FINISH
from .harbor_tasks import skip_without

IMAGE_PYTHON = "python3.11"
"""Of the image for tests."""
RESOLVED, UNTOUCHED, BROKEN = range(3)
"""Rollouts."""
BREAKS: Mapping[str, str] = {
    "ranges": "printf 'def write(n):\\n    return \"1-3,5-9\"\\n' > ranges/writing.py",
    "slugs": 'printf \'old = slug\\ndef slug(t):\\n    return old(t).replace("twice", "x")\\n\''
    " >> src/slugs/__init__.py",
    "table": 'printf \'old = dumps\\ndef dumps(r):\\n    return old(r).replace("c,", "c")\\n\''
    " >> table/writer.py",
    "shares": "printf 'old = split\\ndef split(t, w):\\n    return old(t, w) if w else []\\n'"
    " >> shares.py",
    "expiry": "printf 'Cache.__getitem__ = lambda self, key: self._entries[key][0]\\n'"
    " >> expiry/cache.py",
    "order": "printf 'old = sort\\ndef sort(needs):\\n    return sorted(old(needs))\\n'"
    " >> order/sorting.py",
}
"""What makes a test fail that has passed before, and none of those that the issue is about."""

SANDBOXES = ("local", pytest.param("bubblewrap"), pytest.param("docker", marks=pytest.mark.engine))


@pytest.fixture
def python() -> Iterator[Path]:
    """An environment with pytest whose interpreter is that of each sandbox."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # sandboxes belong to other users
        yield environment(Path(name) / "tools")


def environment(home: Path) -> Path:
    """The interpreter of a new environment that has pytest, and nothing else."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to("/usr/bin/python3")
    (home / "pyvenv.cfg").write_text("home = /usr/bin\n")
    packages = home / "lib" / IMAGE_PYTHON / "site-packages"
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        shutil.copytree(spec.submodule_search_locations[0], packages / name)
    module = importlib.util.find_spec("py")
    assert module is not None
    shutil.copy(str(module.origin), packages / "py.py")
    here = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not here.exists():
        here.symlink_to(IMAGE_PYTHON)
    return home / "bin" / "python"


def sandbox_of(kind: str, workshop: Any, tools: Path) -> Mapping[str, Any]:
    """The section of the config, or a skip where there is no such sandbox."""
    if kind == "local":
        return {"type": "local", "root": str(workshop.space)}
    if kind == "docker":
        from ale_sandboxing.container_testing.images import DEBIAN

        skip_without("docker")
        return {"type": "docker", "image": DEBIAN, "allowlist_paths": [str(tools)]}
    skip_without("bubblewrap")
    return {"type": "bubblewrap", "allowlist_paths": [str(tools)]}


def patches(cache: Path) -> Mapping[str, str]:
    """The reference solution of each sample, by the id of its task."""
    made = {}
    for task in swe(SweOptions(sample=True, cache=cache)).load():
        (command,) = task.solution or ()
        made[task.id] = command.partition("\n")[2].rpartition("ALE_PATCH")[0]
    return made


def answers(task_id: str, patch: str) -> list[list[Any]]:
    """The scripts of a model for plan-patch-test, by rollout."""
    name = task_id.removeprefix("samples__").removesuffix("-1")
    plan, diff = "I know what is wrong.", f"```diff\n{patch}```\n"
    look = "```sh\ngit log --oneline; ls\n```\n"
    wrong = "```diff\n--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-a\n+b\n```\n"
    return [
        [look, plan, wrong, diff, "```sh\nfalse\n```", diff_of_nothing(), "```sh\ntrue\n```"],
        ["```finish\nNothing to do.\n```"],
        [plan, diff, f"```sh\n{BREAKS[name]}\n```"],
    ]


def diff_of_nothing() -> str:
    """A repair that adds a file."""
    return "```file:NOTES.md\nMended.\n```\n"


def config(
    workshop: Any, kind: str, python: Path, script: Mapping[str, Any], rollouts: int, **more: Any
) -> None:
    workshop.write("script.yaml", script)
    workshop.config(
        **{
            "tasks": {
                "type": "swe",
                "sample": True,
                "cache": str(workshop.folder / "cache"),
                "grading": {"python": str(python)},
            },
            "sandbox": sandbox_of(kind, workshop, python.parents[1]),
            "llm": {"type": "scripted", "script": "script.yaml", "tools": False},
            "agent": {"type": "plan-patch-test"},
            "run": {"rollouts": rollouts, "concurrency": 2, "retries": 0},
            **more,
        }
    )


def rewards(workshop: Any) -> dict[int, set[float | None]]:
    """The rewards of all tasks by rollout."""
    found: dict[int, set[float | None]] = {}
    for episode in workshop.episodes().values():
        found.setdefault(episode["rollout"], set()).add(episode["reward"])
    return found


@pytest.mark.parametrize("kind", SANDBOXES)
def test_plan_patch_test_resolves_each_sample_and_others_do_not(
    workshop: Any, python: Path, kind: str
) -> None:
    found = patches(workshop.folder / "cache")
    script = {"tasks": {task: answers(task, patch) for task, patch in found.items()}}
    rollouts = 3 if kind == "local" else 1
    cut = {"chunker": {"type": "phase"}, "credit": {"type": "grpo"}}
    config(workshop, kind, python, script, rollouts, **(cut if rollouts > 1 else {}))
    workshop.succeeds("run", "run.yaml", timeout_s=500)
    expected = {RESOLVED: {1.0}, UNTOUCHED: {0.0}, BROKEN: {0.0}}
    assert rewards(workshop) == {rollout: expected[rollout] for rollout in range(rollouts)}
    episodes = list(workshop.episodes().values())
    assert len(episodes) == 6 * rollouts
    for episode in episodes:
        check(episode)
    if rollouts > 1:
        check_chunks(workshop.lines("credits/00000.jsonl"))


def check_chunks(rows: Sequence[Mapping[str, Any]]) -> None:
    """Each phase is a chunk; a look at files belongs to its phase."""
    kinds = {tuple(chunk["kind"] for chunk in row["chunks"]) for row in rows}
    assert kinds == {
        ("plan", "patch", "patch", "test", "repair", "test"),
        ("unfinished",),
        ("plan", "patch", "test"),
    }


def check(episode: Mapping[str, Any]) -> None:
    """What the verdict says, and what was recorded of each phase."""
    detail = episode["scores"][0]["detail"]
    wanted, kept = detail.splitlines()[1:3]
    all_of = {line.split(": ")[0]: "; failed: " not in line for line in (wanted, kept)}
    tools = [o["tool"] for turn in episode["trajectory"]["turns"] for o in turn["observations"]]
    if episode["rollout"] == RESOLVED:
        assert detail.startswith("resolved\n")
        log = episode["trajectory"]["turns"][0]["observations"][0]["content"]
        assert "Ask before you send a change" in log, log
        assert "Fix it" not in log
        assert tools == ["shell", "plan", "patch", "patch", "test", "repair", "test"]
        assert episode["trajectory"]["stop"]["reason"] == "finished"
    elif episode["rollout"] == UNTOUCHED:
        assert all_of == {"FAIL_TO_PASS": False, "PASS_TO_PASS": True}
        assert tools == ["finish"]
    else:
        assert all_of == {"FAIL_TO_PASS": True, "PASS_TO_PASS": False}, detail


ATTACK = """cat > conftest.py <<'END_OF_ATTACK'
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
END_OF_ATTACK
cp conftest.py evil.py
printf '[pytest]\\naddopts = -p evil\\n' > pytest.ini
for name in pytest sitecustomize _pytest; do echo 'import os; os._exit(0)' > $name.py; done
for file in $(find . -name 'test_*.py'); do
  echo 'def test_a(): ...' > $file
  cp conftest.py $(dirname $file)
done
"""
"""What a model does that wants the reward without the work."""


@pytest.mark.parametrize("kind", SANDBOXES)
def test_iflow_resolves_the_same_tasks_and_an_attack_does_not(
    workshop: Any, python: Path, kind: str
) -> None:
    found = patches(workshop.folder / "cache")
    script = {
        "tasks": {
            task: [
                [{"shell": f"git apply - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"}, FINISH],
                [{"shell": ATTACK}, FINISH],
            ]
            for task, patch in found.items()
        }
    }
    llm = {"type": "scripted", "script": "script.yaml"}
    config(workshop, kind, python, script, 2, agent={"type": "iflow"}, llm=llm)
    few = [] if kind == "local" else ["--set", "tasks.limit=2"]
    workshop.succeeds("run", "run.yaml", *few, timeout_s=500)
    assert rewards(workshop) == {0: {1.0}, 1: {0.0}}
    assert len(workshop.episodes()) == 2 * (2 if few else len(found))


def test_swe_bench_is_a_benchmark(workshop: Any, python: Path) -> None:
    """By the name that `ale eval` shows, with a model that does nothing."""
    assert "swe-bench  2,294 test  swe_tests" in workshop.ale("eval").out
    workshop.write("answers.yaml", {"default": [FINISH]})
    done = workshop.succeeds(
        *("eval", "swe-bench", "--sample", "--limit", "2", "--json", "--sandbox", "local"),
        *("--llm", "scripted:script=answers.yaml", f"--set=tasks.grading.python={python}"),
        f"--set=tasks.cache={workshop.folder / 'cache'}",
    )
    found = json.loads(done.out)
    assert (found["problems"], found["broken"], found["pass_at"]["1"]["mean"]) == (2, 0, 0.0)
