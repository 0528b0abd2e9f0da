"""Several processes give the gradients, the weights and the checkpoints of one."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from torch import Tensor

from ale.errors import StoreError
from ale.plugin import BuildContext
from ale.types import Gae
from ale_trainer_policy import ranks as ranks_module
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.models import prepare
from ale_trainer_policy.options import KlOptions, ObjectiveOptions, PolicyOptions
from ale_trainer_policy.placement import skeleton
from ale_trainer_policy.stored import SHARDS, StoredShards
from ale_trainer_policy.worker_group import OwnRanks
from ale_training.checkpoint import STATE, read_tensors
from ale_training.lora import LoraOptions

COMPARED = (
    "loss",
    "loss_kl",
    "loss_entropy",
    "loss_value",
    "value_mean",
    "explained_variance",
    "grad_norm",
    "critic_grad_norm",
    "ratio_max",
    "tokens_trained",
)
HEAD = CriticOptions(type="head", gradient="policy")
LORA = LoraOptions(r=2, target=("q_proj", "o_proj", "down_proj"))


@frozen
class Layout:
    """Ranks and copies of the model; of one rank, a process without any sharding."""

    ranks: int
    replicas: int = 1


ONE, TWO, FOUR, HSDP = Layout(1), Layout(2), Layout(4), Layout(4, replicas=2)
ALL = {"one": ONE, "two": TWO, "four": FOUR, "2x2": HSDP}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Callable[[int], None]]:
    """Starts so many ranks, and ends them when others are needed: a start takes seconds."""
    running: list[tuple[int, OwnRanks]] = []

    def end() -> None:
        while running:
            running.pop()[1].close()

    def wanted(n: int) -> None:
        if n > 1 and [each for each, _ in running] != [n]:
            end()
            running.append((n, OwnRanks(n, gpu=False)))

    yield wanted
    end()


@pytest.fixture
def make(lab: Any, ranks: Callable[[int], None]) -> Callable[..., Any]:
    """Makes a trainer of the same tiny model, over so many ranks."""

    def made(layout: Layout, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
        ranks(layout.ranks)
        options = PolicyOptions(
            lr=1e-3,
            sync="copy",
            processes=layout.ranks,
            replicas=layout.replicas,
            objective=ObjectiveOptions(
                preset="ipa",
                mask="none",
                kl=KlOptions(coefficient=0.1, estimator="k2"),
                entropy=0.01,
            ),
            epochs=2,
            max_grad_norm=None,
            max_tokens_per_microbatch=60,
            logits_mb=0.002,
        )
        trainer = policy_trainer(evolve(options, **changes), BuildContext())
        trainer.attach(lab.InProcessLLM(lab.tiny_model().to(dtype)))
        return trainer

    return made


@pytest.fixture
def batch(lab: Any) -> Callable[..., Any]:
    """Makes the batch of a step, of an odd number of micro-batches."""

    def made(step: int, critic: CriticOptions | None = None) -> Any:
        groups = lab.random_group(step), lab.random_group(step + 9, task="u")
        return lab.batch_of(*(for_critic(each, critic) for each in groups), step=step)

    return made


def for_critic(group: Any, critic: CriticOptions | None) -> Any:
    """The group, with credits that a critic completes if there is one; the episodes are cut off."""
    if critic is None:
        return group
    gae = Gae(gamma=0.9, lam=0.9, unit="chunk", truncated=True)
    return evolve(group, credits=tuple(evolve(each, gae=gae) for each in group.credits))


def saved(trainer: Any, folder: Path) -> dict[str, Tensor]:
    """Parameters and moments of a trainer, through a checkpoint in this folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    trainer.save(folder)
    if (folder / SHARDS).exists():
        found = StoredShards(folder / SHARDS, None)
        tensors = found.empty("")
        found.read(tensors)
        return tensors
    return read_tensors(folder, ("weight/", "optimizer/", "critic/"))


