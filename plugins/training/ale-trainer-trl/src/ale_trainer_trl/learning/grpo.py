"""Group-relative training on prompts. Imported late: see `training.train_grpo`."""

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

from ale_trainer_trl.learning import engine, output
from ale_trainer_trl.learning.errors import input_error
from ale_trainer_trl.learning.models import check, load_model, load_tokenizer, refused_layers
from ale_trainer_trl.learning.options import GrpoTraining
from ale_trainer_trl.learning.progress import Listener, Stop, Trained
from ale_trainer_trl.learning.rows import read_rows
from ale_trainer_trl.learning.suppressed_output import suppressed_output
from ale_training.lora import lora_config

Reward = Callable[..., Any]


def train(training: GrpoTraining, progress: Listener | None, stop: Stop | None) -> Trained:
    """As `training.train_grpo`, with all packages installed."""
    check(training)
    _check_batches(training)
    reward = load_reward(training.reward)
    with suppressed_output(), output.claimed(training.output_dir):
        return _train(training, reward, progress, stop)


def _train(
    training: GrpoTraining, reward: Reward, progress: Listener | None, stop: Stop | None
) -> Trained:
    tokenizer = load_tokenizer(training.model_name_or_path)
    rows = list(_prompts(training.dataset_path))
    if not rows:
        raise input_error(f"{training.dataset_path} has no row", path="dataset_path")
    data = hashlib.sha256(json.dumps(rows, sort_keys=True, default=str).encode()).hexdigest()
    model = load_model(training)
    checkpoint, done = output.prepare(training, "grpo", data)
    if done is not None:
        return done
    with refused_layers("lora.target"):
        trainer: Any = GRPOTrainer(
            model=model,
            reward_funcs=[reward],
            args=GRPOConfig(
                **engine.arguments(training),
                num_generations=training.generations,
                max_completion_length=training.max_completion_length,
                temperature=training.temperature,
                beta=training.beta,
                loss_type=training.loss,
                scale_rewards=training.scale_rewards,
                epsilon=training.epsilon,
                epsilon_high=training.epsilon_high,
                num_iterations=training.iterations,
            ),
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=tokenizer,
            peft_config=lora_config(training.lora),
        )
    return engine.run(
        trainer,
        training,
        method="grpo",
        data=data,
        checkpoint=checkpoint,
        progress=progress,
        stop=stop,
        rows=len(rows),
        left_out={},
    )


def _check_batches(training: GrpoTraining) -> None:
    n = training.batch_size * training.gradient_accumulation
    if n % training.generations:
        raise input_error(
            f"an update takes {n} completions (batch_size * gradient_accumulation), and a prompt "
            f"has {training.generations}",
            path="batch_size",
            expected="whole groups: a multiple of generations",
        )
    if training.save_steps % training.iterations:
        raise input_error(
            f"a checkpoint every {training.save_steps} updates would fall between two updates on "
            f"the same completions, of which there are {training.iterations}",
            path="save_steps",
            expected="a multiple of iterations",
        )


def _prompts(path: Path) -> Iterator[Mapping[str, Any]]:
    for (file, line), row in read_rows(path):
        prompt = row.get("prompt")
        if not isinstance(prompt, str | list) or not prompt:
            message = "'prompt' is missing" if prompt is None else "the prompt is empty or no text"
            raise input_error(
                message, file=file, line=line, expected="prompt: text or a list of messages"
            )
        yield row


def load_reward(name: str) -> Reward:
    """The function that ``module:function`` or ``file.py:function`` names.

    Raises:
        InputError: there is no such function.
    """
    where, colon, function = name.rpartition(":")
    expected = "module:function or file.py:function"
    if not colon or not where or not function:
        raise input_error(f"expected {expected}, found '{name}'", path="reward")
    try:
        module = _of_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except (ImportError, OSError, SyntaxError) as error:
        message = f"{where} can't be imported: {error}"
        raise input_error(message, path="reward", expected=expected) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise input_error(f"{where} has no function '{function}'", path="reward", expected=expected)
    reward: Reward = found
    return reward


def _of_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"no such file: {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
