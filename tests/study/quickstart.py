"""The quickstart and its controls over seeds.

    python tests/study/quickstart.py --seeds 10    # what is missing, then the table
    python tests/study/quickstart.py --seeds 0     # the table of what is stored

Runs are stored in runs/quickstart. A call resumes where the last one ended. Results are added to
docs/study/quickstart.csv, and the table into the pages that have a place for it.
"""

import argparse
import csv
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from ale.errors import AleError
from ale.runs import RunReader

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
CONFIG = CONFIGS / "quickstart.yaml"
RESULTS = ROOT / "docs" / "study" / "quickstart.csv"
PAGES = (ROOT / "README.md", ROOT / "docs" / "how-to" / "train.md")
BEGIN, END = "<!-- table quickstart -->\n", "<!-- end -->"
DEMONSTRATED, REINFORCED = 24, 12
"""Steps of the quickstart: with demonstrations, and after them."""
_FROM_START = (
    "llm.tiny=null",
    f"run.steps={REINFORCED}",
    # Other tasks than those that the start policy was shown.
    "tasks.seed=3",
    # The rates at which the quickstart continues with after its demonstrations.
    "trainer.warmup_updates=4",
    "trainer.stable_updates=0",
    "trainer.decay_updates=null",
    "trainer.lr=6.0e-4",
    "trainer.imitation.lr=8.8e-4",
    "evaluation.temperatures=[0]",
)
CONTROLS: Mapping[str, Sequence[str]] = {
    "imitation": (*_FROM_START, f"starts.demonstrations={REINFORCED}"),
    "weight-one": (
        *_FROM_START,
        "starts.demonstrations=0",
        "credit={type: weight-one}",
    ),
}
"""Runs that begin with the policy at the end of the demonstrations."""
MAIN = "quickstart"
ENOUGH = 0.30
"""What greedy success has to be above the best control."""


@frozen
class Result:
    """An evaluation: a line of the CSV."""

    seed: int
    run: str
    after: int
    """Steps of the run."""
    temperature: float
    successes: int
    graded: int

    @property
    def share(self) -> float:
        """Successes of the graded episodes."""
        return self.successes / self.graded


COLUMNS = ("seed", "run", "after", "temperature", "successes", "graded")


def stored(path: Path = RESULTS) -> list[Result]:
    """The results in the CSV."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Result(
                seed=int(row["seed"]),
                run=row["run"],
                after=int(row["after"]),
                temperature=float(row["temperature"]),
                successes=int(row["successes"]),
                graded=int(row["graded"]),
            )
            for row in csv.DictReader(file)
        ]


def store(results: Sequence[Result]) -> None:
    """Write the CSV."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for one in results:
            writer.writerow([getattr(one, column) for column in COLUMNS])


def run_seed(seed: int, folder: Path) -> Iterator[list[Result]]:
    """The results of the quickstart and of its controls with one seed; resumes what is there."""
    main = _run(MAIN, seed, folder, ())
    yield list(_measured(MAIN, seed, main))
    model = folder / f"start-{seed}"
    if not model.exists():
        _ale("model", str(main), "--after", str(DEMONSTRATED), "--out", str(model))
    for name, overrides in CONTROLS.items():
        run = _run(name, seed, folder, (*overrides, f"llm.model={model}"))
        yield list(_measured(name, seed, run))


def _run(name: str, seed: int, folder: Path, overrides: Sequence[str]) -> Path:
    """The directory of the completed run."""
    pattern = f"*-{name}-{seed}"
    begun = sorted(folder.glob(f"{pattern}/manifest.json"))
    if not begun:
        sets = (f"run.name={name}-{seed}", f"run.directory={folder}", f"run.seed={seed}")
        _ale("run", str(CONFIG), *(f"--set={each}" for each in (*sets, *overrides)))
    else:
        outcome = RunReader(begun[-1].parent).manifest.get("outcome")
        if outcome is None or outcome["outcome"] != "completed":
            _ale("run", "--resume", str(begun[-1].parent))
    return sorted(folder.glob(pattern))[-1]


