"""The trainer's importance ratios, as a run keeps them."""

import json
from pathlib import Path

from ale.errors import InputError
from ale.files import open_file
from ale_look.inspect.report.reading import LogRatios


def log_ratios(
    path: Path, chosen: set[tuple[int, str]], key: str = "log_ratios"
) -> dict[str, LogRatios]:
    """The log-ratios in ``ratios/<step>.jsonl`` of these episodes, if the trainer wrote them.

    Args:
        key: ``entropies`` are the entropies of the trainer's policy before each token, if it wrote
            these too.

    Raises:
        InputError: a line is malformed.
    """
    found: dict[str, LogRatios] = {}
    for step in {step for step, _ in chosen}:
        file = path / "ratios" / f"{step:05d}.jsonl"
        if not file.exists():
            continue
        with open_file(file) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    if (step, row["episode_id"]) in chosen and (key in row or key == "log_ratios"):
                        found[row["episode_id"]] = row[key]
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    message = f"expected episode_id and log_ratios: {error!r}"
                    raise InputError.of(message, file=str(file), line=number) from error
    return found
