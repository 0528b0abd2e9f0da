"""The memory plan: what is traced is what a process that trains really takes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from click.testing import CliRunner
from transformers import LlamaConfig

from ale.runs import Registry
from ale.strict import from_plain, structure
from ale_trainer_policy.commands import plan as plan_command
from ale_trainer_policy.limits import host_memory
from ale_trainer_policy.memory_plan import MemoryPlan, Planner, Sampler
from ale_trainer_policy.options import PolicyOptions

MIB = 2**20
CONTEXT = 512
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 768,
    "vocab_size": 4096,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
HEAVY = {**SIZES, "hidden_size": 512, "num_hidden_layers": 6, "intermediate_size": 1536}
"""Of which the weights take more than what a short micro-batch does."""


@frozen(kw_only=True)
class Case:
    """What is trained."""

    sizes: dict[str, Any] = SIZES
    dtype: str = "float32"
    quantised: bool = False
    context: int = CONTEXT
    options: dict[str, Any]
    device: str = "cpu"

    def measured(self) -> int:
        """Bytes that processes take to train it, all together."""
        script = Path(__file__).with_name("measured_memory.py")
        what = self.sizes, self.dtype, self.quantised
        given = (*what, self.options, self.context, self.device)
        # The allocator gives freed memory back, as it otherwise does for large tensors alone.
        environ = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
        # On a processor with instructions for bfloat16, oneDNN's kernels take 19 MB more, whatever
        # the model's size.
        environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE"
        command = [sys.executable, str(script), *map(json.dumps, given)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return int(done.stdout.splitlines()[-1])

    def planned(self) -> float:
        """The same, without what is only there to sample."""
        sampled = sampler(
            dtype=getattr(torch, self.dtype),
            context=self.context,
            packed=False,
            prefix_cache=0,
            on_host=self.device == "cpu",
            quantised=self.quantised,
        )
        options = structure(from_plain(self.options), PolicyOptions)
        found = Planner(LlamaConfig(**self.sizes)).plan(sampled, options)
        return found.peak - sizes(found)["sampler's keys and values"]


TOKENS = {"max_tokens_per_microbatch": 1024}
SHORT = {"max_tokens_per_microbatch": 128}
COPY = {**SHORT, "sync": "copy"}
TWO = {**COPY, "processes": 2}
LORA = {"lora": {"r": 8}}
ALWAYS = {
    "tree": Case(options=TOKENS),
    # Short: without instructions for bfloat16, a processor takes a minute for 1,024 tokens.
    "adapters in bfloat16": Case(
        dtype="bfloat16", context=128, options={"max_tokens_per_microbatch": 256, **LORA}
    ),
}
SELDOM = {
    "recomputed": Case(options={**TOKENS, "activations": "recompute", "logits_mb": 8.0}),
    "padded": Case(options={**TOKENS, "packing": "padded", "logits_mb": None}),
    "autocast": Case(options={**TOKENS, "precision": "bf16"}),
    "in 4 bits": Case(quantised=True, options={**TOKENS, **LORA}),
    **{
        name: Case(sizes=HEAVY, context=64, **case)
        for name, case in {
            "copy": {"options": COPY},
            "a copy on the host": {"options": {**COPY, "offload": "host"}},
            "weights in 4 bits": {"quantised": True, "options": {**SHORT, **LORA}},
            "two ranks": {"options": TWO},
            "two ranks, whole gradients": {"options": {**TWO, "gradients": "whole"}},
            "two ranks on the host": {"options": {**TWO, "offload": "host"}},
            "two ranks, adapters": {"options": {**TWO, **LORA}},
            "two ranks, in bfloat16": {"dtype": "bfloat16", "options": TWO},
            "two ranks, autocast": {"options": {**TWO, "precision": "bf16"}},
            "two copies": {"options": {**TWO, "replicas": 2}},
        }.items()
    },
}


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(each, id=name) for name, each in ALWAYS.items()),
        *(pytest.param(each, id=name, marks=pytest.mark.long) for name, each in SELDOM.items()),
    ],
)
def test_processes_that_train_take_what_is_planned(case: Case) -> None:
    assert case.planned() == pytest.approx(case.measured(), rel=0.15)


LARGE = {
    **SIZES,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "max_position_embeddings": 16384,
}
"""Half a billion weights, as those of Qwen2.5-0.5B."""
BF16 = {"precision": "bf16"}
ON_GPU = {
    "fp32 weights": {"options": BF16},
    "recomputed": {"options": {**BF16, "activations": "recompute"}},
    "a long episode": {"context": 16384, "options": {**BF16, "max_tokens_per_microbatch": 16384}},
    "padded": {"options": {**BF16, "packing": "padded", "max_tokens_per_microbatch": 8192}},
    "bfloat16 weights": {"dtype": "bfloat16", "options": {}},
    "adapters": {"dtype": "bfloat16", "options": LORA},
    "in 4 bits": {"dtype": "bfloat16", "quantised": True, "options": LORA},
    "a copy": {"dtype": "bfloat16", "options": {"sync": "copy"}},
}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", ON_GPU)
def test_training_on_a_gpu_takes_what_is_planned(name: str) -> None:
    given: dict[str, Any] = {"sizes": LARGE, "context": 2048, "device": "cuda", **ON_GPU[name]}
    case = Case(**given)
    assert case.planned() == pytest.approx(case.measured(), rel=0.15)


def sampler(**changes: Any) -> Sampler:
    made = Sampler(
        dtype=torch.float32,
        context=CONTEXT,
        rows=4,
        packed=True,
        prefix_cache=16 * MIB,
    )
    return evolve(made, **changes)


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(LlamaConfig(**SIZES))


def sizes(found: MemoryPlan) -> dict[str, float]:
    return {part.name: part.bytes for part in found.parts}


OPTIONS = PolicyOptions(max_tokens_per_microbatch=1024)


def test_weights_gradients_and_moments_are_counted_by_their_numbers(planner: Planner) -> None:
    found = planner.plan(sampler(), OPTIONS)
    parts, n = sizes(found), found.traced.parameters
    assert found.traced.trained == n
    assert parts["weights"] == parts["sampler's packed copy"] == parts["gradients"] == 4 * n
    assert parts["AdamW's moments"] == 8 * n
    # Two of keys and values, 4 rows of 512 tokens, 4 layers, 4 heads of 32 numbers.
    assert parts["sampler's keys and values"] == 2 * 4 * 512 * 4 * 4 * 32 * 4
    always = sum(part.bytes for part in found.parts if part.when == "always")
    assert found.peak == always + 4 * n + parts["activations and logits"]


def test_a_copy_that_is_trained_is_sharded_and_the_sampler_is_not(planner: Planner) -> None:
    one = sizes(planner.plan(sampler(), evolve(OPTIONS, sync="copy")))
    sharded = evolve(OPTIONS, sync="copy", processes=4)
    four = sizes(planner.plan(sampler(), sharded))
    assert four["shards that are trained"] == one["copy that is trained"] / 4
    for name in ("AdamW's moments", "gradients"):
        assert four[name] == one[name] / 4
    assert four["weights"] == one["weights"] == one["weights handed over"]
    assert 0 < four["gathered layers"] < four["weights"]
    copies = sizes(planner.plan(sampler(), evolve(sharded, replicas=2)))
    assert copies["AdamW's moments"] == one["AdamW's moments"] / 2
    whole = sizes(planner.plan(sampler(), evolve(sharded, gradients="whole")))
    assert whole["whole gradients"] == one["gradients"]
    saving = sizes(planner.plan(sampler(on_host=True), evolve(sharded, saving="background")))
    assert saving["checkpoint that is written"] == 1.5 * four["AdamW's moments"]
    on_host = sizes(planner.plan(sampler(), evolve(sharded, offload="host")))
    assert not {"AdamW's moments", "gradients", "shards that are trained"} & on_host.keys()


def test_on_a_processor_all_processes_are_counted(planner: Planner) -> None:
    sharded = evolve(OPTIONS, sync="copy", processes=4)
    found = planner.plan(sampler(on_host=True), sharded)
    four = sizes(found)
    own = four["shards that are trained"] + four["AdamW's moments"]
    assert four["other processes"] == 3 * own
    update = four["gradients"] + four["gathered layers"] + four["activations and logits"]
    assert four["other processes' update"] == 3 * update
    assert "other processes" not in sizes(planner.plan(sampler(), sharded))


def test_what_is_kept_beside_a_gpu_is_counted(planner: Planner) -> None:
    kept = evolve(OPTIONS, sync="copy", processes=4, offload="host")
    found = planner.plan(sampler(), kept)
    handed = sizes(found)["weights"]
    assert found.on_host == 16 * found.traced.trained + handed
    undone = evolve(kept, epochs=2, replicas=2)
    assert planner.plan(sampler(), undone).on_host == 2 * (16 + 12) * found.traced.trained + handed
    assert planner.plan(sampler(on_host=True), kept).on_host == 0
    assert planner.plan(sampler(), evolve(kept, offload="none")).on_host == handed
    assert planner.plan(sampler(), OPTIONS).on_host == 0


def test_where_servers_sample_their_weights_are_on_the_host(planner: Planner) -> None:
    sharded = evolve(OPTIONS, sync="copy", processes=4)
    own, servers = (planner.plan(sampler(elsewhere=e), sharded) for e in (False, True))
    gone = {"weights", "sampler's packed copy", "sampler's keys and values"}
    assert sizes(own).keys() - sizes(servers).keys() == gone | {"sampler's prefix cache"}
    assert servers.on_host == own.on_host + sizes(own)["weights"]
    # On a processor they stay in its memory; adapters are trained in the model itself.
    for case, options in ({"on_host": True}, sharded), ({}, OPTIONS):
        assert "weights" in sizes(planner.plan(sampler(elsewhere=True, **case), options))


def test_in_half_precision_shards_are_in_float32_and_what_is_gathered_is_not(
    planner: Planner,
) -> None:
    sharded = evolve(OPTIONS, sync="copy", processes=2)
    found = planner.plan(sampler(dtype=torch.bfloat16), sharded)
    assert sizes(found)["shards that are trained"] == 4 * found.traced.parameters / 2
    exact = sizes(planner.plan(sampler(), sharded))["gathered layers"]
    assert sizes(found)["gathered layers"] == exact / 2
    half = planner.plan(sampler(), evolve(sharded, precision="bf16"))
    assert sizes(half)["gathered layers"] == exact / 2


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b\n", {"a/memory.max": "4096", "a/b/memory.max": "max"}, (4096, "a/memory.max")),
        ("0::/\n", {"memory.max": "5000"}, (5000, "memory.max")),
        (
            "4:cpu,memory:/x\n0::/\n",
            {
                "memory/x/memory.limit_in_bytes": "6000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            (6000, "memory/x/memory.limit_in_bytes"),
        ),
        # In a container the path is the host's, and only the root is there.
        (
            "4:memory:/docker/1f\n",
            {"memory/memory.limit_in_bytes": "7000"},
            (7000, "memory/memory.limit_in_bytes"),
        ),
    ],
    ids=["version 2, above", "version 2, container", "version 1", "version 1, container"],
)
def test_the_limit_of_a_cgroup_counts(
    tmp_path: Path, membership: str, files: dict[str, str], expected: tuple[int, str]
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(membership)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    limit, source = host_memory(tmp_path)
    assert (limit, source) == (expected[0], str(tmp_path / "sys/fs/cgroup" / expected[1]))


def test_without_a_limit_the_memory_of_the_machine_counts(tmp_path: Path) -> None:
    limit, source = host_memory(tmp_path)
    assert limit == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert source == "this machine"


def test_each_model_beside_the_policy_is_counted(planner: Planner) -> None:
    grpo = sizes(planner.plan(sampler(), evolve(OPTIONS, objective="grpo")))
    assert grpo["references of KL"] == grpo["weights"]
    versions = evolve(OPTIONS, old_policy="rollout_version", keep_versions=3)
    assert sizes(planner.plan(sampler(), versions))["versions kept"] == 3 * grpo["weights"]


def test_several_updates_on_a_processor_keep_a_copy_to_undo_them(planner: Planner) -> None:
    two = evolve(OPTIONS, epochs=2)
    found = planner.plan(sampler(on_host=True), two)
    assert sizes(found)["copy to undo the step"] == 12 * found.traced.trained
    for without in (planner.plan(sampler(), two), planner.plan(sampler(on_host=True), OPTIONS)):
        assert "copy to undo the step" not in sizes(without)


def test_what_would_make_it_fit_is_found_and_fits(planner: Planner) -> None:
    full = planner.plan(sampler(), OPTIONS).peak
    limit = 0.7 * full
    alone, together = planner.changes_that_fit(sampler(), OPTIONS, limit)
    assert {each.overrides for each in alone} >= {("trainer.activations=recompute",)}
    assert all(each.peak <= limit for each in alone)
    recomputed = planner.plan(sampler(), evolve(OPTIONS, activations="recompute"))
    assert alone[0].peak == pytest.approx(recomputed.peak)
    assert together.peak < min(each.peak for each in alone)
    none, _ = planner.changes_that_fit(sampler(), OPTIONS, 0.01 * full)
    assert none == []


def test_a_config_is_checked_first(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("tasks: {type: nothing}\n")
    result = CliRunner().invoke(plan_command, [str(config)], obj=Registry.installed())
    assert result.exception is not None
    assert "run.yaml:1: tasks.type: no task source 'nothing'" in str(result.exception)
