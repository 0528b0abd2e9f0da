"""What people write: configuration files, and rows of a data set."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, fields_dict
from safetensors.torch import load_file, save_file

from ale.errors import InputError, NotUsableError
from ale_trainer_trl.learning import (
    DpoTraining,
    GrpoTraining,
    LoraOptions,
    read_training,
    train,
)
from ale_trainer_trl.learning.pairs import THE_SAME, TOO_LONG, load_pairs, pair_of
from ale_trainer_trl.learning.tokens import Tokens, UnrenderableError, of_messages, of_text

Write = Callable[..., Path]
THREE = "model_name_or_path: m\ndataset_path: d.jsonl\noutput_dir: out\n"


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "dpo.yaml"
    path.write_text(text)
    return path


def test_three_keys_are_a_configuration(tmp_path: Path) -> None:
    read = read_training(DpoTraining, config(tmp_path, THREE))
    assert (read.model_name_or_path, read.dataset_path) == ("m", Path.cwd() / "d.jsonl")
    assert (read.beta, read.lora, read.resume) == (0.1, LoraOptions(), "auto")


def test_overrides_on_the_command_line_replace_values_of_the_file(tmp_path: Path) -> None:
    path = config(tmp_path, THREE + "lora: {r: 8, alpha: 4.0}\n")
    read = read_training(DpoTraining, path, ["lora.r=2", "beta=0.3"])
    assert (read.lora, read.beta) == (LoraOptions(r=2, alpha=4.0), 0.3)
    assert read_training(DpoTraining, path, ["lora=null"]).lora is None


def test_every_problem_of_a_configuration_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_training(
            DpoTraining, config(tmp_path, "model_name_or_path: m\nbeta: warm\ndatset_path: d\n")
        )
    message = str(caught.value)
    assert "dpo.yaml:2: beta:" in message
    assert "dpo.yaml:3: datset_path: unknown option" in message
    assert "did you mean 'dataset_path'?" in message
    assert "'output_dir' is missing" in message


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_a_seed_that_no_generator_takes_is_refused(tmp_path: Path, seed: int) -> None:
    with pytest.raises(InputError, match=r"dpo\.yaml:4: seed: expected a value"):
        read_training(DpoTraining, config(tmp_path, THREE + f"seed: {seed}\n"))


def test_a_reward_is_needed_for_grpo(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'reward' is missing"):
        read_training(GrpoTraining, config(tmp_path, THREE))
    assert (
        read_training(GrpoTraining, config(tmp_path, THREE + "reward: a.b:c\n")).reward == "a.b:c"
    )


def test_an_override_without_a_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected key\.key=value, found 'beta'"):
        read_training(DpoTraining, config(tmp_path, THREE), ["beta"])


@pytest.fixture
def tokenizer(lab: Any) -> Any:
    return lab.make_tokenizer()


def learnt(tokenizer: Any, tokens: Tokens) -> list[str]:
    """The texts of the stretches that are learnt."""
    pieces: list[list[int]] = [[]]
    for token, mask in zip(tokens.ids, tokens.mask, strict=True):
        if mask:
            pieces[-1].append(token)
        elif pieces[-1]:
            pieces.append([])
    return [tokenizer.decode(piece) for piece in pieces if piece]


def test_in_a_conversation_the_assistants_tokens_are_unmasked_up_to_the_end_of_turn(
    tokenizer: Any,
) -> None:
    call = {"id": "1", "function": {"name": "sh", "arguments": '{"c": "ls"}'}}
    prompt = [{"role": "user", "content": "go"}]
    answer = [
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "content": "a.txt", "tool_call_id": "1"},
        {"role": "assistant", "content": "Done."},
    ]
    tokens = of_messages(tokenizer, prompt, answer)
    assert tokenizer.decode(tokens.ids) == (
        '<|user|>go<|end|>\n<|assistant|>I look.<call>sh {"c": "ls"}<|end|>\n'
        "<|tool|>a.txt<|end|>\n<|assistant|>Done.<|end|>\n"
    )
    assert learnt(tokenizer, tokens) == ['I look.<call>sh {"c": "ls"}<|end|>', "Done.<|end|>"]


def test_in_text_the_answer_is_unmasked_and_ends_with_end_of_text(tokenizer: Any) -> None:
    tokens = of_text(tokenizer, "2 + 2 =", " 4")
    assert learnt(tokenizer, tokens) == [" 4<|end|>"]
    assert tokenizer.decode(tokens.ids) == "2 + 2 = 4<|end|>"


def test_a_template_that_rewrites_earlier_messages_is_refused_for_several_answers(
    tokenizer: Any,
) -> None:
    tokenizer.chat_template = "{{ messages | length }}" + tokenizer.chat_template
    prompt = [{"role": "user", "content": "go"}]
    twice = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(UnrenderableError, match="changes earlier messages"):
        of_messages(tokenizer, prompt, twice)


CONVERSATION = {
    "prompt": [{"role": "user", "content": "a"}],
    "chosen": [{"role": "assistant", "content": "b"}],
    "rejected": [{"role": "assistant", "content": "c"}],
}


def called(calls: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": "", "tool_calls": calls}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, "'rejected' is missing"),
        ({"kind": "scored"}, "'prompt' is missing(?s:.*) ale data dpo makes such rows"),
        ({"prompt": "a", "chosen": [], "rejected": "b"}, "don't match"),
        ({"prompt": [{"content": "a"}], "chosen": [], "rejected": []}, "don't match"),
        (
            {
                "prompt": [{"role": "user", "content": "a"}],
                "chosen": [{"role": "user", "content": "b"}],
                "rejected": [{"role": "user", "content": "c"}],
            },
            "no message of the assistant",
        ),
        ({"prompt": "", "chosen": "b", "rejected": "c"}, "the prompt has no token"),
        ({"prompt": "a\ud800", "chosen": "b", "rejected": "c"}, "no valid Unicode"),
        ({**CONVERSATION, "tools": "[{"}, "'tools' is no JSON"),
        ({**CONVERSATION, "chosen": called("ls")}, "tool_calls is no list of calls"),
        ({**CONVERSATION, "chosen": called(["ls"])}, "tool_calls is no list of calls"),
        (
            {**CONVERSATION, "chosen": called([{"function": None}])},
            "tool_calls is no list of calls",
        ),
    ],
)
def test_a_row_that_is_no_preference_is_named_with_its_line(
    tokenizer: Any, row: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=rf"rows\.jsonl:7: .*{message}"):
        pair_of(tokenizer, row, ("rows.jsonl", 7))


def asked(data: Path, tmp_path: Path, **fields: Any) -> DpoTraining:
    return DpoTraining(
        model_name_or_path="m", dataset_path=data, output_dir=tmp_path / "out", **fields
    )


def test_the_three_forms_of_a_data_set_give_the_same_pairs(
    tokenizer: Any, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    import datasets

    rows = lab.preferences(5, seed=0)
    made = datasets.Dataset.from_list(rows)
    made.to_parquet(tmp_path / "rows.parquet")
    made.save_to_disk(str(tmp_path / "folder"))
    (tmp_path / "jsonl").mkdir()
    forms = [write_rows(rows), tmp_path / "rows.parquet", tmp_path / "folder"]
    found = [
        load_pairs(asked(path, tmp_path), tokenizer, tmp_path / f"{i}.arrow").fingerprint
        for i, path in enumerate(forms)
    ]
    assert len(set(found)) == 1


def test_pairs_that_are_too_long_or_the_same_are_counted(
    tokenizer: Any, tmp_path: Path, write_rows: Write
) -> None:
    rows = [
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"prompt": "a", "chosen": "b", "rejected": "b"},
        {"prompt": "a" * 20, "chosen": "b", "rejected": "c"},
    ]
    training = asked(write_rows(rows), tmp_path, max_length=16)
    pairs = load_pairs(training, tokenizer, tmp_path / "ids.arrow")
    assert (len(pairs.train), pairs.left_out) == (1, {TOO_LONG: 1, THE_SAME: 1})
    only = write_rows(rows[1:], "none.jsonl")
    message = "no pair to train on: 1 longer than max_length, 1 chosen"
    with pytest.raises(InputError, match=message) as caught:
        load_pairs(evolve(training, dataset_path=only), tokenizer, tmp_path / "no.arrow")
    hint = caught.value.problems[0].hint or ""
    enough = int(re.findall(r"max_length: (\d+) takes them all", hint)[0])
    longer = evolve(training, dataset_path=only, max_length=enough)
    assert len(load_pairs(longer, tokenizer, tmp_path / "all.arrow").train) == 1


def test_a_config_of_ale_lite_takes_what_its_agent_may_sample() -> None:
    """Three keys are a whole config there, and its conversations have up to 8,000 tokens."""
    assert fields_dict(DpoTraining)["max_length"].default > 8000


def test_held_out_pairs_are_drawn_by_the_seed_and_are_not_trained_on(
    tokenizer: Any, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data = write_rows(lab.preferences(20, seed=0))
    drawn = []
    for seed in (0, 0, 1):
        training = asked(data, tmp_path, evaluation_fraction=0.25, seed=seed)
        pairs = load_pairs(training, tokenizer, tmp_path / "ids.arrow")
        assert pairs.held_out is not None
        held_out = [tuple(row["chosen_ids"]) for row in pairs.held_out]
        trained = [tuple(row["chosen_ids"]) for row in pairs.train]
        assert (len(held_out), len(trained)) == (5, 15)
        assert not {*held_out} & {*trained}
        drawn.append(held_out)
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(("n", "held_out"), [(1, None), (2, 1), (3, 1), (30, 3)])
def test_a_share_of_few_pairs_is_at_least_one_and_leaves_one(
    tokenizer: Any, tmp_path: Path, write_rows: Write, lab: Any, n: int, held_out: int | None
) -> None:
    training = asked(write_rows(lab.preferences(n, seed=0)), tmp_path, evaluation_fraction=0.1)
    pairs = load_pairs(training, tokenizer, tmp_path / "ids.arrow")
    assert (pairs.held_out and len(pairs.held_out)) == held_out
    assert len(pairs.train) == n - (held_out or 0)


def test_rows_that_are_refused_leave_no_folder(
    base: Path, tmp_path: Path, write_rows: Write
) -> None:
    training = evolve(asked(write_rows([{"prompt": "a"}]), tmp_path), model_name_or_path=str(base))
    with pytest.raises(InputError, match="'chosen' is missing"):
        train(training)
    assert not training.output_dir.exists()


def test_a_damaged_line_is_named(tokenizer: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n{"prompt":\n')
    with pytest.raises(InputError, match=r"rows\.jsonl:2: no JSON"):
        load_pairs(asked(path, tmp_path), tokenizer, tmp_path / "ids.arrow")


def test_a_missing_model_is_named(tmp_path: Path, write_rows: Write, lab: Any) -> None:
    data = write_rows(lab.preferences(1, seed=0))
    folder = tmp_path / "models" / "qwen"
    folder.mkdir(parents=True)
    with pytest.raises(InputError) as caught:
        train(evolve(asked(data, tmp_path), model_name_or_path=f"{folder}2"))
    (problem,) = caught.value.problems
    assert problem.message == f"{folder}2 can't be loaded: there is no folder {folder}2"
    assert problem.hint == "did you mean 'qwen'?"


def test_a_damaged_or_incomplete_model_is_refused(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data = write_rows(lab.preferences(1, seed=0))
    folder = tmp_path / "model"
    shutil.copytree(base, folder)
    training = evolve(asked(data, tmp_path), model_name_or_path=str(folder))
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.norm.weight"]
    save_file(weights, path, {"format": "pt"})
    lacks = r"model\.safetensors lacks weights of the model: model\.norm\.weight"
    with pytest.raises(InputError, match=lacks):
        train(training)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        train(training)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    training = asked(tmp_path / "none.jsonl", tmp_path, device="cuda")
    with pytest.raises(InputError, match=r"device: torch .* finds no GPU here"):
        train(training)
    assert not training.output_dir.exists()


@pytest.mark.parametrize("how", ["4bit", "8bit"])
def test_quantisation_without_a_gpu_is_refused_clearly(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any, how: Any
) -> None:
    data = write_rows(lab.preferences(1, seed=0))
    training = asked(data, tmp_path, quantization=how, device="cpu")
    with pytest.raises(NotUsableError, match=f"quantization: {how} needs a CUDA GPU"):
        train(training)
    with pytest.raises(InputError, match="can't be trained themselves"):
        train(evolve(training, lora=None))
    assert not training.output_dir.exists()


def test_missing_packages_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = metadata.version

    def version(name: str) -> str:
        if name in ("trl", "peft"):
            raise metadata.PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr("ale_trainer_trl.learning.packages.version", version)
    with pytest.raises(NotUsableError) as caught:
        train(asked(tmp_path / "d.jsonl", tmp_path))
    assert str(caught.value).startswith("trl, peft are not installed")
    assert "Install with: pip install 'trl>=" in str(caught.value)


def test_importing_the_package_imports_no_heavy_one() -> None:
    heavy = ["torch", "transformers", "trl", "peft", "datasets", "accelerate", "numpy"]
    code = (
        "import sys, json, ale_trainer_trl.learning\n"
        f"print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == []
