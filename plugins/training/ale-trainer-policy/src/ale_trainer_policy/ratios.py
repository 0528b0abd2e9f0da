"""``ratios/<step>.jsonl`` of a run directory: each token's log ratio to the sampler and entropy.

`ale view` and `ale report` read the format. The numbers are those of the step's last
pass over the episode; no extra forward pass is run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ale.errors import StoreError
from ale.files import replacing
from ale.types import Batch, Turn
from ale_trainer_policy.samples import Floats, Sample

DIGITS = 4
"""Decimals stored: an error is at most 5e-5, and the file a third of the size."""


def write_ratios(
    folder: Path,
    batch: Batch,
    samples: Sequence[Sample],
    log_ratios: Mapping[str, Floats],
    entropies: Mapping[str, Floats],
) -> None:
    """Write the file of a step atomically; a file of an earlier attempt is replaced.

    Args:
        folder: created with the first file.
        batch: the step's.
        samples: those of the batch's episodes.
        log_ratios: by episode, log pi_theta - log mu_old of each token of its sample, nats.
            Episodes that are missing here get no line; NaN becomes null.
        entropies: likewise, of the policy's distribution before each token, nats.

    Raises:
        StoreError: the file can't be written.
    """
    by_episode = {sample.episode: sample for sample in samples}
    lines = []
    for group in batch.groups:
        for rollout in group.group.rollouts:
            name = rollout.episode.id
            if name in log_ratios:
                turns = rollout.episode.trajectory.turns
                known = {"log_ratios": log_ratios[name], "entropies": entropies[name]}
                rows = {
                    key: _by_turn(turns, by_episode[name], values) for key, values in known.items()
                }
                lines.append({"episode_id": name, **rows})
    path = folder / f"{batch.step:05d}.jsonl"
    write_lines(path, lines, hint="trainer.keep_ratios: false writes no ratios")


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]], hint: str = "") -> None:
    """Write a file of JSON lines atomically; its folder is created.

    Raises:
        StoreError: the file can't be written.
    """
    try:
        with replacing(path, sync=True) as partial:
            partial.write_bytes(msgspec.json.Encoder().encode_lines(lines))
    except OSError as error:
        message = f"{path} can't be written: {error.strerror}"
        raise StoreError("; ".join(filter(None, [message, hint]))) from error


def _by_turn(turns: Sequence[Turn], sample: Sample, values: Floats) -> list[list[float] | None]:
    rounded = np.round(values, DIGITS) + 0.0  # no -0.0
    found: list[list[float] | None] = []
    for number, turn in enumerate(turns):
        trace = turn.completion.tokens
        # The expert's next action has the same turn number, but is not sampled.
        here = (sample.turn == number) & sample.sampled
        if trace is None or np.isnan(rounded[here]).all():
            found.append(None)
            continue
        # NaN is encoded as null.
        row = np.full(len(trace.output_ids), np.nan)
        row[sample.place[here]] = rounded[here]
        found.append(row.tolist())
    return found
