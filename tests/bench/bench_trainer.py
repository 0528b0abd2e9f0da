"""What shared prefixes save: one training step as a forest, row by row, and in TRL's GRPO trainer.

CPU seconds in one process and one run, the best of several steps, in single precision on the CPU.
The part with TRL is left out, with a line that says so, where trl is not installed:

    pip install "trl>=1.16,<2"
    python tests/bench/bench_trainer.py

Exit status 1 where an aim is missed.
"""

import asyncio
import importlib.util
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ale.plugin import BuildContext
from ale.types import Batch

if TYPE_CHECKING:
    from ale_training.testing import TokenEpisode

PROMPT = 1024
ROLLOUTS = 16
TURNS = 3
VOCAB = 2048
STEPS = 4
LEAST_OVER_ROWS = 6.0
LEAST_OVER_TRL = 4.0
SAME = 1e-3
"""How far the norms of the two gradients may be apart, relatively: it is the same work."""


def episodes(vocabulary: int = VOCAB, stretch: int = 1) -> "list[TokenEpisode]":
    """Rollouts of one task: its prompt, turns of 12 to 24 tokens, observations of 4 to 8.

    Args:
        stretch: turns and observations are so many times as long.
    """
    from ale_training.testing import TokenEpisode, TokenTurn

    rng = random.Random(0)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randrange(3, vocabulary) for _ in range(rng.randint(low, high)))

    prompt = ids(PROMPT, PROMPT)
    made = []
    for number in range(ROLLOUTS):
        seen, turns = prompt, []
        for _ in range(TURNS):
            sampled = ids(12 * stretch, 24 * stretch)
            turns.append(TokenTurn(prompt=seen, output=sampled, logps=(-7.6,) * len(sampled)))
            seen = seen + sampled + ids(4 * stretch, 8 * stretch)
        made.append(TokenEpisode(turns=turns, reward=float(number % 3 == 0)))
    return made


def batch_of(made: "Sequence[TokenEpisode]") -> Batch:
    """The group with TRL's advantages: (R - mean) / (std + 1e-4), the same for every token."""
    from ale_training import testing

    rewards = [episode.reward for episode in made]
    centre, spread = mean(rewards), stdev(rewards) + 1e-4
    weights = (((reward - centre) / spread,) * TURNS for reward in rewards)
    credited = (evolve(one, weights=each) for one, each in zip(made, weights, strict=True))
    return testing.batch_of(testing.credited(*credited))


def lengths(made: "Sequence[TokenEpisode]") -> list[int]:
    """Tokens of each rollout, its prompt included."""
    return [len(one.turns[-1].prompt) + len(one.turns[-1].output) for one in made]


