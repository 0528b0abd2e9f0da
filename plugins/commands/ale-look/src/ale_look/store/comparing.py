"""Results of runs and the settings in which they differ, read from the run directories."""

from collections.abc import Sequence
from pathlib import Path

from ale.attempts import mean
from ale.errors import InputError
from ale.runs import RunReader, model_name, only_runs
from ale.text import number, rate_line, sampling_name, seconds, table
from ale_look.store.rows import settings_of

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def comparison(runs: Sequence[Path]) -> str:
    """A column for each run.

    Raises:
        InputError: one is no run, or there are fewer than two or more than 26.
    """
    runs = only_runs(runs)
    if not 2 <= len(runs) <= len(_LETTERS):
        raise InputError.of(f"expected 2 to {len(_LETTERS)} runs, found {len(runs)}", file="RUNS")
    readers = [RunReader(run) for run in runs]
    letters = _LETTERS[: len(readers)]
    lines = [f"{letter}  {reader.path}" for letter, reader in zip(letters, readers, strict=True)]
    facts = [_facts(reader) for reader in readers]
    names = [*dict.fromkeys(name for found in facts for name in found)]
    results = [[name, *(found.get(name, "-") for found in facts)] for name in names]
    settings = [settings_of(reader.manifest["config"]) for reader in readers]
    keys = sorted({key for found in settings for key in found} - {"run.name"})
    rows = [[key, *(found.get(key, "-") for found in settings)] for key in keys]
    different = [row for row in rows if len({*row[1:]}) > 1]
    parts = ["\n".join(lines), table(["", *letters], results)]
    parts += [table(["setting", *letters], different)] if different else ["the same config"]
    if len(runs) == 2:
        parts += [f"task by task: ale show results {runs[0]} --against {runs[1]}"]
    return "\n\n".join(parts)


def _facts(reader: RunReader) -> dict[str, str]:
    index = reader.index()
    rewards = [*index.rewards()]
    outcome = reader.manifest.get("outcome") or {}
    missing = reader.missing(index)
    found = {
        "outcome": reader.state,
        "model": model_name(reader.manifest["config"]) or "-",
        "seconds": seconds(outcome["seconds"]) if outcome else "-",
        "episodes": str(len(index)),
        **({"missing": f"{missing} (episodes.jsonl was truncated)"} if missing else {}),
        "broken": str(index.broken()),
        "success": rate_line(index.training_attempts().values()),
        "mean reward": number(mean(rewards)) if rewards else "-",
        "steps": str(len(index.steps())),
    }
    measured = index.steps("evaluation")
    for temperature, attempts in index.attempts(measured[-1]).items() if measured else ():
        name = f"evaluation, {sampling_name(temperature)}, after {measured[-1]} steps"
        found[name] = rate_line(attempts.values())
    return found
