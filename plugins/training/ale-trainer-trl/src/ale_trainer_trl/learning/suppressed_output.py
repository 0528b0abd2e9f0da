"""Suppress progress bars and warnings of libraries in a run's and a command's output."""

import logging as python_logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from transformers import TrainingArguments
from transformers.utils import logging


@contextmanager
def suppressed_output() -> Iterator[None]:
    """Suppress progress bars and the libraries' deprecation warnings inside; errors are shown."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    trl = python_logging.getLogger("trl")
    trl_level = trl.level
    trl.setLevel(python_logging.ERROR)
    logging.set_verbosity(python_logging.ERROR)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            for message in (".* will be removed in v6", ".*is an experimental feature"):
                for category in (FutureWarning, UserWarning):
                    warnings.filterwarnings("ignore", message=message, category=category)
            yield
    finally:
        trl.setLevel(trl_level)
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def silent_arguments(device: str, *, checkpointing: bool = False) -> dict[str, Any]:
    """Fields of TrainingArguments for a trainer that reports to nobody, on this kind of device.

    Args:
        device: ``cpu`` or ``cuda``.
        checkpointing: compute activations again in the backward pass.
    """
    # The first name is the newer one.
    known = {each.name for each in fields(TrainingArguments)}
    name = "activation_checkpointing"
    return {
        "use_cpu": device == "cpu",
        "bf16": False,
        "report_to": [],
        "push_to_hub": False,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": device != "cpu",
        name if name in known else "gradient_checkpointing": checkpointing,
    }