def _ale(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-m", "ale", *arguments], check=False)
    if done.returncode:
        raise AleError(f"ale {arguments[0]} ended with exit status {done.returncode}")


def _measured(name: str, seed: int, run: Path) -> Iterator[Result]:
    for event in RunReader(run).events():
        if event["event"] == "evaluation_finished":
            yield Result(
                seed=seed,
                run=name,
                after=event["step"],
                temperature=event["temperature"],
                successes=event["n_succeeded"],
                graded=event["n_graded"],
            )


@frozen(kw_only=True)
class Seed:
    """The shares of one seed, on held-out tasks."""

    seed: int
    start: Mapping[float, float]
    """At the end of the demonstrations, by temperature."""
    controls: Mapping[str, float]
    """Greedy, at the end of each control."""
    trained: Mapping[float, float]
    """At the end of the quickstart, by temperature."""

    @property
    def margin(self) -> float | None:
        """What greedy success is above the best of start, cooler decoding and all controls."""
        if len(self.controls) < len(CONTROLS):
            return None
        return self.trained[0.0] - max(*self.start.values(), *self.controls.values())


def by_seed(results: Sequence[Result]) -> Iterator[Seed]:
    """The seeds whose quickstart is stored, with the controls that are."""
    for seed in sorted({one.seed for one in results if one.run == MAIN}):
        own = [one for one in results if one.seed == seed]
        shares = {(one.run, one.after, one.temperature): one.share for one in own}
        yield Seed(
            seed=seed,
            start=_of(shares, DEMONSTRATED),
            controls={
                name: shares[name, REINFORCED, 0.0]
                for name in CONTROLS
                if (name, REINFORCED, 0.0) in shares
            },
            trained=_of(shares, DEMONSTRATED + REINFORCED),
        )


def _of(shares: Mapping[tuple[str, int, float], float], after: int) -> dict[float, float]:
    return {t: share for (run, step, t), share in shares.items() if (run, step) == (MAIN, after)}


def table(results: Sequence[Result]) -> Iterator[str]:
    """The table, line by line."""
    header = [
        "seed",
        "start, greedy",
        "at 0.3",
        "at 0.6",
        "at 1",
        "imitation",
        "weight 1",
        "IPA, at 1",
        "IPA, greedy",
        "margin",
    ]
    yield f"| {' | '.join(header)} |"
    yield f"|---|{'---:|' * (len(header) - 1)}"
    seeds = list(by_seed(results))
    for one in seeds:
        shares: list[float | None] = [one.start[t] for t in (0.0, 0.3, 0.6, 1.0)]
        shares += [one.controls.get(name) for name in CONTROLS]
        shares += [one.trained[1.0], one.trained[0.0]]
        cells = ["-" if share is None else f"{share:.0%}" for share in shares]
        margin = "-" if one.margin is None else f"{100 * one.margin:+.0f}"
        yield f"| {' | '.join([str(one.seed), *cells, margin])} |"
    margins = [one.margin for one in seeds if one.margin is not None]
    won = sum(margin >= ENOUGH for margin in margins)
    yield ""
    yield (
        f"Greedy success after IPA is at least {100 * ENOUGH:.0f} points above the best control "
        f"with {won} of the {len(margins)} seeds whose controls have all been run."
    )


def placed(page: str, results: Sequence[Result]) -> str:
    """A page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    lines = "\n".join(table(results))
    return f"{before}{BEGIN}{lines}\n{rest[rest.index(END) :]}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="The quickstart and its controls over seeds.")
    parser.add_argument("--seeds", type=int, default=10, help="0 runs nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "quickstart")
    given = parser.parse_args()
    for seed in range(given.seeds):
        for found in run_seed(seed, given.folder.resolve()):
            new = {(one.seed, one.run) for one in found}
            kept = [one for one in stored() if (one.seed, one.run) not in new]
            store(sorted([*kept, *found], key=lambda one: one.seed))
    for page in PAGES:
        page.write_text(placed(page.read_text(), stored()))
    print("\n".join(table(stored())))


if __name__ == "__main__":
    main()
