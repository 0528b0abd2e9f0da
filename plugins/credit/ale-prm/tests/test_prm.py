"""The scorer, its contract, its files, and training on runs with known labels."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.protocols import StepScorer
from ale.testing import builders
from ale.testing.credit import chunk_per_turn
from ale.testing.scorer import ScorerContract, scoring_context
from ale.types import Episode, ScoredEpisode, StepScore, Task, Trajectory
from ale.values import EpisodeValues, Measured, Values, write_values
from ale_prm import head as heads
from ale_prm.frozen import FrozenModel, end_of, load_frozen
from ale_prm.options import PrmOptions
from ale_prm.scorer import prm
from ale_prm.training import train_head

GOOD, BAD, FILLER = ("north", "up"), ("south", "down"), ("slowly", "fast", "twice", "again")
WIDTH = 32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), 0)


def make_model(folder: Path, seed: int) -> Path:
    """A model of random weights, and a tokenizer of characters and a few words."""
    words = ["<unk>", *map(chr, range(9, 127)), *GOOD, *BAD, *FILLER]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    make: Any = PreTrainedTokenizerFast
    make(tokenizer_object=core, unk_token="<unk>").save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=WIDTH,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=128,
        initializer_range=0.5,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def run_of(path: Path, episodes: int = 60) -> Path:
    """A run of episodes of four steps; the value after a step is the share of good ones so far."""
    chance, made, values, rows = random.Random(1), [], {}, []
    for number in range(episodes):
        good = [chance.random() < 0.5 for _ in range(4)]
        turns = [
            builders.turn(f"{chance.choice(GOOD if each else BAD)} {chance.choice(FILLER)}")
            for each in good
        ]
        won = [sum(good[: k + 1]) * 12 // (k + 1) for k in range(4)]
        task = f"t{number % 6}"
        one = builders.episode(
            float(won[-1] >= 6), *turns, task_id=task, rollout=number, episode_id=f"e{number}"
        )
        made.append(one)
        values[one.id] = EpisodeValues(
            episode_id=one.id,
            task_id=task,
            states=tuple(f"{one.id}.{k}" for k in range(5)),
            successes=(6, *won),
            trials=(12,) * 5,
        )
        chunks = chunk_per_turn(one.trajectory)
        scores = tuple(StepScore(value=n / 12) for n in won)
        rows.append(ScoredEpisode(episode_id=one.id, scorer="judge", chunks=chunks, scores=scores))
    (path / "step_scores").mkdir(parents=True)
    config = {"chunker": {"type": "message"}}
    manifest = {"schema": 1, "run_id": "r", "n_tasks": 6, "config": config}
    (path / "manifest.json").write_text(json.dumps(manifest))
    for file, lines in (
        ("episodes", made),
        ("tasks", [Task(id=f"t{n}", goal="Go.") for n in range(6)]),
        ("step_scores/00000", rows),
    ):
        text = b"".join(msgspec.json.encode(each) + b"\n" for each in lines)
        (path / f"{file}.jsonl").write_bytes(text)
    measured = Measured(rollouts=12, policy="p", tokenizer="", sandbox="s")
    write_values(path / "values.jsonl", Values(measured=measured, episodes=values))
    return path


def train(run: Path, model: Path, out: Path, labels: str = "values", **options: Any) -> heads.About:
    chosen = {"held_out": 0.25, "by": "trajectory", "shuffled": False, "seed": 0, **options}
    list(train_head([run], str(model), labels, out, **chosen))
    return msgspec.json.decode((out / "prm.json").read_bytes(), type=heads.About)


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A run, its model, and a head."""
    folder = tmp_path_factory.mktemp("trained")
    train(run_of(folder / "run"), model, folder / "prm")
    return folder / "run", model, folder / "prm"


class TestPrm(ScorerContract):
    @pytest.fixture
    def scorer(self, trained: tuple[Path, Path, Path]) -> StepScorer:
        return prm(PrmOptions(head=trained[2]), BuildContext())


@pytest.mark.parametrize("labels", ["values", "judge"])
@pytest.mark.parametrize("by", ["trajectory", "task"])
def test_a_head_tells_good_steps_of_trajectories_that_it_has_not_seen(
    trained: tuple[Path, Path, Path], tmp_path: Path, labels: str, by: str
) -> None:
    run, model, _ = trained
    about = train(run, model, tmp_path / "prm", labels, by=by)
    assert about.held_out.auc is not None
    assert about.held_out.auc > 0.8
    assert about.held_out.calibration < 0.15
    assert about.held_out.squared < 0.7 * about.held_out.squared_of_mean
    assert about.trajectories + about.held_out.trajectories == 60


