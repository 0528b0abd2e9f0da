"""Credit from a process reward model on a toy with known values, over seeds, with controls.

    python tests/study/prm.py --seeds 1 2 3 4 5 6 7 8 9 10     # writes docs/study/prm.csv anew

Runs and frozen model are those of configs/prm_toy.py. A head learns from one run, and the credit
that its scores give to the other run is scored against the values of that; so is credit from a head
whose labels were dealt at random, and credit from the outcome alone.
"""

import argparse
import asyncio
import csv
import importlib.util
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ale.plugin import BuildContext
from ale.protocols import ScoringContext
from ale.runs import Registry, RunReader, build_choice
from ale.strict import from_plain
from ale.testing import builders
from ale.testing.credit import chunk_per_turn
from ale.types import Group, Rollout, StepScore
from ale.values import Agreement, compare, read_values, valued
from ale_prm.training import train_head

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "study" / "prm.csv"
SCHEMES = ("learned", "shuffled", "outcome")
COLUMNS = ("seed", "labels", "auc", "calibration", "correlation", "order")


def toy() -> ModuleType:
    """configs/prm_toy.py."""
    spec = importlib.util.spec_from_file_location("prm_toy", ROOT / "configs" / "prm_toy.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def study(folder: Path, seed: int) -> Iterator[tuple[str, float | None, float | None, Agreement]]:
    """For each kind of credit: AUC and calibration held out, and how well it agrees."""
    toy().main(folder, seed)
    registry = Registry.installed()
    run = RunReader(folder / "held-out")
    values, tasks = read_values(run.path / "values.jsonl"), {each.id: each for each in run.tasks}
    for name in SCHEMES:
        auc = calibration = None
        scores: dict[str, list[StepScore]] = {}
        credit: dict[str, object] = {"type": "reinforce"}
        if name != "outcome":
            head = folder / name
            list(
                train_head(
                    [folder / "learn"],
                    str(folder / "model"),
                    "values",
                    head,
                    held_out=0.25,
                    by="trajectory",
                    shuffled=name == "shuffled",
                    seed=seed,
                )
            )
            found = json.loads((head / "prm.json").read_text())["held_out"]
            auc, calibration = found["auc"], found["calibration"]
            _, scorer = build_choice(
                from_plain({"type": "prm", "head": str(head)}), "scorer", registry, BuildContext()
            )
            for episode in run.episodes:
                context = ScoringContext(task=tasks[episode.task_id], episode=episode, earlier={})
                scores[episode.id] = asyncio.run(
                    scorer.score(context, chunk_per_turn(episode.trajectory))
                )
            credit = {"type": "step-scores", "scorer": "prm", "lam": 0.0}
        _, scheme = build_choice(from_plain(credit), "credit", registry, BuildContext())
        pairs = []
        for task in tasks:
            rollouts = [
                Rollout(
                    episode=episode,
                    chunks=chunk_per_turn(episode.trajectory),
                    scores={"prm": tuple(scores[episode.id])} if scores else {},
                )
                for episode in run.episodes
                if episode.task_id == task
            ]
            empty = builders.group(*((each.episode, each.chunks) for each in rollouts))
            group = Group(task_id=task, rollouts=tuple(rollouts), batch=empty.batch)
            pairs += [(r, [c]) for r, c in zip(rollouts, scheme.assign(group), strict=True)]
        agreement = compare(values, valued(values, pairs, [name])).schemes[0]
        yield name, auc, calibration, agreement


def main() -> None:
    """Run what is asked for, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    with RESULTS.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for seed in parser.parse_args().seeds:
            with tempfile.TemporaryDirectory() as folder:
                for name, auc, calibration, found in study(Path(folder), seed):
                    facts = (auc, calibration, found.pearson.value, found.order.value)
                    row = [seed, name, *("" if f is None else f"{f:.3f}" for f in facts)]
                    rows.writerow(row)
                    print(*row, flush=True)


if __name__ == "__main__":
    main()
