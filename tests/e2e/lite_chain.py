"""ALE-lite end to end on this machine: `python3 noxfile.py lite`.

A model behind HTTP attempts every example task, its episodes become preference pairs, a small model
is trained on them, and is then served to attempt a task itself. Every step is a command of a user.
The first model plays the reference solutions, each with an error, so that no real model is needed;
the second has random weights, so that nothing is downloaded. This tests the commands: for a model
that learns to solve tasks see `python3 noxfile.py learn`.

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
ERROR = "cat NOTES.txt"


def answers() -> dict[str, Any]:
    """The script of the first model: an error, the reference solution, and finish."""
    conversations = []
    for task in example_tasks():
        assert task.solution is not None, task.id
        commands = [ERROR, *task.solution]
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


def run_command(*command: str) -> None:
    """Print a command and run it.

    Raises:
        SystemExit: it failed.
    """
    print(f"\n$ {shlex.join(command)}", flush=True)
    done = subprocess.run([str(COMMANDS / command[0]), *command[1:]], check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}")


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """The base URL that a server prints; it is stopped after the block."""
    print(f"\n$ {shlex.join(command)} &", flush=True)
    whole = [str(COMMANDS / command[0]), *command[1:]]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            if not url:
                sys.exit(f"{command[0]} printed no address")
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
    """Run all steps in a folder."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="ale-lite-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    print(f"$ cd {folder}", flush=True)
    script = Path("answers.yaml")
    write(script, answers())
    server = ("python", "-m", "ale.testing.openai_server", "--script", str(script))
    with serving(*server) as url:
        file = config(Path("lite.yaml"), url, "scripted")
        run_command("tbp", "run", "--tasks", str(TASKS), "--config", file, "--out", "runs/")
    run_command("roll", "collect", "--runs", "runs/", "--out", "datasets/raw.jsonl")
    scored = "datasets/ipa_scored.jsonl"
    run_command("roll", "ipa-score", "--in", "datasets/raw.jsonl", "--out", scored)
    run_command("roll", "make-dpo", "--in", scored, "--out", "datasets/dpo.jsonl")
    make_model(Path("datasets/raw.jsonl"), Path("models/tiny"))
    training = {
        "model_name_or_path": "models/tiny",
        "dataset_path": "datasets/dpo.jsonl",
        "output_dir": "outputs/dpo_adapter",
    }
    write(Path("dpo.yaml"), training)
    run_command("roll", "train-dpo", "--config", "dpo.yaml")
    more = {"learning_rate": 1.0e-3, "epochs": 2, "evaluation_fraction": 0.1}
    write(Path("measured.yaml"), {**training, **more, "output_dir": "outputs/measured"})
    run_command("roll", "train-dpo", "--config", "measured.yaml")
    with serving("ale", "serve", "policy:model=outputs/dpo_adapter", "--port", "0") as url:
        file = config(Path("trained.yaml"), url, "outputs/dpo_adapter")
        run_command(
            "iflow",
            "run",
            "--task",
            str(TASKS / "tbp_examples" / "basics_ls.yaml"),
            "--config",
            file,
        )


if __name__ == "__main__":
    main()
