"""The session `smollm` on a tiny model in the same kind of file: read exactly, trained, resumed."""

import csv
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter, TokenType
from gguf.quants import quantize
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ale.errors import AleError

ROOT = Path(__file__).parents[2]
MODULES = ("reading", "model", "smollm")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WIDTH, HEADS, KV_HEADS, MLP, LAYERS = 64, 2, 1, 96, 2


@pytest.fixture
def smollm(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "smollm"))
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file with the types, the shapes and the tokenizer of SmolLM2's, and random weights."""
    tokens, merges = vocabulary()
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(1024)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    kinds = [TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in tokens]
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    random = np.random.default_rng(0)
    for name, shape, kind in tensors(len(tokens)):
        values = random.normal(size=shape).astype(np.float32) / (1 if len(shape) == 1 else 6)
        data = values if kind == Kind.F32 else quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level tokenizer."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=352,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(["Copy the file to fox and write the word in it. "] * 9, trainer)
    ids = core.get_vocab()
    merges = json.loads(core.to_str())["model"]["merges"]
    return sorted(ids, key=ids.__getitem__), [" ".join(pair) for pair in merges]


def tensors(n_tokens: int) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    kv = KV_HEADS * WIDTH // HEADS
    yield "token_embd.weight", (n_tokens, WIDTH), Kind.Q8_0
    yield "output_norm.weight", (WIDTH,), Kind.F32
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        yield f"{name}.attn_norm.weight", (WIDTH,), Kind.F32
        yield f"{name}.ffn_norm.weight", (WIDTH,), Kind.F32
        yield f"{name}.attn_q.weight", (WIDTH, WIDTH), Kind.Q4_1
        yield f"{name}.attn_k.weight", (kv, WIDTH), Kind.Q4_1
        yield f"{name}.attn_v.weight", (kv, WIDTH), Kind.Q4_1
        yield f"{name}.attn_output.weight", (WIDTH, WIDTH), Kind.Q4_1
        yield f"{name}.ffn_gate.weight", (MLP, WIDTH), Kind.Q4_1
        yield f"{name}.ffn_up.weight", (MLP, WIDTH), Kind.Q4_1
        yield f"{name}.ffn_down.weight", (WIDTH, MLP), Kind.Q4_1


def test_the_folder_has_the_logits_that_an_independent_reading_of_the_file_has(
    file: Path, tmp_path: Path, smollm: dict[str, ModuleType]
) -> None:
    assert smollm["model"].make_model(file, tmp_path / "model") < 1e-4
    assert (tmp_path / "model" / "config.json").exists()


