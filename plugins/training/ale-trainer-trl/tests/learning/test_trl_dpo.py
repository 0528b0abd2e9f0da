"""DPO from a data set: it teaches, it can be interrupted, and what it leaves loads again."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from ale.errors import AleError, InputError
from ale_trainer_trl.learning import (
    DpoTraining,
    LoraOptions,
    Progress,
    StoppedError,
    Trained,
    engine,
    train,
)

Write = Callable[..., Path]

# PEFT asks transformers under a name that is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")


def training(base: Path, data: Path, out: Path, **fields: Any) -> DpoTraining:
    given = {"learning_rate": 5e-3, "batch_size": 8, "lora": LoraOptions(r=4), **fields}
    return DpoTraining(
        model_name_or_path=str(base), dataset_path=data, output_dir=out, device="cpu", **given
    )


def logprob(model: Any, tokenizer: Any, row: Mapping[str, Any], side: str) -> float:
    """Log-probability of an answer, by transformers alone."""
    prompt = tokenizer.apply_chat_template(
        row["prompt"], add_generation_prompt=True, return_dict=False
    )
    answer = tokenizer(row[side][0]["content"] + "<|end|>")["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
    at = range(len(prompt) - 1, len(prompt) + len(answer) - 1)
    return float(sum(logits[i, token] for i, token in zip(at, answer, strict=True)))


def margins(model: Any, tokenizer: Any, rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [
        logprob(model, tokenizer, r, "chosen") - logprob(model, tokenizer, r, "rejected")
        for r in rows
    ]


def adapted(base: Path, folder: Path) -> Any:
    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(folder)).eval()


def test_chosen_answers_gain_over_rejected_ones_on_pairs_it_has_not_seen(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data, out = write_rows(lab.preferences(48, seed=0)), tmp_path / "out"
    reports: list[Progress] = []
    done = train(training(base, data, out, epochs=4, log_steps=6), progress=reports.append)

    fresh = lab.preferences(12, seed=1)
    tokenizer = AutoTokenizer.from_pretrained(out)
    before = margins(AutoModelForCausalLM.from_pretrained(base).eval(), tokenizer, fresh)
    after = margins(adapted(base, out), tokenizer, fresh)
    gains = [b - a for a, b in zip(before, after, strict=True)]
    assert min(gains) > 0
    assert sum(gains) / len(gains) > 2.0

    assert (done.steps, done.rows, done.adapter, done.resumed_from) == (24, 48, True, None)
    assert [each.step for each in reports] == list(range(1, 25))
    assert {each.steps for each in reports} == {24}
    losses = [each.metrics["loss"] for each in reports if each.metrics]
    assert len(losses) == 5  # the first update, and every sixth
    assert losses[-1] < losses[0] < 0.75


def test_what_it_leaves_is_an_adapter_a_tokenizer_a_record_and_a_card(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data, out = write_rows(lab.preferences(20, seed=0)), tmp_path / "out"
    done = train(training(base, data, out, evaluation_fraction=0.2, merge=True))
    assert done.rows == 16
    assert done.metrics["eval_rewards/accuracies"] >= 0.0
    card = (out / "README.md").read_text()
    assert f'base_model: "{base}"' in card
    assert 'library_name: "peft"' in card
    assert "| rows trained on | 16 |" in card
    assert f"| eval_loss | {done.metrics['eval_loss']:.6g} |" in card
    record = json.loads((out / "training.json").read_text())
    assert record["training"]["learning_rate"] == 5e-3
    assert record["trained"]["steps"] == done.steps == 2
    assert not (out / "work").exists()
    # What the card says about loading is so.
    code = card.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    row = lab.preferences(1, seed=3)[0]
    tokenizer = AutoTokenizer.from_pretrained(out)
    merged = AutoModelForCausalLM.from_pretrained(out / "merged").eval()
    one = logprob(names["model"].eval(), tokenizer, row, "chosen")
    assert one == pytest.approx(logprob(merged, tokenizer, row, "chosen"), abs=1e-4)
    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    assert one != pytest.approx(logprob(plain, tokenizer, row, "chosen"), abs=1e-4)


def test_an_adapter_of_a_relative_base_model_loads_from_any_folder(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = write_rows(lab.preferences(4, seed=0)), tmp_path / "out"
    monkeypatch.chdir(base.parent)
    train(training(Path(base.name), data, out))
    adapter = json.loads((out / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == str(base.resolve())


class Unplugged(Exception):
    """The machine went away."""


def stopped_after(step: int) -> Callable[[Progress], None]:
    def listener(progress: Progress) -> None:
        if progress.step == step:
            raise Unplugged

    return listener


def weights(folder: Path, name: str = "adapter_model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(folder / name)


def test_an_interrupted_training_resumes_and_ends_with_the_same_weights(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data = write_rows(lab.preferences(40, seed=0))
    fields: dict[str, Any] = {
        "epochs": 2,
        "save_steps": 3,
        "lora": LoraOptions(r=4, dropout=0.1),
        "gradient_accumulation": 1,
    }
    whole = train(training(base, data, tmp_path / "whole", **fields))
    cut = training(base, data, tmp_path / "cut", **fields)
    with pytest.raises(Unplugged):
        train(cut, progress=stopped_after(8))
    assert not (tmp_path / "cut" / "adapter_model.safetensors").exists()
    steps: list[int] = []
    done = train(cut, progress=lambda each: steps.append(each.step))
    assert (whole.steps, done.steps, done.resumed_from) == (10, 10, 6)
    assert steps == [7, 8, 9, 10]
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_stopped_training_resumes_and_ends_with_the_same_weights(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data = write_rows(lab.preferences(40, seed=0))
    cut = training(base, data, tmp_path / "cut")
    steps: list[int] = []
    with pytest.raises(StoppedError, match="stopped after update 3 of 5"):
        train(cut, progress=lambda each: steps.append(each.step), stop=lambda: len(steps) >= 2)
    assert steps == [1, 2, 3]
    assert train(cut).resumed_from == 3
    train(training(base, data, tmp_path / "whole"))
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


class _Ending(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == 2


@pytest.mark.parametrize("stop", [None, lambda: False])
def test_an_end_that_nobody_asked_for_is_not_said_to_be_a_stop(
    base: Path,
    tmp_path: Path,
    write_rows: Write,
    lab: Any,
    monkeypatch: pytest.MonkeyPatch,
    stop: Any,
) -> None:
    def with_another(trainer: Any, own: Any) -> None:
        trainer.add_callback(own)
        trainer.add_callback(_Ending)

    monkeypatch.setattr(engine, "use_callback", with_another)
    cut = training(base, write_rows(lab.preferences(40, seed=0)), tmp_path / "cut")
    with pytest.raises(AleError, match="TRL ended the training by itself after update 2 of 5") as e:
        train(cut, stop=stop)
    assert not isinstance(e.value, StoppedError)


def test_an_incomplete_checkpoint_is_ignored(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data = write_rows(lab.preferences(32, seed=0))
    cut = training(base, data, tmp_path / "cut", save_steps=1)
    with pytest.raises(Unplugged):
        train(cut, progress=stopped_after(4))
    (tmp_path / "cut" / "checkpoint-3" / "trainer_state.json").write_text('{"best_')
    assert train(cut).resumed_from == 2


def test_a_finished_training_is_not_repeated(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    asked = training(base, write_rows(lab.preferences(8, seed=0)), tmp_path / "out")
    done = train(asked)
    reports: list[Progress] = []
    assert train(asked, progress=reports.append) == evolve(done, already_trained=True)
    assert reports == []


def test_another_training_in_the_same_folder_is_refused_unless_resume_is_never(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data, out = write_rows(lab.preferences(8, seed=0)), tmp_path / "out"
    train(training(base, data, out))
    with pytest.raises(InputError, match=r"beta was 0\.1 and is 0\.5"):
        train(training(base, data, out, beta=0.5))
    other = write_rows(lab.preferences(8, seed=1))
    with pytest.raises(InputError, match="of other rows"):
        train(training(base, other, out))
    assert train(training(base, other, out, resume="never")).resumed_from is None


def test_weights_that_are_not_finite_end_the_training_and_are_not_written(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data, out = write_rows(lab.preferences(16, seed=0)), tmp_path / "out"
    with pytest.raises(AleError, match=r"update 2 has left .*lora_.* with values that are not"):
        train(training(base, data, out, learning_rate=1e30, save_steps=1))
    assert [each.parent.name for each in out.rglob("*.safetensors")] == ["checkpoint-1"]


def test_a_lack_of_memory_says_what_takes_less(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The allocator's own error, for an exbibyte.
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_, **__: torch.empty(1 << 60))
    data = write_rows(lab.preferences(16, seed=0))
    with pytest.raises(AleError, match=r"(?s)the training needs more memory.*smaller batch_size"):
        train(training(base, data, tmp_path / "out"))


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_a_folder_with_other_files_is_refused_and_left_alone(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any, resume: Any
) -> None:
    data, out = write_rows(lab.preferences(8, seed=0)), tmp_path / "out"
    (out / "checkpoint-7").mkdir(parents=True)
    with pytest.raises(InputError, match=r"output_dir: .*out holds checkpoint-7, and no training"):
        train(training(base, data, out, resume=resume))
    assert [each.name for each in out.iterdir()] == ["checkpoint-7"]


def test_a_file_in_the_way_of_the_output_is_named(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data = write_rows(lab.preferences(8, seed=0))
    for out in (data, data / "out"):
        with pytest.raises(InputError, match=f"output_dir: {data} is a file"):
            train(training(base, data, out))


def test_a_layer_that_is_not_there_is_named_and_nothing_is_written(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data, out = write_rows(lab.preferences(8, seed=0)), tmp_path / "out"
    lora = LoraOptions(target=("q_proj", "v_porj"))
    with pytest.raises(InputError, match=r"lora\.target: the model has no linear layer 'v_porj'"):
        train(training(base, data, out, lora=lora))
    assert not out.exists()


def test_an_adapter_is_not_trained_further_as_if_it_were_a_model(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data, out = write_rows(lab.preferences(8, seed=0)), tmp_path / "out"
    train(training(base, data, out))
    with pytest.raises(InputError, match="model_name_or_path: the model has adapters already"):
        train(training(out, data, tmp_path / "again"))
    assert not (tmp_path / "again").exists()


def test_without_adapters_every_weight_is_trained(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data, out = write_rows(lab.preferences(16, seed=0)), tmp_path / "out"
    done = train(training(base, data, out, lora=None, learning_rate=1e-3))
    assert not done.adapter
    assert 'library_name: "transformers"' in (out / "README.md").read_text()
    before, after = (load_file(folder / "model.safetensors") for folder in (base, out))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == before.keys()


KILLED = """
import os, sys
from pathlib import Path
from ale_trainer_trl.learning import DpoTraining, read_training, train

def listener(progress):
    if progress.step == 5:
        os.kill(os.getpid(), 9)

train(read_training(DpoTraining, Path(sys.argv[1])), progress=listener)
"""


@pytest.mark.long
def test_a_killed_process_resumes_from_its_last_checkpoint(
    base: Path, tmp_path: Path, write_rows: Write, lab: Any
) -> None:
    data = write_rows(lab.preferences(32, seed=0))
    config = tmp_path / "dpo.yaml"
    config.write_text(
        f"model_name_or_path: {base}\ndataset_path: {data}\noutput_dir: {tmp_path / 'cut'}\n"
        "learning_rate: 5.0e-3\nbatch_size: 4\nsave_steps: 2\ndevice: cpu\nlora: {r: 4}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(config)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
        capture_output=True,
    )
    assert done.returncode == -9, done.stderr.decode()
    asked = training(base, data, tmp_path / "cut", batch_size=4, save_steps=2)
    finished: Trained = train(asked)
    assert (finished.resumed_from, finished.steps) == (4, 8)
    train(training(base, data, tmp_path / "whole", batch_size=4, save_steps=2))
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