def test_a_head_of_shuffled_labels_tells_nothing(
    trained: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    run, model, _ = trained
    about = train(run, model, tmp_path / "prm", shuffled=True)
    assert about.held_out.auc is not None
    assert 0.25 < about.held_out.auc < 0.75
    assert about.held_out.squared > 0.9 * about.held_out.squared_of_mean


async def scores(scorer: StepScorer, episode: Episode) -> list[float]:
    found = await scorer.score(scoring_context(episode), chunk_per_turn(episode.trajectory))
    return [each.value or 0.0 for each in found]


@pytest.mark.asyncio
async def test_the_scorer_says_what_the_head_says_in_training(
    trained: tuple[Path, Path, Path],
) -> None:
    scorer = prm(PrmOptions(head=trained[2], model=str(trained[1])), BuildContext())
    good = builders.episode(1.0, *(builders.turn(f"{word} fast") for word in (*GOOD, *GOOD)))
    bad = builders.episode(1.0, *(builders.turn(f"{word} fast") for word in (*BAD, *BAD)))
    high, low = await scores(scorer, good), await scores(scorer, bad)
    assert all(one > other for one, other in zip(high, low, strict=True))
    head, _, _ = heads.read(trained[2], path="head")
    chunks = chunk_per_turn(good.trajectory)
    vectors = load_frozen(str(trained[1]), path="model").vectors(
        good.trajectory, [end_of(each.spans) for each in chunks]
    )
    assert high == pytest.approx(head.scores(vectors))


def test_a_place_is_read_without_what_follows_it(model: Path) -> None:
    """One reading of an episode gives what a reading up to each place alone gives."""
    frozen = load_frozen(str(model), path="model")
    turns = [builders.turn(f"{word} fast", calls=[("go", "{}")]) for word in (*GOOD, *BAD)]
    whole = Trajectory(turns=tuple(turns))
    places = [end_of(chunk.spans) for chunk in chunk_per_turn(whole)]
    together = frozen.vectors(whole, places)
    for number, place in enumerate(places):
        alone = frozen.vectors(Trajectory(turns=whole.turns[: number + 1]), [place])
        assert torch.allclose(together[number], alone[0], atol=1e-5)
    assert together.shape == (4, 2 * WIDTH)
    longer = Trajectory(turns=tuple(turns * 20))  # more than the model's context
    ends = [end_of(chunk.spans) for chunk in chunk_per_turn(longer)]
    assert torch.isfinite(frozen.vectors(longer, ends)).all()
    assert len(frozen._read(longer, ends[-1])) == 128


def test_the_head_is_the_minimum_of_its_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    labels = torch.sigmoid(x @ torch.tensor([1.0, -2.0, 0.0, 0.5], dtype=torch.float64) + 0.3)
    head = heads.fit(x.float(), labels.tolist())
    spread, mean = x.float().double().std(0, unbiased=False), x.float().double().mean(0)
    w = (head.weight * spread).requires_grad_()
    b = (head.bias + head.weight @ mean).detach().requires_grad_()
    logits = (x.float().double() - mean) / spread @ w + b
    bce = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    (bce + 0.005 * w.square().sum()).backward()  # type: ignore[no-untyped-call]
    assert w.grad is not None
    assert w.grad.abs().max() < 1e-4
    assert b.grad is not None
    assert b.grad.abs() < 1e-4


def test_measures_of_a_head() -> None:
    assert heads.auc([0.9, 0.6, 0.6, 0.1], [1.0, 0.5, 0.4, 0.0]) == (1 + 1 + 0.5 + 1) / 4
    assert heads.auc([0.9], [1.0]) is None
    # Bins of 0.9 (label 0.5), and of 0.1 twice (label 0.2 on average).
    assert heads.calibration_error([0.92, 0.12, 0.14], [0.5, 0.4, 0.0]) == pytest.approx(
        (0.42 + abs(0.26 - 0.4)) / 3
    )
    assert heads.squared_error([0.5, 1.0], [0.0, 1.0]) == 0.125


def test_the_head_of_another_model_is_refused(
    trained: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    other = make_model(tmp_path / "other", 7)
    with pytest.raises(InputError, match="is not the model that the head in"):
        prm(PrmOptions(head=trained[2], model=str(other)), BuildContext())


def test_a_model_of_slightly_other_weights_is_refused(
    trained: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(trained[1], other)
    prm(PrmOptions(head=trained[2], model=str(other)), BuildContext())
    tensors = load_file(other / "model.safetensors")
    first = min(tensors)
    tensors[first].view(-1)[0] += 1e-3
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="is not the model that the head in"):
        prm(PrmOptions(head=trained[2], model=str(other)), BuildContext())


def test_a_model_with_another_tokenizer_is_refused(
    trained: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(trained[1], other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = None
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match="is not the model that the head in"):
        prm(PrmOptions(head=trained[2], model=str(other)), BuildContext())


def test_a_head_of_shuffled_labels_says_so_when_it_scores(
    trained: tuple[Path, Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, model, head = trained
    train(run, model, tmp_path / "control", shuffled=True)
    prm(PrmOptions(head=head), BuildContext())
    assert "dealt at random" not in caplog.text
    prm(PrmOptions(head=tmp_path / "control"), BuildContext())
    assert f"the head in {tmp_path / 'control'} were dealt at random" in caplog.text


@pytest.mark.parametrize("file", ["prm.json", "prm.safetensors"])
def test_a_damaged_head_is_an_error_that_names_it(
    trained: tuple[Path, Path, Path], tmp_path: Path, file: str
) -> None:
    for each in trained[2].iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    (tmp_path / file).write_bytes(b"{")
    with pytest.raises(InputError, match="holds no head"):
        prm(PrmOptions(head=tmp_path), BuildContext())


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("weight", lambda given: given * torch.nan, "no finite numbers"),
        ("weight", lambda given: given[1:], "one width"),
        ("weight", lambda given: torch.stack([given, given], 1), "one width"),
        ("weight", lambda given: given.float(), "float64"),
        ("bias", lambda given: torch.stack([given, given]), "single bias"),
        ("probe", lambda given: given.long(), "float32"),
    ],
)
def test_tensors_that_are_no_head_are_refused_before_they_score(
    trained: tuple[Path, Path, Path],
    tmp_path: Path,
    name: str,
    change: Callable[[torch.Tensor], torch.Tensor],
    said: str,
) -> None:
    (tmp_path / "prm.json").write_bytes((trained[2] / "prm.json").read_bytes())
    tensors = load_file(trained[2] / "prm.safetensors")
    save_file({**tensors, name: change(tensors[name])}, tmp_path / "prm.safetensors")
    with pytest.raises(InputError, match=f"holds no head.*{said}"):
        prm(PrmOptions(head=tmp_path), BuildContext())


def test_a_head_of_a_later_version_is_refused(
    trained: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    about = json.loads((trained[2] / "prm.json").read_text())
    (tmp_path / "prm.json").write_text(json.dumps(about | {"schema": 2}))
    (tmp_path / "prm.safetensors").write_bytes((trained[2] / "prm.safetensors").read_bytes())
    with pytest.raises(InputError, match="its schema is 2"):
        prm(PrmOptions(head=tmp_path), BuildContext())


@pytest.mark.parametrize(("field", "given"), [("value", 5.0), ("value", -1.0), ("turn", 50)])
def test_scores_that_can_not_be_are_not_learned_from(
    model: Path, tmp_path: Path, field: str, given: float
) -> None:
    file = run_of(tmp_path / "run", episodes=12) / "step_scores/00000.jsonl"
    first, *rest = file.read_text().splitlines(True)
    row = json.loads(first)
    (row["scores"][0] if field == "value" else row["chunks"][0]["spans"][0])[field] = given
    file.write_text(json.dumps(row) + "\n" + "".join(rest))
    with pytest.raises(InputError, match="the scores of judge for the episode e0 are damaged"):
        train(tmp_path / "run", model, tmp_path / "prm", "judge")


@pytest.mark.parametrize(
    ("labels", "options", "said"),
    [
        ("jugde", {}, "did you mean 'judge'"),
        ("values", {"held_out": 0.999}, "expected"),
    ],
)
def test_what_can_not_be_trained_on_is_said(
    trained: tuple[Path, Path, Path],
    tmp_path: Path,
    labels: str,
    options: dict[str, Any],
    said: str,
) -> None:
    with pytest.raises(InputError) as raised:
        train(trained[0], trained[1], tmp_path / "prm", labels, **options)
    (problem,) = raised.value.problems
    assert said in f"{problem.message} expected {problem.expected} {problem.hint}"
    assert not (tmp_path / "prm").exists()


def test_equal_trajectories_are_not_held_out_from_each_other(model: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", episodes=12)
    lines = (run / "episodes.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    again = [json.loads(line) | {"trajectory": first["trajectory"]} for line in lines]
    (run / "episodes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in again))
    with pytest.raises(InputError, match="1 different trajectories have labels"):
        train(run, model, tmp_path / "prm")


def test_the_model_is_not_trained(trained: tuple[Path, Path, Path], tmp_path: Path) -> None:
    before = (trained[1] / "model.safetensors").read_bytes()
    train(trained[0], trained[1], tmp_path / "prm")
    assert (trained[1] / "model.safetensors").read_bytes() == before
    assert isinstance(load_frozen(str(trained[1]), path="model"), FrozenModel)
