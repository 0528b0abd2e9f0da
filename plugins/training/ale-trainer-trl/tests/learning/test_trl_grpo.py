"""GRPO from prompts: the reward of what is sampled rises."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM

from ale.errors import AleError, InputError
from ale_trainer_trl.learning import GrpoTraining, LoraOptions, Progress, train
from ale_trainer_trl.learning.reward import checked, load_reward

Write = Callable[..., Path]
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")

REWARD = '''
def letters(prompts, completions, **columns):
    """Share of the characters that are letters; `bonus` is a column of the rows."""
    texts = [each[0]["content"] if isinstance(each, list) else each for each in completions]
    shares = [sum(c.isascii() and c.isalpha() for c in text) / max(1, len(text)) for text in texts]
    return [share + extra for share, extra in zip(shares, columns["bonus"], strict=True)]
'''


@pytest.fixture
def asked(base: Path, tmp_path: Path, write_rows: Write) -> Callable[..., GrpoTraining]:
    (tmp_path / "reward.py").write_text(REWARD)
    rows = [
        {"prompt": [{"role": "user", "content": word}], "bonus": 0.0}
        for word in ("stone", "cloud", "paper", "green") * 16
    ]
    data = write_rows(rows, "prompts.jsonl")

    def make(out: str = "out", **fields: Any) -> GrpoTraining:
        given: dict[str, Any] = {
            "reward": f"{tmp_path / 'reward.py'}:letters",
            "learning_rate": 5e-2,
            "schedule": "constant",
            "batch_size": 32,
            "generations": 8,
            "max_completion_length": 6,
            "lora": LoraOptions(r=4),
            **fields,
        }
        return GrpoTraining(
            model_name_or_path=str(base),
            dataset_path=data,
            output_dir=tmp_path / out,
            device="cpu",
            **given,
        )

    return make


def mean_letters(model: Any, tokenizer: Any) -> float:
    """Of 64 fresh samples of six tokens, by transformers alone."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "river"}], add_generation_prompt=True, return_dict=False
    )
    torch.manual_seed(0)
    ids = model.generate(
        input_ids=torch.tensor([prompt] * 64), do_sample=True, max_new_tokens=6, top_k=0
    )
    texts = tokenizer.batch_decode(ids[:, len(prompt) :], skip_special_tokens=True)
    return sum(
        sum(c.isascii() and c.isalpha() for c in text) / max(1, len(text)) for text in texts
    ) / len(texts)


def test_the_reward_of_what_is_sampled_rises(
    asked: Callable[..., GrpoTraining], base: Path
) -> None:
    training = asked(max_steps=10, log_steps=2)
    reports: list[Progress] = []
    done = train(training, progress=reports.append)
    tokenizer = AutoTokenizer.from_pretrained(training.output_dir)
    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    before = mean_letters(plain, tokenizer)
    after = mean_letters(PeftModel.from_pretrained(plain, training.output_dir).eval(), tokenizer)
    assert before < 0.4
    assert after > before + 0.15
    rewards = [each.metrics["reward"] for each in reports if "reward" in each.metrics]
    assert rewards[-1] > rewards[0] + 0.1
    assert (done.method, done.steps, done.rows) == ("grpo", 10, 64)
    assert "Group-relative policy optimisation" in (training.output_dir / "README.md").read_text()


class Unplugged(Exception):
    """The machine went away."""


