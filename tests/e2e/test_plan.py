"""`ale plan`: what a config needs of memory, without its weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ale.runs import Registry

pytestmark = pytest.mark.needs("torch")

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 300,
}
CONFIG = """
tasks: {type: shell}
agent: {type: iflow}
llm: {type: policy, model: model, prefix_cache_mb: 0}
trainer: {type: policy, max_tokens_per_microbatch: 2048}
run: {concurrency: 3}
"""

Ask = Callable[..., Result]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """`ale plan` of a config whose model has a config, but no weights."""
    from transformers import LlamaConfig

    from ale_trainer_policy.commands import plan

    LlamaConfig(**SIZES).save_pretrained(tmp_path / "model")
    (tmp_path / "run.yaml").write_text(CONFIG)
    arguments = [str(tmp_path / "run.yaml"), "--set", f"llm.model={tmp_path / 'model'}"]

    def asked(*more: str) -> Result:
        return CliRunner().invoke(plan, [*arguments, *more], obj=Registry.installed())

    return asked


def test_a_plan_names_the_parts_their_sum_and_whether_it_fits(ask: Ask) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    found = json.loads(ask("--json").output)
    sizes = {part["name"]: part["bytes"] for part in found["parts"]}
    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    n = sum(each.numel() for each in model.parameters())
    assert (found["model"], found["parameters"]) == ("LlamaForCausalLM", n)
    assert sizes["weights"] == sizes["sampler's packed copy"] == 4 * n
    assert found["fits"]
    assert sizes["sampler's keys and values"] == held_by_the_sampler(model, rows=3, columns=300)


def held_by_the_sampler(model: Any, *, rows: int, columns: int) -> int:
    """Bytes of keys and values of the sampler's own cache."""
    import torch

    from ale_llm_policy.kv_cache import KVCache
    from ale_llm_policy.packed import Packed

    cache, packed = KVCache(torch.device("cpu")), Packed(model)
    cache.reserve(rows, columns)
    starts = torch.zeros(rows, dtype=torch.int64)
    packed.forward(starts[:, None], starts, cache, cache.step(0, starts, 0, 1))
    return sum(keys.nbytes + values.nbytes for keys, values in cache._layers)


def sampled_bytes(planned: Result) -> int:
    """The part that is computed from concurrency and length: others are measured, and vary."""
    sizes = {part["name"]: part["bytes"] for part in json.loads(planned.output)["parts"]}
    return int(sizes["sampler's keys and values"])


def test_what_does_not_fit_is_answered_with_what_would(ask: Ask) -> None:
    peak = json.loads(ask("--json").output)["peak_bytes"]
    limit = 0.8 * peak
    lines = ask("--memory", str(limit / 2**30)).output.splitlines()
    assert any(line.endswith("does not fit") for line in lines)
    fits = "it fits with --set trainer.activations=recompute: "
    assert any(line.startswith(fits) for line in lines)
    changed = json.loads(ask("--set", "trainer.activations=recompute", "--json").output)
    assert changed["peak_bytes"] < limit


def test_the_longest_episode_is_what_the_model_or_the_question_allows(ask: Ask) -> None:
    allowed = ask().output
    assert "episodes of 300 tokens" in allowed
    assert "episodes of 300 tokens" in ask("--set", "llm.context=900").output
    assert sampled_bytes(ask("--set", "llm.context=900", "--json")) == sampled_bytes(ask("--json"))
    assert "episodes of 900 tokens" in ask("--context", "900").output


def test_a_run_whose_servers_sample_is_planned_without_them(ask: Ask) -> None:
    changes = ("llm.type=servers", "llm.start=1", "trainer.sync=copy")
    printed = ask(*(word for each in changes for word in ("--set", each))).output
    assert "inference servers are not counted" in printed
    names = {line[:36].strip() for line in printed.splitlines()}
    assert {"weights", "copy that is trained"} <= names
    assert "sampler" not in printed


def test_a_config_is_planned_with_what_it_extends(ask: Ask, tmp_path: Path) -> None:
    alone = sampled_bytes(ask("--json"))
    (tmp_path / "run.yaml").rename(tmp_path / "below.yaml")
    (tmp_path / "run.yaml").write_text("extends: below.yaml\nrun: {concurrency: 6}\n")
    assert sampled_bytes(ask("--json")) == 2 * alone


def test_variables_are_planned_and_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = sampled_bytes(ask("--json"))
    monkeypatch.setenv("ALE_RUN__CONCURRENCY", "6")
    assert sampled_bytes(ask("--json")) == 2 * alone
    assert ask().output.startswith("run.concurrency is set by ALE_RUN__CONCURRENCY\n")


def test_a_model_that_is_not_there_is_named(ask: Ask) -> None:
    error = ask("--set", "llm.model=./other").exception
    assert "llm.model: the config of " in str(error)
