"""Shared prefixes are computed once, and nothing else changes, whatever the packing."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from ale.errors import AleError
from ale_trainer_policy.attention import (
    compiled_block_mask,
    make_plan,
    seen_from,
    tree_attention,
)
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.models import prepare
from ale_trainer_policy.options import PRESETS, LearnOptions
from ale_trainer_policy.samples import Sample
from ale_trainer_policy.scoring import score
from ale_trainer_policy.targets import Reinforcement
from ale_trainer_policy.tree import Tree, merge, merged_size, pack, split

CLOSE = 1e-6
"""In double precision: the norms of transformers' models compute in single precision throughout."""


def random_rows(seed: int, n: int = 7) -> list[np.ndarray[Any, Any]]:
    """Rows that branch off one another, prefixes of others and copies among them."""
    rng = random.Random(seed)
    rows: list[list[int]] = [[rng.randrange(9) for _ in range(rng.randint(1, 8))]]
    while len(rows) < n:
        base = rng.choice(rows)
        kept = base[: rng.randint(0, len(base))]
        rows.append(kept + [rng.randrange(9) for _ in range(rng.randint(0, 6))] or [0])
    return [np.asarray(row, dtype=np.int64) for row in rows]


def prefixes(rows: list[Any]) -> set[tuple[int, ...]]:
    return {tuple(row[: n + 1].tolist()) for row in rows for n in range(len(row))}


@pytest.mark.parametrize("seed", range(20))
def test_a_forest_holds_every_prefix_once(seed: int) -> None:
    rows = random_rows(seed)
    tree, paths = merge(rows)
    assert len(tree.ids) == len(prefixes(rows)) == merged_size(rows)
    for row, path in zip(rows, paths, strict=True):
        assert tree.ids[path].tolist() == row.tolist()
        assert tree.position[path].tolist() == list(range(len(row)))
        assert tree.parent[path].tolist() == [-1, *path[:-1].tolist()]


def ancestors(tree: Tree) -> np.ndarray[Any, Any]:
    n = len(tree.ids)
    seen = np.zeros((n, n), dtype=bool)
    for token in range(n):
        above = token
        while above >= 0:
            seen[token, above] = True
            above = tree.parent[above]
    return seen


@pytest.mark.parametrize("seed", range(5))
def test_rows_side_by_side_share_nothing(seed: int) -> None:
    rows = random_rows(seed)
    tree, paths = merge(rows, shared=False)
    assert len(tree.ids) == sum(map(len, rows))
    assert sorted(np.concatenate(paths)) == list(range(len(tree.ids)))
    for row, path in zip(rows, paths, strict=True):
        assert tree.ids[path].tolist() == row.tolist()
        assert tree.parent[path].tolist() == [-1, *path[:-1].tolist()]


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_of_entry_and_exit_is_being_an_ancestor(seed: int) -> None:
    tree, _ = merge(random_rows(seed))
    n = len(tree.ids)
    q, k = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    last, position = torch.as_tensor(tree.last), torch.as_tensor(tree.position)
    wanted = torch.as_tensor(ancestors(tree))
    assert torch.equal(seen_from(last, position, None)(0, 0, q, k), wanted)
    near = position[q] - position[k] < 3
    assert torch.equal(seen_from(last, position, 3)(0, 0, q, k), wanted & near)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("window", [None, 40])
def test_the_compiled_mask_of_flex_attention_is_that_mask(window: int | None) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    rng = np.random.default_rng(0)
    start = rng.integers(0, 50, 300)
    rows = [np.concatenate([start[:n], rng.integers(0, 50, 200)]) for n in (100, 250, 300)]
    tree, _ = merge(rows)
    n = len(tree.ids)
    seen = seen_from(torch.as_tensor(tree.last), torch.as_tensor(tree.position), window)
    made = compiled_block_mask()(seen, None, None, n, n, device="cpu")
    plain = create_block_mask(seen, None, None, n, n, device="cpu")
    assert n > 128  # several blocks
    assert torch.equal(made.to_dense(), plain.to_dense())
    assert torch.equal(made.full_kv_num_blocks, plain.full_kv_num_blocks)


@pytest.mark.parametrize("seed", range(20))
def test_runs_and_their_chains_are_the_paths(seed: int) -> None:
    tree, _ = merge(random_rows(seed))
    plan = make_plan(tree, torch.device("cpu"))
    starts = np.cumsum([0, *plan.lengths])
    seen = ancestors(tree)
    for number, chain in enumerate(plan.chains):
        path = [t for run in chain for t in range(starts[run], starts[run + 1])]
        end = starts[number + 1] - 1
        assert path == np.flatnonzero(seen[end]).tolist()


def test_heads_too_narrow_for_the_kernel_of_a_gpu_are_refused() -> None:
    tree, _ = merge(random_rows(0))
    n = len(tree.ids)
    plan = evolve(make_plan(tree, torch.device("cpu")), last=torch.as_tensor(tree.last))
    heads = torch.zeros(1, 2, n, 8)
    with pytest.raises(AleError, match="at least 16 numbers; this model's have 8: set packing"):
        tree_attention(torch.nn.Module(), heads, heads, heads, None, tree=plan)


def read(lab: Any, seed: int, *, preset: str = "ipa", imitation: Any = "off") -> list[Sample]:
    """Normalised samples of two random groups, with log-probabilities of an old policy."""
    groups = [lab.random_group(seed, task="a"), lab.random_group(seed + 1000, task="b")]
    target = Reinforcement(objective=PRESETS[preset], imitation=ImitationOptions(when=imitation))
    samples = target.normalised(target.read(lab.batch_of(*groups)).samples)
    rng = np.random.default_rng(seed)
    return [
        evolve(s, old_logp=s.behaviour_logp + 0.3 * rng.normal(size=len(s.at))) for s in samples
    ]


def gradient(
    model: Any, pieces: list[list[Sample]], preset: str = "ipa", **options: Any
) -> tuple[float, torch.Tensor]:
    """Summed loss, and the gradient of all parameters in one vector."""
    learner = Learner(model, LearnOptions(**options))
    losses = [
        float(learner.forward_backward(pack(piece), PRESETS[preset]).terms.loss.detach())
        for piece in pieces
    ]
    return sum(losses), torch.cat(
        [p.grad.flatten() for p in learner.parameters if p.grad is not None]
    )


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    assert wanted.norm() > 0
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_a_trees_gradient_is_that_of_padded_rows(lab: Any, preset: str, kind: str) -> None:
    model = lab.tiny_model(kind).double()
    for seed in range(3):
        samples = read(lab, seed, preset=preset, imitation="always")
        assert any(sample.imitation.any() for sample in samples)
        tree = gradient(model, [samples], preset)
        padded = gradient(model, [samples], preset, packing="padded")
        packed = gradient(model, [samples], preset, packing="packed")
        for other in (padded, packed):
            assert tree[0] == pytest.approx(other[0], rel=CLOSE)
            assert relative(tree[1], other[1]) < CLOSE


@pytest.mark.parametrize("preset", PRESETS)
def test_in_single_precision_they_are_equal_to_1e_5(lab: Any, preset: str) -> None:
    model = lab.tiny_model()
    samples = read(lab, 5, preset=preset)
    tree = gradient(model, [samples], preset)
    padded = gradient(model, [samples], preset, packing="padded")
    assert relative(tree[1], padded[1]) < 1e-5