def test_an_interrupted_training_resumes_and_ends_with_the_same_weights(
    asked: Callable[..., GrpoTraining],
) -> None:
    def listener(progress: Progress) -> None:
        if progress.step == 4:
            raise Unplugged

    fields: dict[str, Any] = {"max_steps": 6, "save_steps": 3, "batch_size": 16}
    whole, cut = asked("whole", **fields), asked("cut", **fields)
    train(whole)
    with pytest.raises(Unplugged):
        train(cut, progress=listener)
    assert train(cut).resumed_from == 3
    expected, found = (
        load_file(each.output_dir / "adapter_model.safetensors") for each in (whole, cut)
    )
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 12}, "whole groups: a multiple of generations"),
        ({"iterations": 2, "save_steps": 5}, "a multiple of iterations"),
        ({"reward": "letters"}, "module:function or file.py:function"),
        ({"reward": "no_such_module:f"}, "no_such_module can't be imported"),
        ({"reward": "json:no_such_function"}, "json has no function 'no_such_function'"),
        ({"reward": "broken.py:f"}, "broken.py can't be imported: ZeroDivisionError"),
        ({"dataset_path": Path("absent.jsonl")}, "no such file: absent.jsonl"),
    ],
)
def test_what_can_not_be_used_is_said_before_anything_is_sampled(
    asked: Callable[..., GrpoTraining],
    fields: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("1 / 0")
    with pytest.raises(InputError, match=message):
        train(evolve(asked(), **fields))


@pytest.mark.parametrize("fields", [{}, {"max_steps": 2}], ids=str)
def test_fewer_prompts_than_an_update_takes_are_refused(
    asked: Callable[..., GrpoTraining], write_rows: Write, fields: dict[str, Any]
) -> None:
    data = write_rows([{"prompt": f"go {i}", "bonus": 1} for i in range(3)], "few.jsonl")
    with pytest.raises(InputError, match=r"few\.jsonl has 3 prompts, and an update takes 4 "):
        train(evolve(asked(**fields), dataset_path=data))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "go"}, r"other\.jsonl:2: 'prompt' is missing"),
        ({"kind": "scored"}, r"other\.jsonl:2: 'prompt' is missing(?s:.*) ale data rl makes"),
        ({"prompt": [1, 2]}, r"other\.jsonl:2: the prompt is empty or no text"),
        ({"prompt": [{"content": "go"}]}, r"other\.jsonl:2: the prompt is empty or no text"),
        ({"prompt": "go\ud800"}, r"other\.jsonl:2: no valid Unicode"),
        ({"prompt": "go", "completions": 1}, r"other\.jsonl:2: a column 'completions'"),
        ({"prompt": "go", "bonus": "x"}, r"dataset_path: the rows of .* have no common columns"),
    ],
)
def test_a_row_that_can_not_be_used_is_named(
    asked: Callable[..., GrpoTraining], write_rows: Write, row: dict[str, Any], message: str
) -> None:
    data = write_rows([{"prompt": "go", "bonus": 1}, row], "other.jsonl")
    with pytest.raises(InputError, match=message):
        train(evolve(asked(), dataset_path=data))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[0.5]", r"returned \[0\.5\], expected a finite number for each of 32 completions"),
        ("[None for _ in completions]", r"returned \[None, None, .*\.\.\., expected a finite"),
        ("[float('nan')] * 32", "expected a finite number"),
        ("[float('inf')] * 32", "expected a finite number"),
        ("['high'] * 32", "expected a finite number"),
        ("None", "returned None, expected a finite number"),
        (
            "1 / 0",
            r"^/.*other\.py:3: the reward function .*py:f failed: ZeroDivisionError: division",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_rewards_that_are_no_numbers_are_refused(
    tmp_path: Path, kind: str, body: str, message: str
) -> None:
    path = tmp_path / "other.py"
    path.write_text(f"{kind} f(completions, **columns):\n    # why\n    return {body}\n")
    reward = checked(f"{path}:f", load_reward(f"{path}:f"))

    async def call() -> None:
        found = reward(prompts=["go"] * 32, completions=["x"] * 32)
        if kind == "async def":
            await found

    with pytest.raises(AleError, match=message):
        asyncio.run(call())


def test_a_reward_that_is_missing_is_not_taken_for_zero(
    asked: Callable[..., GrpoTraining], tmp_path: Path
) -> None:
    path = tmp_path / "other.py"
    path.write_text("def f(completions, **columns):\n    return [None for _ in completions]\n")
    with pytest.raises(AleError, match=r"other\.py:f returned \[None"):
        train(asked(reward=f"{path}:f", max_steps=1))


TOOLS_FIRST = "{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor %}<|end|>"


def conversation(tool: str, argument: str, *, as_text: bool) -> dict[str, Any]:
    """A call of a tool with one argument and what it printed, with the tool's specification."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}}
    function = {"name": tool, "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    given = {argument: "x"}
    call = {"name": tool, "arguments": json.dumps(given) if as_text else given}
    return {
        "prompt": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [{"type": "function", "function": call}]},
            {"role": "tool", "content": "done", "tool_call_id": "1"},
        ],
        "tools": json.dumps(tools) if as_text else tools,
        "bonus": 0.0,
    }


@pytest.mark.parametrize("as_text", [True, False])
def test_a_prompt_has_its_own_tools_and_arguments(
    asked: Callable[..., GrpoTraining],
    base: Path,
    write_rows: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    as_text: bool,
) -> None:
    model = shutil.copytree(base, tmp_path / "model")
    template = model / "chat_template.jinja"
    template.write_text(TOOLS_FIRST + template.read_text())
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = [("shell", "command"), ("read_file", "path")]
    data = write_rows([conversation(*row, as_text=as_text) for row in rows], "tools.jsonl")
    seen: list[Any] = []
    generate = Qwen3ForCausalLM.generate

    def watched(self: Any, *given: Any, **more: Any) -> Any:
        seen.extend(more["input_ids"])
        return generate(self, *given, **more)

    monkeypatch.setattr(Qwen3ForCausalLM, "generate", watched)
    training = asked(max_steps=1, generations=2, batch_size=4)
    train(evolve(training, model_name_or_path=str(model), dataset_path=data))
    served = {
        tokenizer.apply_chat_template(
            plain["prompt"], tools=plain["tools"], add_generation_prompt=True, tokenize=False
        )
        for plain in (conversation(*row, as_text=False) for row in rows)
    }
    assert {tokenizer.decode(ids).replace("<pad>", "") for ids in seen} == served


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tools": "[{"}, r"other\.jsonl:1: 'tools' is no JSON"),
        ({"prompt": [{"role": "user", "tool_calls": "ls"}]}, r"other\.jsonl:1: tool_calls is no"),
    ],
)
def test_a_conversation_that_can_not_be_rendered_is_named(
    asked: Callable[..., GrpoTraining], write_rows: Write, more: dict[str, Any], message: str
) -> None:
    row = {**conversation("shell", "command", as_text=True), **more}
    with pytest.raises(InputError, match=message):
        train(evolve(asked(), dataset_path=write_rows([row], "other.jsonl")))


def test_a_conversation_needs_a_chat_template(
    asked: Callable[..., GrpoTraining], base: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(base, tmp_path / "model")
    (model / "chat_template.jinja").unlink()
    with pytest.raises(InputError, match=r"prompts\.jsonl:1: .* has no chat template"):
        train(evolve(asked(), model_name_or_path=str(model)))


@pytest.mark.parametrize(("reward", "says"), [("1.0", True), ("float(i)", False)])
def test_equal_rewards_in_all_updates_are_said(
    asked: Callable[..., GrpoTraining], tmp_path: Path, reward: str, says: bool
) -> None:
    path = tmp_path / "other.py"
    path.write_text(
        f"def f(completions, **columns):\n    return [{reward} for i in range(len(completions))]\n"
    )
    training = asked(reward=f"{path}:f", max_steps=2)
    assert ("had equal rewards in all updates" in train(training).summary()) is says
    assert ("had equal rewards in all updates" in train(training).summary()) is says
