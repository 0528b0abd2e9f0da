"""A tiny model in this process, and credited episodes of exact tokens."""

import gc
import os
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from attrs import field, frozen
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ale.types import (
    Batch,
    BatchStatistics,
    Chunk,
    Completion,
    Credit,
    CreditedGroup,
    Episode,
    Group,
    LLMCapabilities,
    Message,
    Rollout,
    Sampling,
    Span,
    TokenTrace,
    Trajectory,
    Turn,
)

VOCAB = 258


def make_tokenizer() -> Any:
    """One token per byte, one to pad with and one that ends."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True) for text in ("<pad>", "<end>")])
    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=core, pad_token="<pad>", eos_token="<end>")


def make_model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.15,
        tie_word_embeddings=True,
        pad_token_id=256,
        eos_token_id=257,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config).eval()


class InProcessLLM:
    """The part of a model component that a trainer looks at."""

    capabilities = LLMCapabilities(token_ids=True, logprobs=True)

    def __init__(self, seed: int = 0, **sampling: float) -> None:
        self.sampling = Sampling(**{"temperature": 1.0, "top_p": 1.0, **sampling})
        self.policy = SimpleNamespace(
            model=make_model(seed),
            tokenizer=make_tokenizer(),
            version=0,
            fingerprint="tiny",
            name="tiny",
            lock=threading.RLock(),
        )


@frozen(kw_only=True)
class Said:
    """One turn, by its tokens; it is one chunk."""

    prompt: Sequence[int]
    output: Sequence[int]
    forced: bool = False


@frozen(kw_only=True)
class Played:
    """One episode: its turns, its reward, and the weight and reward of each chunk."""

    said: Sequence[Said]
    reward: float
    weights: Sequence[float] | None = None
    rewards: Sequence[float] | None = None
    metadata: dict[str, Any] = field(factory=dict)


def _turn(said: Said, number: int) -> Turn:
    n = len(said.output)
    trace = TokenTrace(
        prompt_ids=tuple(said.prompt),
        output_ids=tuple(said.output),
        logprobs=(-5.0,) * n,
        policy_versions=(0,) * n,
    )
    message = Message(role="assistant", content="x" * n)
    completion = Completion(message=message, tokens=trace, forced=said.forced)
    return Turn(completion=completion, fresh_context=number == 0)


def credited(*episodes: Played, task: str = "t") -> CreditedGroup:
    """A group of these episodes, one chunk per turn."""
    rollouts, credits = [], []
    for number, played in enumerate(episodes):
        turns = tuple(_turn(said, i) for i, said in enumerate(played.said))
        chunks = tuple(
            Chunk(
                index=i,
                kind="test",
                spans=(
                    Span(turn=i, text=(0, len(s.output)), calls=(0, 0), tokens=(0, len(s.output))),
                ),
            )
            for i, s in enumerate(played.said)
        )
        episode = Episode(
            id=f"0-{task}-{number}",
            task_id=task,
            rollout=number,
            reward=played.reward,
            trajectory=Trajectory(turns=turns),
        )
        rollouts.append(Rollout(episode=episode, chunks=chunks))
        weights = tuple(played.weights or [played.reward] * len(chunks))
        credits.append(
            Credit(
                episode_id=episode.id,
                scheme="test",
                rewards=tuple(played.rewards or weights),
                returns=weights,
                weights=weights,
            )
        )
    mean = sum(each.reward for each in episodes) / max(1, len(episodes))
    statistics = BatchStatistics(n_episodes=len(episodes), mean_reward=mean)
    return CreditedGroup(
        group=Group(task_id=task, rollouts=tuple(rollouts), batch=statistics),
        credits=tuple(credits),
    )


def batch_of(*groups: CreditedGroup, step: int = 0) -> Batch:
    return Batch(step=step, groups=groups)


def contrast(step: int = 0) -> Batch:
    """Two tasks of three episodes of two turns, the first of which succeeds."""
    groups = []
    for task in (0, 1):
        prompt = [1, 2, 3 + task]
        played = []
        for i in range(3):
            first = [20 + i, 21 + task]
            told = [*prompt, *first, 9, 9]
            reward = 1.0 if i == 0 else 0.0
            played.append(
                Played(
                    said=[
                        Said(prompt=prompt, output=first),
                        Said(prompt=told, output=[40 + i, 41, 257]),
                    ],
                    reward=reward,
                    weights=[0.5 * (reward - 0.3), reward - 0.3],
                )
            )
        groups.append(credited(*played, task=f"t{task}"))
    return batch_of(*groups, step=step)


@pytest.fixture(scope="session", autouse=True)
def without_collecting_libraries() -> None:
    """Accelerate collects garbage before each training, and TRL alone is a million objects."""
    import ale_trainer_trl.learning.learner  # noqa: F401

    gc.freeze()


@pytest.fixture
def lab() -> Any:
    """The makers above, for tests: modules of tests can't import each other."""
    return SimpleNamespace(
        Played=Played,
        Said=Said,
        batch_of=batch_of,
        contrast=contrast,
        credited=credited,
        llm=InProcessLLM,
        make_model=make_model,
        make_tokenizer=make_tokenizer,
    )