def test_a_sliding_window_looks_as_far_back_as_in_rows(lab: Any) -> None:
    model = lab.tiny_model(
        sliding_window=5, use_sliding_window=True, max_window_layers=0, num_hidden_layers=2
    ).double()
    assert set(model.config.layer_types) == {"sliding_attention"}
    samples = read(lab, 2)
    tree, padded = gradient(model, [samples]), gradient(model, [samples], packing="padded")
    assert relative(tree[1], padded[1]) < CLOSE
    full = gradient(lab.tiny_model().double(), [samples])
    assert relative(tree[1], full[1]) > 1e-3


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_on_policy_with_a_mean_over_tokens_ipa_gspo_and_grpo_are_one_gradient(
    lab: Any, sign: float
) -> None:
    """From episodes of several lengths to the gradient of the weights."""
    model = lab.tiny_model().double()
    turns = [
        [lab.TokenTurn(prompt=[1, 2], output=output)]
        for output in ([3, 4, 5], [6], [7, 8, 9, 3, 4])
    ]
    group = lab.credited(*(lab.TokenEpisode(turns=each, weights=[sign]) for each in turns))
    found = []
    for name in ("ipa", "gspo", "grpo"):
        parts = evolve(PRESETS[name], normaliser="tokens")
        target = Reinforcement(objective=parts, imitation=ImitationOptions(when="off"))
        samples = target.normalised(target.read(lab.batch_of(group)).samples)
        now = score(model, pack(samples)).logp.detach().numpy()
        ends = np.cumsum([len(sample.at) for sample in samples])
        fresh = [
            evolve(sample, old_logp=part, behaviour_logp=part)
            for sample, part in zip(samples, np.split(now, ends[:-1]), strict=True)
        ]
        gradients = gradient(model, [fresh], name)[1]
        assert sum(float(sample.weight.sum()) for sample in fresh) == pytest.approx(sign)
        found.append(gradients)
    for other in found[1:]:
        assert relative(other, found[0]) < CLOSE


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("packing", ["tree", "packed", "padded"])
def test_micro_batches_change_nothing(lab: Any, preset: str, packing: Any) -> None:
    model = lab.tiny_model().double()
    samples = read(lab, 3, preset=preset, imitation="always")
    assert any(sample.imitation.any() for sample in samples)
    whole = gradient(model, [samples], preset, packing=packing)
    for bound in (1, 40, 90):
        pieces = split(samples, bound, packing=packing)
        assert sum(len(piece) for piece in pieces) == len(samples)
        assert len(pieces) > 1
        cut = gradient(model, pieces, preset, packing=packing)
        assert cut[0] == pytest.approx(whole[0], rel=CLOSE)
        assert relative(cut[1], whole[1]) < CLOSE


