"""ALE-lite from one end to the other, on this machine: `python3 noxfile.py lite`.

A model behind HTTP works on every example task, what it did becomes preference pairs, a small model
learns from them, and is served to work on a task itself. Every step is a command that a user types.
The first model plays the tasks' own solutions, each with a slip, so that no real one is needed;
the second is made on the spot, so that nothing is fetched. It learns no more than that the chain
holds: for a model that learns to do tasks see `python3 noxfile.py learn`.

Usage: lite_chain.py [FOLDER]    (default: a new one among the temporary files)
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ale.plugin import BuildContext
from ale.types import Task
from ale_tasks_tbp.plugin import ale_task_sources

ROOT = Path(__file__).resolve().parents[2]
TASKS = ROOT / "tasks"
COMMANDS = Path(sys.executable).parent
SLIP = "cat NOTES.txt"


def answers() -> dict[str, Any]:
    """What the first model says: a slip, the task's own solution, and that it is done."""
    conversations = []
    for task in example_tasks():
        assert task.solution is not None, task.id
        commands = [SLIP, *task.solution]
        steps = [{"calls": [call("shell", command=command)]} for command in commands]
        match = r"\W+".join(re.findall(r"\w+", task.goal)[:12])
        done = {"calls": [call("finish", summary="Done.")]}
        conversations.append({"match": match, "steps": [*steps, done]})
    return {"conversations": conversations}


def example_tasks() -> Iterator[Task]:
    """All of this repository."""
    (component,) = ale_task_sources()
    assert component.options is not None
    yield from component.build(component.options(path=TASKS), BuildContext()).load()


def call(name: str, **arguments: str) -> dict[str, Any]:
    """A tool call of a scripted model."""
    return {"name": name, "arguments": arguments}


def write(path: Path, content: Mapping[str, Any]) -> None:
    """A YAML file."""
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))


def typed(*command: str) -> None:
    """Show a command and run it to its end.

    Raises:
        SystemExit: it failed.
    """
    print(f"\n$ {shlex.join(command)}", flush=True)
    done = subprocess.run([str(COMMANDS / command[0]), *command[1:]], check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}")


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """A server that prints its base URL, ended after the block."""
    print(f"\n$ {shlex.join(command)} &", flush=True)
    whole = [str(COMMANDS / command[0]), *command[1:]]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            if not url:
                sys.exit(f"{command[0]} gave no address")
            print(url, flush=True)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)


def config(file: Path, url: str, model: str) -> str:
    """A config of ALE-lite for this server."""
    llm = {"base_url": url, "model": model, "max_tokens": 64}
    write(file, {"llm": llm, "sandbox": {"backend": "local"}})
    return str(file)


def make_model(corpus: Path, folder: Path) -> None:
    """A transformer of a few layers with fresh weights, and its tokenizer."""
    from ale_llm_policy.pretrained import TinyShape, tiny_policy

    shape = TinyShape(layers=2, width=64, heads=2, head_dim=32, mlp=192, context=8192)
    tiny_policy(corpus, shape, seed=0).save(folder)


def main() -> None:
    """Do it all in a folder."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="ale-lite-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    print(f"$ cd {folder}", flush=True)
    script = Path("answers.yaml")
    write(script, answers())
    server = ("python", "-m", "ale.testing.openai_server", "--script", str(script))
    with serving(*server) as url:
        file = config(Path("lite.yaml"), url, "scripted")
        typed("tbp", "run", "--tasks", str(TASKS), "--config", file, "--out", "runs/")
    typed("roll", "collect", "--runs", "runs/", "--out", "datasets/raw.jsonl")
    scored = "datasets/ipa_scored.jsonl"
    typed("roll", "ipa-score", "--in", "datasets/raw.jsonl", "--out", scored)
    typed("roll", "make-dpo", "--in", scored, "--out", "datasets/dpo.jsonl")
    make_model(Path("datasets/raw.jsonl"), Path("models/tiny"))
    training = {
        "model_name_or_path": "models/tiny",
        "dataset_path": "datasets/dpo.jsonl",
        "output_dir": "outputs/dpo_adapter",
    }
    more = {"max_length": 8192, "learning_rate": 1.0e-3, "epochs": 2, "evaluation_fraction": 0.1}
    write(Path("dpo.yaml"), {**training, **more})
    typed("roll", "train-dpo", "--config", "dpo.yaml")
    with serving("ale", "serve", "policy:model=outputs/dpo_adapter", "--port", "0") as url:
        file = config(Path("trained.yaml"), url, "dpo_adapter")
        typed(
            "iflow",
            "run",
            "--task",
            str(TASKS / "tbp_examples" / "basics_ls.yaml"),
            "--config",
            file,
        )


if __name__ == "__main__":
    main()
