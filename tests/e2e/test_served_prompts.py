"""A preference is trained on with the prompt that was served, tool definitions included."""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ale.testing.openai_server import openai_server

pytest.importorskip("torch")
pytest.importorskip("trl")

TIMEOUT_S = 600.0


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A tokenizer of bytes with the chat template ChatML, as Qwen's models have it."""
    from ale_llm_policy.pretrained import TinyShape, tiny_policy

    made = tiny_policy(
        [], TinyShape(layers=1, width=32, heads=1, kv_heads=1, mlp=32), seed=0
    ).tokenizer
    template = files("ale_training.chat") / "chatml.jinja"
    made.chat_template = template.read_text("utf-8")
    return made


def run(workshop: Any, *command: str) -> None:
    script = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [str(script), *command[1:]],
        cwd=workshop.folder,
        env=workshop.environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def served(tokenizer: Any, body: Any) -> str:
    """The prompt that a server makes of a request; like vLLM it parses the arguments of calls."""
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    text = tokenizer.apply_chat_template(
        body["messages"], tools=body.get("tools"), add_generation_prompt=True, tokenize=False
    )
    return str(text)


def trained(tokenizer: Any, pairs: Path) -> tuple[str, int]:
    """The prompt of the only pair as the trainer renders it, and the number of its messages."""
    from ale_trainer_trl.learning.pairs import pair_of
    from ale_trainer_trl.learning.rows import read_rows

    ((place, row),) = read_rows(pairs)
    pair = pair_of(tokenizer, row, place)
    prompts = {
        tokenizer.decode(side.ids[: side.mask.index(1)]) for side in (pair.chosen, pair.rejected)
    }
    (prompt,) = prompts
    return prompt, len(row["prompt"])


def shell(command: str) -> dict[str, Any]:
    return {"calls": [{"name": "shell", "arguments": {"command": command}}]}


FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "Done."}}]}
MAKE_DPO = ("roll", "make-dpo")
DATASET_DPO = ("ale", "data", "dpo")


@pytest.mark.parametrize(
    ("make_pairs", "last_commands", "n_messages"),
    [(MAKE_DPO, ["touch done"], 2), (DATASET_DPO, ["touch done", "true"], 4)],
    ids=["same-trajectory", "same-prompt"],
)
@pytest.mark.parametrize("tool_format", ["native", "text"])
def test_the_trainer_renders_the_prompt_that_was_served(
    workshop: Any,
    tokenizer: Any,
    make_pairs: tuple[str, ...],
    last_commands: list[str],
    n_messages: int,
    tool_format: str,
) -> None:
    workshop.task("make")
    rollouts = [[shell("ls"), shell(last), FINISH] for last in last_commands]
    if tool_format == "text":
        rollouts = [[in_text(step["calls"][0]) for step in steps] for steps in rollouts]
    with openai_server([step for steps in rollouts for step in steps]) as server:
        workshop.config(
            llm={"type": "openai", "base_url": server.url, "model": "scripted"},
            agent={"type": "iflow", "tool_format": tool_format},
            run={"rollouts": len(rollouts), "concurrency": 1},
            observers=[],
        )
        run(workshop, "ale", "run", "run.yaml")
        asked = [request for request in server.requests() if request["method"] == "POST"]
        bodies = [request["body"] for request in asked]
    run(workshop, "roll", "collect", "--runs", "runs", "--out", "raw.jsonl")
    run(workshop, "roll", "ipa-score", "--in", "raw.jsonl", "--out", "scored.jsonl")
    run(workshop, *make_pairs, "--in", "scored.jsonl", "--out", "dpo.jsonl")
    prompt, length = trained(tokenizer, workshop.folder / "dpo.jsonl")
    assert length == n_messages
    first = next(body for body in bodies if len(body["messages"]) == length)
    assert bool(first.get("tools")) == (tool_format == "native")
    assert ("<tools>" in prompt) == (tool_format == "native")
    assert prompt == served(tokenizer, first)


def in_text(call: dict[str, Any]) -> dict[str, str]:
    """The call as fenced text, for models without tool calls."""
    return {"text": f"```tool\n{json.dumps(call)}\n```"}
