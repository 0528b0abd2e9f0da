"""The flags of ``ale art train``, and the config of `ale` that they make."""

import json
import netrc
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

VLLM = "http://localhost:8000/v1"
SAMPLES = 8
"""Rows of a step in W&B's table."""

Split = Literal["train", "test", "validation"]


@frozen(kw_only=True)
class Flags:
    """The options of the command line."""

    model: str
    project: str
    num_steps: int
    batch_size: int
    learning_rate: float
    max_attempts: int
    dataset_split: Split
    dataset_limit: int
    """0 for all."""
    dry_run: bool
    use_openai: bool
    in_process: bool
    base_url: str | None
    rollouts: int
    sandbox: str
    image: str | None
    data: Path | None
    """File of MBPP; None loads it by the library `datasets`."""
    shown_tests: int
    out: Path
    seed: int


KEYS: Mapping[str, tuple[str, ...]] = {
    "model": ("llm.model",),
    "project": ("observers",),
    "num_steps": ("run.steps",),
    "batch_size": ("run.tasks_per_step", "run.concurrency"),
    "learning_rate": ("trainer.lr",),
    "max_attempts": ("agent.max_attempts",),
    "dataset_split": ("tasks.split",),
    "dataset_limit": ("tasks.limit",),
    "dry_run": ("trainer.type", "observers"),
    "use_openai": ("llm.type", "llm.api_key_env"),
    "in_process": ("llm.type", "trainer.type"),
    "base_url": ("llm.base_url", "llm.urls"),
    "rollouts": ("run.rollouts", "run.concurrency"),
    "sandbox": ("sandbox.type",),
    "image": ("sandbox.image",),
    "data": ("tasks.path", "tasks.dataset"),
    "shown_tests": ("tasks.shown_tests",),
    "out": ("run.directory",),
    "seed": ("run.seed",),
}
"""The values of the config that each flag decides."""


def overrides_of(config: Mapping[str, Any], typed: Collection[str]) -> list[str]:
    """The values of the flags that were typed, as for ``--set``: no variable overrides these."""
    found = {}
    for key in (key for flag in typed for key in KEYS.get(flag, ())):
        section, _, option = key.partition(".")
        value = config[section].get(option) if option else config[section]
        if value is not None:
            found[key] = value
    return [f"{key}={json.dumps(value)}" for key, value in found.items()]


def flag_of(path: str) -> str | None:
    """The flag that decides a value of the config, as ``tasks.path``; None if there is none."""
    names = [name for name, keys in KEYS.items() if path in keys]
    return f"--{names[0].replace('_', '-')}" if names else None


def config_of(
    flags: Flags, environ: Mapping[str, str], *, trainable: bool = False
) -> dict[str, Any]:
    """The config that ``ale run`` takes.

    Args:
        environ: of the process, which decides whether W&B is online.
        trainable: the server of `base_url` takes new weights.
    """
    sandbox = {"type": flags.sandbox}
    if flags.image is not None:
        sandbox["image"] = flags.image
    return {
        "tasks": {
            "type": "mbpp",
            **_origin(flags),
            "split": flags.dataset_split,
            "limit": flags.dataset_limit,
            "shown_tests": flags.shown_tests,
        },
        "sandbox": sandbox,
        "llm": _llm(flags, trainable),
        "agent": {"type": "code-attempts", "max_attempts": flags.max_attempts},
        "chunker": {"type": "attempt"},
        # The mean reward of the whole step: a problem may have only one rollout.
        "credit": {"type": "repair", "baseline": "batch"},
        "trainer": _trainer(flags, trainable),
        "observers": [{"type": "art"}, *_wandb(flags, environ)],
        "run": {
            "name": "art",
            "directory": str(flags.out.absolute()),
            "steps": flags.num_steps,
            "tasks_per_step": flags.batch_size,
            "rollouts": flags.rollouts,
            # The whole batch runs at once, and a signal lets it finish.
            "concurrency": flags.batch_size * flags.rollouts,
            "on_sigterm": "drain",
            "seed": flags.seed,
        },
    }


def _origin(flags: Flags) -> dict[str, str]:
    if flags.data is None:
        return {"dataset": "google-research-datasets/mbpp", "subset": "full"}
    return {"path": str(flags.data.absolute())}


def _llm(flags: Flags, trainable: bool) -> dict[str, Any]:
    # Tokens are trained on as they were sampled only at these values.
    sampling = {"model": flags.model, "temperature": 1.0, "top_p": 1.0}
    if flags.in_process:
        return {"type": "policy", **sampling}
    if flags.use_openai:
        given = {} if flags.base_url is None else {"base_url": flags.base_url}
        return {"type": "openai", **sampling, **given, "api_key_env": "OPENAI_API_KEY"}
    url = flags.base_url or VLLM
    if trainable:
        return {"type": "servers", **sampling, "urls": [url]}
    return {"type": "vllm", **sampling, "base_url": url, "return_token_ids": True}


def _trainer(flags: Flags, trainable: bool) -> dict[str, Any]:
    if flags.in_process and not flags.dry_run:
        return {"type": "policy", "lr": flags.learning_rate}
    if trainable:
        # The server may be vLLM, whose probabilities differ a little from the trainer's.
        return {"type": "policy", "lr": flags.learning_rate, "correction": "truncate"}
    return {"type": "export"}


def _wandb(flags: Flags, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    if flags.dry_run or find_spec("wandb") is None:
        return []
    mode = environ.get("WANDB_MODE") or ("online" if _has_key(environ) else "offline")
    return [{"type": "wandb", "project": flags.project, "mode": mode, "samples": SAMPLES}]


def _has_key(environ: Mapping[str, str]) -> bool:
    """Is there a key of W&B, in the environment or by `wandb login`?"""
    if environ.get("WANDB_API_KEY"):
        return True
    file = Path(environ.get("NETRC") or Path(environ.get("HOME", "~")).expanduser() / ".netrc")
    try:
        return netrc.netrc(file).authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def training_note(config: Mapping[str, Any]) -> str:
    """One line about what happens to the model."""
    trainer, llm = config.get("trainer") or {}, type_of(config.get("llm") or {})
    if not trainer:
        return "none"
    if type_of(trainer) != "export":
        return f"by the trainer {type_of(trainer)}, learning rate {trainer.get('lr')}"
    kept = "rollouts are kept for export"
    if llm == "policy":
        return f"none (dry run); {kept}"
    if llm == "openai":
        return f"none: a model behind OpenAI's API can't be trained here; {kept}"
    return f"none: nothing sends weights to this server; {kept}"


def type_of(section: Mapping[str, Any]) -> str:
    """The component that a section names, without its package."""
    return str(section.get("type", "")).rpartition("/")[2]