def near(mine: dict[str, Tensor], theirs: dict[str, Tensor], part: str, bound: float) -> None:
    """Tensors with this in their name are within the bound, each relative to its norm."""
    names = [name for name in mine if part in name]
    assert names
    assert mine.keys() == theirs.keys()
    for name in names:
        apart = (theirs[name].double() - mine[name].double()).norm()
        assert apart <= bound * mine[name].double().norm().clamp_min(1e-9), name


async def metrics_of(trainer: Any, batch: Any) -> dict[str, float]:
    found = (await trainer.step(batch)).metrics
    return {name: found[name] for name in COMPARED if name in found}


async def test_gradients_are_those_of_one_process(
    make: Callable[..., Any], batch: Callable[..., Any], tmp_path: Path, case: dict[str, Any]
) -> None:
    """One update at a time: the first moments of the first are its gradient, times a number.

    With tree packing, over batches that share prefixes; the second step goes on from a checkpoint
    of the first.
    """
    layout, changes = case["layout"], {"epochs": 1, **case["changes"]}
    critic = changes.get("critic")
    one = make(ONE, **{**changes, "gradients": "sharded", "offload": "none"})
    many = make(layout, **changes)
    for step in range(2):
        mine, theirs = [await metrics_of(each, batch(step, critic)) for each in (one, many)]
        assert theirs == pytest.approx(mine, rel=1e-4)
        both = saved(one, tmp_path / "one"), saved(many, tmp_path / "many")
        near(*both, "optimizer/exp_avg/", 1e-5)
        many = make(layout, **changes)
        many.load(tmp_path / "many")
    handed = many.snapshot().weights
    for name, tensor in one.snapshot().weights.items():
        assert float((handed[name] - tensor).norm() / tensor.norm()) < 1e-4, name


KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "adapters": {"lora": LORA},
    "adapters, recomputed": {"lora": LORA, "activations": "recompute"},
    "whole gradients": {"gradients": "whole"},
    "on the host": {"offload": "host"},
    "head": {"critic": HEAD},
    "critic": {"critic": CriticOptions(type="model"), "gradients": "whole"},
}
ALWAYS = {
    ("2x2", "full"),
    ("four", "adapters, recomputed"),
    ("2x2", "whole gradients"),
}
"""The others take minutes together."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        cases = [
            pytest.param(
                {"layout": layout, "changes": changes},
                id=f"{name}, {kind}",
                marks=() if (name, kind) in ALWAYS else pytest.mark.long,
            )
            for name, layout in ALL.items()
            if layout is not ONE
            for kind, changes in KINDS.items()
        ]
        metafunc.parametrize("case", cases)
    if "pair" in metafunc.fixturenames:
        short = {("four", "one", "full"), ("one", "2x2", "adapters"), ("2x2", "four", "full")}
        metafunc.parametrize(
            "pair",
            [
                pytest.param(
                    (ALL[writer], ALL[reader], KINDS[kind]),
                    id=f"{writer} to {reader}, {kind}",
                    marks=() if (writer, reader, kind) in short else pytest.mark.long,
                )
                for writer in ALL
                for reader in ALL
                for kind in ("full", "adapters")
            ],
        )


async def test_a_checkpoint_is_read_to_the_bit_by_another_number_of_ranks(
    make: Callable[..., Any],
    batch: Callable[..., Any],
    tmp_path: Path,
    pair: tuple[Layout, Layout, dict[str, Any]],
) -> None:
    writer, reader, changes = pair
    first = make(writer, **changes)
    await first.step(batch(0))
    written = saved(first, tmp_path / "first")
    expected = await metrics_of(first, batch(1)) if writer == reader else None
    after = saved(first, tmp_path / "after") if writer == reader else None
    second = make(reader, **changes)
    second.load(tmp_path / "first")
    read = saved(second, tmp_path / "second")
    assert read.keys() == written.keys()
    assert [name for name in read if not torch.equal(read[name], written[name])] == []
    if expected is not None and after is not None:
        assert await metrics_of(second, batch(1)) == expected
        again = saved(second, tmp_path / "again")
        assert [name for name in after if not torch.equal(after[name], again[name])] == []


async def test_each_rank_writes_its_own_part_while_training_goes_on(
    make: Callable[..., Any], batch: Callable[..., Any], tmp_path: Path
) -> None:
    trainer = make(HSDP, saving="background")
    await trainer.step(batch(0))
    expected = saved(trainer, tmp_path / "at once")
    folder = tmp_path / "meanwhile"
    folder.mkdir()
    finish = trainer.start_saving(folder)
    await trainer.step(batch(1))
    finish()
    shards = StoredShards(folder / SHARDS, None)
    found = shards.empty("")
    shards.read(found)
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    size = sum(each.nbytes for each in expected.values())
    files = [each.stat().st_size for each in (folder / SHARDS).glob("*.distcp")]
    # Of two copies of the model each part is written once; beside numbers are names.
    assert len(files) > 1
    assert max(files) < 0.75 * size + 100_000


async def test_a_part_that_one_rank_can_not_read_is_one_error_after_which_all_go_on(
    make: Callable[..., Any], batch: Callable[..., Any], tmp_path: Path
) -> None:
    trainer = make(FOUR)
    await trainer.step(batch(0))
    written = saved(trainer, tmp_path / "whole")
    broken = tmp_path / "broken"
    shutil.copytree(tmp_path / "whole", broken)
    counters = json.loads((broken / STATE).read_text())
    counters |= {"shards": {}, "own_digest": None}  # as earlier versions, which wrote no digests
    (broken / STATE).write_text(json.dumps(counters))
    part = max((broken / SHARDS).glob("__2_*.distcp"), key=lambda each: each.stat().st_size)
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"broken/shards can't be read: rank \d: "):
        trainer.load(broken)
    (broken / SHARDS / ".metadata").write_bytes(b"")
    with pytest.raises(StoreError, match=r"broken/shards can't be read: Ran out of input$"):
        trainer.load(broken)
    shutil.copytree(tmp_path / "whole", tmp_path / "file", ignore=lambda *_: [SHARDS])
    with pytest.raises(StoreError, match=r"file/shards/\S+ can't be read: No such file"):
        trainer.load(tmp_path / "file")
    trainer.load(tmp_path / "whole")
    read = saved(trainer, tmp_path / "again")
    assert [name for name in read if not torch.equal(read[name], written[name])] == []


def change(shards: Path, _: Path) -> None:
    """Change a value in the uncompressed archive of one tensor, so that it can still be read."""
    shard = shards / "__1_0.distcp"
    content = bytearray(shard.read_bytes())
    content[content.index(b"data/0") + 200] ^= 1
    shard.write_bytes(content)


def swap(shards: Path, _: Path) -> None:
    one, other = sorted(shards.glob("*.distcp"))
    content = one.read_bytes()
    shutil.copy(other, one)
    other.write_bytes(content)


def one_of_another_step(shards: Path, others: Path) -> None:
    shutil.copy(others / "__0_0.distcp", shards)


def all_of_another_step(shards: Path, others: Path) -> None:
    shutil.copytree(others, shards, dirs_exist_ok=True)


async def test_a_shard_that_is_damaged_or_of_another_step_is_refused(
    make: Callable[..., Any], batch: Callable[..., Any], tmp_path: Path
) -> None:
    trainer, one, whole = make(TWO, saving="background"), make(ONE), tmp_path / "1"
    for step in range(2):
        await trainer.step(batch(step))
        (tmp_path / str(step)).mkdir()
        trainer.start_saving(tmp_path / str(step))()
    for damage in (change, swap, one_of_another_step, all_of_another_step):
        folder = tmp_path / damage.__name__
        shutil.copytree(whole, folder)
        damage(folder / SHARDS, tmp_path / "0" / SHARDS)
        for reader in (trainer, one):
            with pytest.raises(StoreError, match=r"shards/\S+ is damaged or of another checkpoint"):
                reader.load(folder)
    for reader in (trainer, one):
        reader.load(whole)
    (whole / SHARDS / "__1_0.distcp").unlink()
    for reader in (trainer, one):
        with pytest.raises(StoreError, match=r"__1_0\.distcp can't be read: No such file"):
            reader.load(whole)


@pytest.mark.parametrize("gradients", ["sharded", "whole"])
async def test_whole_gradients_are_shared_once_an_update(
    make: Callable[..., Any],
    batch: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    gradients: str,
) -> None:
    trainer = make(FOUR, gradients=gradients, epochs=1, max_tokens_per_microbatch=16)
    calls: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, call)

    counted(trainer._learner._local, "round")
    shared = ("reduce_scatter_tensor", "reduce_scatter_single")  # of older and newer versions
    for name in shared:
        if hasattr(torch.distributed, name):
            counted(torch.distributed, name)
    await trainer.step(batch(0))
    groups = 3  # two layers, and what is in none
    assert calls["round"] > 1
    expected = 1 if gradients == "whole" else calls["round"]
    assert max(calls[name] for name in shared) == groups * expected


async def test_in_half_precision_updates_and_sums_over_ranks_are_in_float32(
    make: Callable[..., Any], batch: Callable[..., Any], tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"precision": "bf16", "epochs": 1}
    one, four = (make(each, torch.bfloat16, **changes) for each in (ONE, FOUR))
    mine, theirs = [await metrics_of(each, batch(0)) for each in (one, four)]
    assert theirs["grad_norm"] == pytest.approx(mine["grad_norm"], rel=0.05)
    tensors = saved(four, tmp_path / "four")
    assert {each.dtype for each in tensors.values()} == {torch.float32}
    near(saved(one, tmp_path / "one"), tensors, "weight/", 0.01)
    handed = four.snapshot().weights.values()
    assert {each.dtype for each in handed} == {torch.bfloat16}


async def test_a_sampler_in_float32_is_handed_exactly_what_is_trained(
    make: Callable[..., Any], batch: Callable[..., Any], tmp_path: Path
) -> None:
    four = make(FOUR, precision="bf16", epochs=1)
    await four.step(batch(0))
    handed = four.snapshot().weights
    for name, trained in saved(four, tmp_path / "four").items():
        if name.startswith("weight/"):
            assert torch.equal(handed[name.removeprefix("weight/")], trained), name


def test_ranks_wait_for_a_call_for_as_long_as_a_step_may_sample(
    ranks: Callable[[int], None],
) -> None:
    ranks(4)
    calls, collectives = (
        group._get_backend(torch.device("cpu")).options._timeout
        for group in (ranks_module._calls, torch.distributed.group.WORLD)
    )
    assert (calls, collectives) == (timedelta(days=365), timedelta(minutes=30))


def test_a_process_is_given_its_shards_of_a_model_that_is_nowhere_copied(lab: Any) -> None:
    policy = lab.InProcessLLM(lab.tiny_model()).policy
    options = PolicyOptions(sync="copy", processes=2, lora=LORA)
    source = prepare(policy, options)
    weight = policy.model.model.layers[0].self_attn.q_proj.weight
    own = source.model.layers[0].self_attn.q_proj
    assert own.base_layer.weight.data_ptr() == weight.data_ptr()
    assert weight.requires_grad
    assert not own.base_layer.weight.requires_grad
    empty = skeleton(source)
    assert {each.device.type for each in empty.parameters()} == {"meta"}
    assert empty.lm_head.weight is empty.model.embed_tokens.weight, "tied, as in the source"


def test_several_processes_need_a_copy() -> None:
    with pytest.raises(ValueError, match="needs sync: copy"):
        PolicyOptions(processes=2)
    with pytest.raises(ValueError, match="needs processes: 1"):
        PolicyOptions(processes=2, sync="copy", old_policy="rollout_version")
    with pytest.raises(ValueError, match="does not divide 4"):
        PolicyOptions(processes=4, sync="copy", replicas=3)
    with pytest.raises(ValueError, match="offload: host needs sync: copy"):
        PolicyOptions(offload="host")
