"""Results of runs and the settings in which they differ, read from the run directories."""

from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from ale.attempts import mean
from ale.errors import InputError
from ale.runs import RunReader, model_name, only_runs
from ale.text import number, rate_line, sampling_name, seconds, table
from ale_look.store.rows import settings_of

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@frozen
class Compared:
    """Results and settings of runs, in the order of the runs."""

    runs: Sequence[Path]
    results: Sequence[tuple[str, Sequence[str]]]
    """By name, the value of each run."""
    settings: Sequence[tuple[str, Sequence[str]]]
    """Those in which they differ, likewise."""


def compared(runs: Sequence[Path]) -> Compared:
    """The results of runs, and the settings in which they differ.

    Raises:
        InputError: one is no run, or there are fewer than two or more than 26.
    """
    runs = only_runs(runs)
    if not 2 <= len(runs) <= len(_LETTERS):
        raise InputError.of(f"expected 2 to {len(_LETTERS)} runs, found {len(runs)}", file="RUNS")
    readers = [RunReader(run) for run in runs]
    facts = [_facts(reader) for reader in readers]
    names = [*dict.fromkeys(name for found in facts for name in found)]
    settings = [settings_of(reader.manifest["config"]) for reader in readers]
    keys = sorted({key for found in settings for key in found} - {"run.name"})
    rows = [(key, [found.get(key, "-") for found in settings]) for key in keys]
    return Compared(
        runs=[reader.path for reader in readers],
        results=[(name, [found.get(name, "-") for found in facts]) for name in names],
        settings=[(key, values) for key, values in rows if len({*values}) > 1],
    )


def comparison(runs: Sequence[Path]) -> str:
    """The tables of `compared` for a terminal, with a column for each run."""
    found = compared(runs)
    letters = _LETTERS[: len(found.runs)]
    lines = [f"{letter}  {path}" for letter, path in zip(letters, found.runs, strict=True)]
    results = [[name, *values] for name, values in found.results]
    different = [[key, *values] for key, values in found.settings]
    parts = ["\n".join(lines), table(["", *letters], results)]
    parts += [table(["setting", *letters], different)] if different else ["the same config"]
    if len(found.runs) == 2:
        first, second = found.runs
        parts += [f"task by task: ale show results {first} --against {second}"]
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
        **({"missing": f"{missing} (episodes.jsonl lacks them)"} if missing else {}),
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
