"""Group-relative training on prompts. Imported late: see `training.train`."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import datasets  # type: ignore[import-untyped]
from trl import GRPOConfig  # type: ignore[attr-defined]

from ale.errors import InputError
from ale.text import counted
from ale_trainer_trl.learning.engine import arguments
from ale_trainer_trl.learning.models import context_of, load_tokenizer
from ale_trainer_trl.learning.options import GrpoTraining
from ale_trainer_trl.learning.prompts import PromptTrainer, for_arrow
from ale_trainer_trl.learning.reward import checked, load_reward
from ale_trainer_trl.learning.rows import Data, Place, Row, is_conversation, read_rows
from ale_trainer_trl.learning.tokens import UnrenderableError, of_prompt, tools_of

# What TRL passes to a reward function beside the columns of the rows.
_RESERVED = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}


def load(training: GrpoTraining) -> tuple[Data, Callable[..., Any]]:
    """The prompts, and what makes a trainer of a model."""
    _check_batches(training)
    reward = load_reward(training.reward)
    tokenizer = load_tokenizer(training.model_name_or_path)
    rows = list(_prompts(training, tokenizer))
    if not rows:
        raise InputError.of(f"{training.dataset_path} has no row", path="dataset_path")
    fingerprint = hashlib.sha256(json.dumps(rows, sort_keys=True, default=str).encode())
    try:
        data_set = datasets.Dataset.from_list(rows)
    except (TypeError, ValueError, OverflowError) as error:  # Arrow's are of these types
        message = f"the rows of {training.dataset_path} have no common columns: {error}"
        raise InputError.of(message, path="dataset_path") from error
    _check_enough(training, len(rows))
    config = GRPOConfig(
        **arguments(training),
        num_generations=training.generations,
        max_completion_length=training.max_completion_length,
        temperature=training.temperature,
        beta=training.beta,
        loss_type=training.loss,
        scale_rewards=training.scale_rewards,
        epsilon=training.epsilon,
        epsilon_high=training.epsilon_high,
        num_iterations=training.iterations,
    )
    rewards: Any = [checked(training.reward, reward)]
    return Data(train=data_set, fingerprint=fingerprint.hexdigest()), partial(
        PromptTrainer, reward_funcs=rewards, args=config, processing_class=tokenizer
    )


def _check_batches(training: GrpoTraining) -> None:
    n = training.batch_size * training.gradient_accumulation
    if n % training.generations:
        raise InputError.of(
            f"an update takes {n} completions (batch_size * gradient_accumulation), and a prompt "
            f"has {training.generations}",
            path="batch_size",
            expected="whole groups: a multiple of generations",
        )
    if training.save_steps % training.iterations:
        raise InputError.of(
            f"a checkpoint every {training.save_steps} updates would fall between two updates on "
            f"the same completions, of which there are {training.iterations}",
            path="save_steps",
            expected="a multiple of iterations",
        )


def _check_enough(training: GrpoTraining, n: int) -> None:
    """TRL makes no update of fewer prompts than one takes."""
    needed = training.batch_size * training.gradient_accumulation // training.generations
    if n < needed:
        raise InputError.of(
            f"{training.dataset_path} has {counted(n, 'prompt')}, and an update takes {needed} "
            "(batch_size * gradient_accumulation / generations)",
            path="dataset_path",
            expected=f"at least {needed} prompts, or a smaller batch_size",
        )


def _prompts(training: GrpoTraining, tokenizer: Any) -> Iterator[Mapping[str, Any]]:
    context = context_of(training.model_name_or_path)
    for (file, line), row in read_rows(training.dataset_path):
        prompt = row.get("prompt")
        if not prompt or not (isinstance(prompt, str) or is_conversation(prompt)):
            message = "'prompt' is missing" if prompt is None else "the prompt is empty or no text"
            expected = "prompt: text or a list of messages"
            hint = "ale data rl makes such rows of scored ones" if "kind" in row else None
            raise InputError.of(message, file=file, line=line, expected=expected, hint=hint)
        try:
            json.dumps(row, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            raise InputError.of(f"no valid Unicode: {error}", file=file, line=line) from error
        if taken := sorted(_RESERVED & row.keys()):
            message = f"a column '{taken[0]}', which TRL passes to reward functions itself"
            raise InputError.of(message, file=file, line=line, expected="another name")
        n = _length(tokenizer, row, (file, line))
        if n + training.max_completion_length > context:
            raise InputError.of(
                f"a prompt of {n} tokens and max_completion_length, "
                f"{training.max_completion_length}, are more than the model's context of {context}",
                file=file,
                line=line,
                hint="a smaller max_completion_length, or leave the row out",
            )
        yield row if isinstance(prompt, str) else for_arrow(row)


def _length(tokenizer: Any, row: Row, place: Place) -> int:
    """Number of tokens of a prompt."""
    prompt, (file, line) = row["prompt"], place
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    if not tokenizer.chat_template:
        message = "a conversation, and the model's tokenizer has no chat template"
        raise InputError.of(message, file=file, line=line, expected="prompt: text")
    try:
        return len(of_prompt(tokenizer, prompt, tools_of(row)))
    except UnrenderableError as error:
        raise InputError.of(str(error), file=file, line=line) from error