@pytest.mark.parametrize("packing", ["tree", "packed", "padded"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_every_rank_has_about_as_much_to_compute(lab: Any, packing: Any, ranks: int) -> None:
    """Trajectories of one prompt, of very different lengths, in one micro-batch for one rank."""
    prompt, chance = list(range(20)), random.Random(3)
    lengths = [round(chance.lognormvariate(3.0, 1.0)) + 1 for _ in range(48)]
    answers = [[chance.randrange(20) for _ in range(length)] for length in lengths]
    turns = [
        lab.TokenTurn(prompt=prompt, output=each, logps=[-1.0] * len(each)) for each in answers
    ]
    group = lab.credited(*(lab.TokenEpisode(turns=[turn]) for turn in turns))
    target = Reinforcement(objective=PRESETS["reinforce"], imitation=ImitationOptions(when="off"))
    samples = target.read(lab.batch_of(group)).samples
    bound = 20_000
    assert len(split(samples, bound, packing=packing)) == 1
    pieces = split(samples, bound, packing=packing, ranks=ranks)
    assert len(pieces) == ranks
    assert sorted(each.episode for piece in pieces for each in piece) == sorted(
        each.episode for each in samples
    )
    sizes = [computed(piece, packing) for piece in pieces]
    assert sizes == sorted(sizes, reverse=True)
    longest = max(computed([sample], packing) for sample in samples)
    assert sizes[0] <= sum(sizes) / ranks + longest, "no rank waits for more than a trajectory"


def test_there_are_fewer_micro_batches_where_one_more_would_shorten_none(lab: Any) -> None:
    turns = [lab.TokenTurn(prompt=[n], output=[n] * 9, logps=[-1.0] * 9) for n in range(4)]
    group = lab.credited(*(lab.TokenEpisode(turns=[turn]) for turn in turns))
    target = Reinforcement(objective=PRESETS["reinforce"], imitation=ImitationOptions(when="off"))
    samples = target.read(lab.batch_of(group)).samples
    assert [len(piece) for piece in split(samples, 40, ranks=3)] == [2, 2]
    assert [len(piece) for piece in split(samples, 20, ranks=3)] == [2, 2]
    assert [len(piece) for piece in split(samples, 10, ranks=3)] == [1, 1, 1, 1]


def computed(piece: Sequence[Any], packing: str) -> int:
    rows = [row for sample in piece for row in sample.rows]
    if packing == "tree":
        return merged_size(rows)
    return sum(map(len, rows)) if packing == "packed" else len(rows) * max(map(len, rows))


def test_micro_batches_for_several_ranks_keep_within_the_bound(lab: Any) -> None:
    samples = read(lab, 6)
    for bound, ranks in itertools.product((1, 40, 90, 300), (2, 4)):
        alone, together = split(samples, bound), split(samples, bound, ranks=ranks)
        wanted = min(-(-len(alone) // ranks) * ranks, len(samples))
        assert len(alone) <= len(together) <= wanted
        for piece in together:
            assert len(piece) == 1 or computed(piece, "tree") <= bound


def test_the_order_of_a_batch_changes_nothing(lab: Any) -> None:
    model = lab.tiny_model().double()
    samples = read(lab, 4)
    shuffled = random.Random(0).sample(samples, len(samples))
    first, second = gradient(model, [samples]), gradient(model, [shuffled])
    assert relative(second[1], first[1]) < 1e-12
    names = [[sample.episode for sample in piece] for piece in split(samples, 60)]
    assert names == [[sample.episode for sample in piece] for piece in split(shuffled, 60)]


def test_padding_changes_nothing(lab: Any) -> None:
    model = lab.tiny_model().double()
    datum = pack(read(lab, 6))
    padded = score(model, datum, packing="padded").logp
    torch.testing.assert_close(score(model, datum).logp, padded, rtol=CLOSE, atol=CLOSE)


def test_what_stands_in_prompts_and_observations_is_not_trained(lab: Any) -> None:
    """Its log-probability may be anything: a weight for it is nowhere."""
    turns = [
        lab.TokenTurn(prompt=[1, 2, 3], output=[4]),
        lab.TokenTurn(prompt=[1, 2, 3, 4, 7, 8], output=[5]),
    ]
    target = Reinforcement(objective=PRESETS["ipa"], imitation=ImitationOptions())
    read_ = target.read(lab.batch_of(lab.credited(lab.TokenEpisode(turns=turns))))
    datum = pack(read_.samples)
    assert datum.tree.ids[datum.token].tolist() == [4, 5]


def test_rows_per_chunk_are_rows_per_trajectory(lab: Any) -> None:
    """Each turn as a context of its own gives the gradient of the whole episode as one."""
    model = lab.tiny_model().double()
    samples = read(lab, 8)
    apart = [_a_row_per_turn(sample) for sample in samples]
    assert sum(len(s.rows) for s in apart) > sum(len(s.rows) for s in samples)
    for packing in ("tree", "packed", "padded"):
        whole = gradient(model, [samples], packing=packing)
        cut = gradient(model, [apart], packing=packing)
        assert relative(cut[1], whole[1]) < CLOSE


def _a_row_per_turn(sample: Sample) -> Sample:
    rows, row = [], np.zeros_like(sample.row)
    for chunk in np.unique(sample.chunk):
        chosen = sample.chunk == chunk
        last = int(sample.at[chosen].max())
        row[chosen] = len(rows)
        rows.append(sample.rows[int(sample.row[chosen][0])][: last + 1])
    return evolve(sample, rows=tuple(rows), row=row)


@pytest.mark.parametrize("packing", ["tree", "packed", "padded"])
def test_recomputed_layers_give_the_same_gradient(lab: Any, packing: Any) -> None:
    model = lab.tiny_model().double()
    samples = read(lab, 10)
    kept = gradient(model, [samples], packing=packing)
    options = LearnOptions(activations="recompute")
    recomputing = prepare(lab.InProcessLLM(model).policy, options)
    calls: list[int] = []
    recomputing.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    again = gradient(recomputing, [samples], packing=packing)
    assert len(calls) == 2, "once forward, once more in the backward pass"
    assert relative(again[1], kept[1]) < 1e-12


def test_sharing_computes_as_many_tokens_as_there_are_prefixes(lab: Any) -> None:
    samples = read(lab, 9)
    found = score(lab.tiny_model(), pack(samples))
    assert found.computed == len(prefixes([row for sample in samples for row in sample.rows]))


def test_the_models_attention_is_its_own_again_afterwards(lab: Any) -> None:
    model = lab.tiny_model()
    before = model.config._attn_implementation
    score(model, pack(read(lab, 1)))
    assert model.config._attn_implementation == before != "ale_tree"


def test_temperature_divides_the_logits(lab: Any) -> None:
    model = lab.tiny_model()
    episode = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[3, 4])])
    target = Reinforcement(objective=PRESETS["ipa"], imitation=ImitationOptions())
    datum = pack(target.read(lab.batch_of(lab.credited(episode))).samples)
    found = score(model, datum, temperature=0.7)
    with torch.no_grad():
        logits = model(torch.tensor([[1, 2, 3, 4]])).logits[0, 1:3] / 0.7
    wanted = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(found.logp, wanted.log_prob(torch.tensor([3, 4])))
    torch.testing.assert_close(found.entropy, wanted.entropy())
