"""`ale new openrlhf`: its files against OpenRLHF's own parser and its own executor of agents.

OpenRLHF can't be imported without vLLM, DeepSpeed and CUDA. `nox -s openrlhf` installs its files
alone. The parser stands in the main block of a module that imports all of these, so the block is
taken out of the installed file and run by itself; training is replaced by a look at the arguments.
"""

import ast
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from ale_workbench.new.command import command

PYTHON = """#!/bin/sh
case "$1" in
  prompts.py) exec {python} "$@" ;;
  *) shift 2; for each; do printf '%s\\0' "$each"; done > arguments ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    done = CliRunner().invoke(command, ["openrlhf", "mine", "--directory", str(tmp_path)])
    assert done.exit_code == 0, done.output
    return tmp_path / "mine"


@pytest.fixture
def openrlhf(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the installed package, whose ``utils`` are imported without their imports."""
    package = pytest.importorskip("openrlhf", reason="openrlhf not installed: nox -s openrlhf")
    root = Path(package.__path__[0])
    utils = ModuleType("openrlhf.utils")
    utils.__path__ = [str(root / "utils")]
    monkeypatch.setitem(sys.modules, "openrlhf.utils", utils)
    return root


def test_every_file_is_there(folder: Path) -> None:
    made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    names = {"README.md", "agent.py", "ale.yaml", "prompts.py", "tasks/count.yaml", "train.sh"}
    assert made == names


def test_tasks_in_folders_are_prompts_too(folder: Path) -> None:
    for name in ("more/words.yaml", "lines/task.yaml"):
        (folder / "tasks" / name).parent.mkdir()
        (folder / "tasks" / name).write_text(f"id: {name[:5]}\ngoal: Do it.\n")
    (folder / "tasks" / "lines" / "fixture.yaml").write_text("a: 1\n")
    subprocess.run([sys.executable, str(folder / "prompts.py")], check=True)
    rows = map(json.loads, (folder / "prompts.jsonl").read_text().splitlines())
    assert [row["label"] for row in rows] == ["count", "lines", "more/"]


def launched(folder: Path) -> list[str]:
    """The arguments with which the launch line starts OpenRLHF."""
    (folder / "bin").mkdir()
    python = folder / "bin" / "python3"
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    environ = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    environ |= {"MODEL": "models/mine", "GPUS": "2"}
    more = ["--rollout.temperature", "0.9"]
    subprocess.run(["bash", str(folder / "train.sh"), *more], env=environ, check=True)
    return (folder / "arguments").read_text().split("\0")[:-1]


def parsed(package: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What OpenRLHF trains with, after its own checks."""
    file = package / "cli" / "train_ppo_ray.py"
    main = ast.parse(file.read_text()).body[-1]
    assert isinstance(main, ast.If)
    assert "__main__" in ast.dump(main.test)
    found: list[Any] = []
    known = {"argparse": SimpleNamespace(ArgumentParser=ArgumentParser), "datetime": datetime}
    monkeypatch.setattr("sys.argv", ["train_ppo_ray", *arguments])
    block = ast.Module(main.body, type_ignores=[])
    exec(compile(block, str(file), "exec"), {**known, "train": found.append})
    return found[0]


def test_openrlhf_takes_the_launch_line(
    folder: Path, openrlhf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = parsed(openrlhf, launched(folder), monkeypatch)
    assert given.actor.model_name_or_path == "models/mine"
    assert given.train.agent_func_path == str(folder / "agent.py")
    assert (given.actor.num_gpus_per_node, given.vllm.num_engines) == (2, 2)
    assert given.train.colocate_all
    assert given.vllm.enable_sleep
    assert given.rollout.temperature == 0.9
    (row,) = map(json.loads, Path(given.data.prompt_dataset).read_text().splitlines())
    assert row[given.data.label_key] == "count"
    assert "Write the number of lines" in row[given.data.input_key]


def test_openrlhf_refuses_an_option_that_it_does_not_have(
    folder: Path, openrlhf: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    arguments = [*launched(folder), "--train.agent_path", "agent.py"]
    with pytest.raises(SystemExit):
        parsed(openrlhf, arguments, monkeypatch)
    assert "unrecognized arguments: --train.agent_path" in capsys.readouterr().err


class Characters:
    """A tokenizer of characters."""

    def __call__(self, *, text: str, **_: Any) -> Any:
        torch = pytest.importorskip("torch")
        return {"input_ids": torch.tensor([[ord(each) for each in text]], dtype=torch.long)}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(map(chr, ids))


class Scripted:
    """An engine that gives answers in order."""

    def __init__(self, *answers: str) -> None:
        self._answers = iter(answers)

    async def generate(self, prompt: list[int], params: Any, **_: Any) -> Any:
        text = next(self._answers)
        ids = [ord(each) for each in text]
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=ids, text=text, finish_reason="stop", logprobs=None)]
        )


async def played(folder: Path, *answers: str) -> Any:
    """An episode through OpenRLHF's own executor."""
    spec = importlib.util.spec_from_file_location("agent_module", folder / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sampling = SimpleNamespace(max_tokens=500, logprobs=None)
    executor = module.AgentExecutor()
    return await executor.execute(
        "Count.", "count", sampling, 20_000, Characters(), Scripted(*answers)
    )


def bash(line: str) -> str:
    return f"So:\n```bash\n{line}\n```"


WORK = bash("wc -l < poem.txt > count.txt; echo '<|im_end|>done'")


@pytest.mark.parametrize(("first", "reward"), [(WORK, 1.0), (bash("echo 4 > count.txt"), 0.0)])
def test_an_episode_acts_in_a_sandbox_and_gets_the_reward_of_the_criteria(
    folder: Path, openrlhf: Path, first: str, reward: float
) -> None:
    pytest.importorskip("torch")
    found = asyncio.run(played(folder, first, "I am done."))
    assert found["reward"] == found["scores"] == reward
    text = Characters().decode(found["observation_tokens"])
    acted = [text[slice(*each)] for each in found["action_ranges"]]
    assert acted == [first, "I am done."], "what is trained is what the model said, and no more"
    between = text[found["action_ranges"][0][1] : found["action_ranges"][1][0]]
    assert "[exit code 0]" in between
    assert ("< |im_end|>done" in between) == (first == WORK)
    assert between.count("<|im_end|>") == 1, "output can't end a message"
    assert len([*(folder / "runs").iterdir()]) == 1


def test_an_episode_that_breaks_has_no_reward(folder: Path, openrlhf: Path) -> None:
    pytest.importorskip("torch")
    task = folder / "tasks" / "count.yaml"
    task.write_text(task.read_text().replace("printf 'one", "exit 3; printf 'one"))
    with pytest.raises(RuntimeError, match="the episode of count broke"):
        asyncio.run(played(folder, WORK, "I am done."))