def test_a_folder_whose_logits_differ_is_not_kept(
    file: Path, tmp_path: Path, smollm: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the order of queries and keys in the file had been overlooked."""
    monkeypatch.setattr(smollm["reading"], "_turned", lambda x, base: x)
    with pytest.raises(AleError, match="differ from those of"):
        smollm["model"].make_model(file, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def run(file: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tests" / "smollm" / "smollm.py"), "--short"]
    sets = ["--folder", str(folder), "--file", str(file), "--seeds", "1", "--only", "ipa"]
    return subprocess.run(
        [*command, *sets, *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_the_short_form_runs_and_a_second_call_has_nothing_left_to_do(
    file: Path, tmp_path: Path
) -> None:
    done = run(file, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| imitation | 1 | 1 | 0 of 2 |" in done.stdout
    assert "| IPA | 1 | 1 | 0 of 2 |" in done.stdout
    again = run(file, tmp_path)
    assert again.returncode == 0
    assert "episodes," not in again.stdout


def test_the_table_of_the_page_is_that_of_the_stored_results(
    smollm: dict[str, ModuleType],
) -> None:
    driver = smollm["smollm"]
    text = driver.CSV.read_text()
    results = driver.from_csv(text)
    assert driver.as_csv(results) == text
    page = driver.PAGE.read_text()
    assert driver.placed(page, results) == page
    assert len(list(csv.reader(text.splitlines()))) == len(results) + 1


def test_what_the_text_of_the_page_says_is_in_the_stored_results(
    smollm: dict[str, ModuleType],
) -> None:
    driver = smollm["smollm"]
    page = " ".join(driver.PAGE.read_text().split())
    results = driver.from_csv(driver.CSV.read_text())

    def last(arm: str, seed: int, temperature: float) -> int:
        held_out = [one for one in results if one.split == driver.HELD_OUT]
        of = [one for one in held_out if (one.arm, one.seed) == (arm, seed)]
        return [one.successes for one in of if one.temperature == temperature][-1]

    def best(seed: int, greedy: bool) -> int:
        """The best control; the frozen policy is decoded at every temperature for both."""
        frozen = max(last("imitate", seed, temperature) for temperature in (0.0, 0.5, 1.0))
        at = 0.0 if greedy else 1.0
        return max(frozen, *(last(arm, seed, at) for arm in ("weight-one", "imitate-on")))

    assert [last("ipa", seed, 0.0) for seed in (1, 2, 3)] == [48, 48, 0]
    of = [best(seed, greedy) for greedy in (True, False) for seed in (1, 2)]
    text = "the best control does {} and {} of 48 greedily, and {} and {} at temperature 1"
    assert text.format(*of) in page
    blind = [last("weight-one", seed, at) for at in (0.0, 1.0) for seed in (1, 2)]
    assert "from none to {} and {} as well".format(*blind[:2]) in page
    own = [last("ipa", seed, 1.0) for seed in (1, 2)]
    assert (
        "at temperature 1 it reaches {} and {}, where IPA reaches {} and {}".format(
            *blind[2:], *own
        )
        in page
    )
    steps = {
        seed: [
            one.successes
            for one in results
            if (one.split, one.arm, one.seed) == (driver.TRAINING, "ipa", seed)
        ]
        for seed in (1, 2, 3)
    }
    firsts = "{}, {} and {} successes".format(*(steps[seed][0] for seed in (1, 2, 3)))
    assert f"the first step had {firsts} with the three seeds" in page
    assert f"they rise to {steps[1][-1]} and {steps[2][-1]} in the last step" in page
    assert f"with seed 3 to {max(steps[3])}, and then fall to none" in page
    assert steps[3][-1] == 0


def test_earlier_settings_have_the_numbers_of_their_files(smollm: dict[str, ModuleType]) -> None:
    driver = smollm["smollm"]
    page = " ".join(driver.PAGE.read_text().split())

    def rows(name: str) -> dict[tuple[str, float], str]:
        """Of each arm and temperature, successes after the last step."""
        lines = csv.DictReader((driver.CSV.parent / name).read_text().splitlines())
        return {(one["arm"], float(one["temperature"])): one["successes"] for one in lines}

    two = rows("two-in-five.csv")
    for arm, label in (
        ("imitate", "imitation"),
        ("ipa", "IPA"),
        ("weight-one", "weight 1 for every episode"),
        ("imitate-on", "more demonstrations"),
    ):
        assert f"| {label} | {two[arm, 0.0]} | {two[arm, 1.0]} |" in page
    one = rows("one-command.csv")
    assert f"from 0 to {one['imitate', 0.0]} of 60 greedily" in page
    assert f"ten steps of IPA from there to {one['ipa', 0.0]}" in page
    assert f"the same demonstrations once more to {one['imitate-on', 0.0]}" in page


def test_results_that_are_stored_are_kept_unless_the_same_run_was_made_again(
    smollm: dict[str, ModuleType],
) -> None:
    driver = smollm["smollm"]
    stored = [driver.Result("held-out", "ipa", 0, step, 0.0, 60, 26) for step in (0, 10)]
    other = [driver.Result("held-out", "weight-one", 0, 10, 0.0, 60, 20)]
    again = [driver.Result("held-out", "ipa", 0, 0, 0.0, 60, 25)]
    assert driver.added(stored, other) == [*stored, *other]
    assert driver.added([*stored, *other], again) == [*again, *other]