def model() -> Any:
    """Two million parameters, the same ones each time."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    return Qwen3ForCausalLM(config)


def ours(
    batch: Batch,
    packing: str,
    make: Callable[[], Any] = model,
    clock: Callable[[], float] = time.process_time,
    **settings: Any,
) -> tuple[float, float]:
    """CPU seconds of a step, records to weights; and the norm of the first gradient.

    Args:
        make: the model.
        clock: what is measured.
        settings: options of the trainer.
    """
    from ale_trainer_policy.options import ObjectiveOptions, PolicyOptions
    from ale_trainer_policy.plugin import ale_trainers
    from ale_training.testing import InProcessLLM

    # Without the paper's KL, as TRL's trainer of the runs.
    objective = ObjectiveOptions(preset="grpo", kl="off")
    options = PolicyOptions(objective=objective, lr=1e-6, packing=packing, **settings)  # type: ignore[arg-type]
    component = next(one for one in ale_trainers() if one.name == "policy")
    trainer = component.build(options, BuildContext())
    llm: Any = InProcessLLM(make())
    trainer.attach(llm)
    seconds, norms = [], []
    for _ in range(STEPS):
        start = clock()
        report = asyncio.run(trainer.step(batch))
        seconds.append(clock() - start)
        norms.append(report.metrics["grad_norm"])
    return min(seconds), norms[0]


def trl(
    made: "Sequence[TokenEpisode]",
    make: Callable[[], Any] = model,
    clock: Callable[[], float] = time.process_time,
    **settings: Any,
) -> tuple[float, float]:
    """The same of TRL's GRPO trainer, whose rollouts are handed to it; nothing is generated.

    Args:
        make: the model.
        clock: what is measured.
        settings: of `GRPOConfig`, over those of here.
    """
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    class Clock(TrainerCallback):
        """CPU seconds of each step, and what it logs."""

        def __init__(self) -> None:
            self.seconds: list[float] = []
            self.norms: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = clock()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds.append(clock() - self.start)

        def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
            if "grad_norm" in logs:
                self.norms.append(float(logs["grad_norm"]))

    watch = Clock()
    rewards: list[float | None] = [episode.reward for episode in made]
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "per_device_train_batch_size": ROLLOUTS,
            "gradient_accumulation_steps": 1,
            "num_generations": ROLLOUTS,
            "max_completion_length": 256,
            "loss_type": "grpo",
            "beta": 0.0,
            "learning_rate": 1e-6,
            "lr_scheduler_type": "constant",
            "max_steps": STEPS,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
        }
        config = GRPOConfig(output_dir=folder, **(given | settings))
        trainer = GRPOTrainer(
            model=make(),
            reward_funcs=lambda completions, **_: rewards,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": "t"}] * STEPS),
            processing_class=tokenizer(),
            rollout_func=lambda prompts, _: handed(made),
            callbacks=[watch],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return min(watch.seconds), watch.norms[0]


def handed(made: "Sequence[TokenEpisode]") -> dict[str, Any]:
    """The episodes as TRL takes them: a prompt and a completion, observations masked."""
    prompts, completions, masks = [], [], []
    for episode in made:
        first, last = episode.turns[0], episode.turns[-1]
        start = len(first.prompt)
        completion = [*last.prompt[start:], *last.output]
        mask = [0] * len(completion)
        for turn in episode.turns:
            at = len(turn.prompt) - start
            mask[at : at + len(turn.output)] = [1] * len(turn.output)
        prompts.append(list(first.prompt))
        completions.append(completion)
        masks.append(mask)
    logprobs = [[-7.6] * len(completion) for completion in completions]
    return {
        "prompt_ids": prompts,
        "completion_ids": completions,
        "logprobs": logprobs,
        "env_mask": masks,
    }


def tokenizer() -> Any:
    """A word per id: TRL decodes completions for its reward functions."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(VOCAB)}
    inner = Tokenizer(models.WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=inner, unk_token="w0", pad_token="w1", eos_token="w2"
    )


def missing(*modules: str) -> list[str]:
    """Which of them can't be imported."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def row(name: str, seconds: float, ratio: float | None, aim: float | None) -> bool:
    """Print one row of the table; is the aim met?"""
    met = ratio is None or aim is None or ratio >= aim
    shown = "" if ratio is None else f"{ratio:8.2f}"
    wanted = "" if aim is None else f"  >= {aim:g}  {'ok' if met else 'MISSED'}"
    print(f"{name:34}{seconds:12.3f}{shown}{wanted}", flush=True)
    return met


def measure(name: str, least: float, tree: tuple[float, float], other: Callable[[], Any]) -> bool:
    """Measure one other way, and compare; False where the aim is missed or the work differs."""
    seconds, norm = other()
    met = row(name, seconds, seconds / tree[0], least)
    apart = abs(norm - tree[1]) / tree[1]
    if apart > SAME:
        print(f"    its gradient's norm is {norm:.6g}, the forest's {tree[1]:.6g}: NOT THE SAME")
    return met and apart <= SAME


def main() -> int:
    """Measure and print; 1 where an aim is missed."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    warnings.simplefilter("ignore")
    lacking = missing("torch", "transformers", "ale_trainer_policy")
    if lacking:
        print(f"skipped: {', '.join(lacking)} not installed (pip install -e .[train])")
        return 0
    import torch

    torch.set_num_threads(1)
    made = episodes()
    batch = batch_of(made)
    rows = lengths(made)
    shared = sum(rows) / (sum(rows) - (ROLLOUTS - 1) * PROMPT)
    print(
        f"{ROLLOUTS} rollouts of one task: a prompt of {PROMPT} tokens, then {TURNS} turns, "
        f"{mean(rows) - PROMPT:.0f} tokens on average;\n"
        f"sharing the prompt leaves 1/{shared:.1f} of the tokens"
    )
    print(f"{'one step, GRPO, AdamW, fp32':34}{'cpu-seconds':>12}{'ratio':>8}")
    tree = ours(batch, "tree")
    row("forest of shared prefixes", tree[0], None, None)
    kept = [measure("padded rows", LEAST_OVER_ROWS, tree, lambda: ours(batch, "padded"))]
    lacking = missing("trl", "datasets")
    if lacking:
        print(f"skipped: TRL's GRPO trainer (not installed: {', '.join(lacking)})")
    else:
        kept.append(measure("TRL's GRPO trainer", LEAST_OVER_TRL, tree, lambda: trl(made)))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
