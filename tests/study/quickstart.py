"""The quickstart and its controls over seeds; PPO and filtered imitation from the same starts.

    python tests/study/quickstart.py                   # what is missing, then the tables
    python tests/study/quickstart.py --seeds 10 11     # of these seeds
    python tests/study/quickstart.py --ppo 20 21 22    # PPO, after the seeds
    python tests/study/quickstart.py --filtered 20 21  # imitation of own successes, after the seeds
    python tests/study/quickstart.py --moments 10 11   # with and without fresh moments
    python tests/study/quickstart.py --collect         # the tables of what is stored

Runs are stored in runs/quickstart. A call resumes where the last one ended. Results are added to
docs/study/quickstart.csv, metrics of steps to quickstart-steps.csv beside it, and the tables to the
pages that have a place for them.
"""

import argparse
import csv
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from attrs import astuple, fields, frozen
from msgspec import convert

from ale.errors import AleError
from ale.runs import RunReader, without_overrides

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
CONFIG = CONFIGS / "quickstart.yaml"
RESULTS = ROOT / "docs" / "study" / "quickstart.csv"
MOMENTS = RESULTS.with_name("quickstart-moments.csv")
"""With and without `imitation.fresh_moments`, with other seeds."""
STEPS = RESULTS.with_name("quickstart-steps.csv")
PAGES = (ROOT / "docs" / "quickstart.md", ROOT / "docs" / "how-to" / "train.md")
SEEDS = range(20, 30)
"""With others the setting was chosen."""
DEMONSTRATED, REINFORCED = 36, 14
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
    "trainer.decay_to=0.1",
    "trainer.lr=6.0e-4",
    "trainer.imitation.lr=8.8e-4",
)
CONTROLS: Mapping[str, Sequence[str]] = {
    "imitation": (
        *_FROM_START,
        "evaluation.temperatures=[0]",
        f"starts.demonstrations={REINFORCED}",
    ),
    "weight-one": (
        *_FROM_START,
        "evaluation.temperatures=[0]",
        "starts.demonstrations=0",
        "credit={type: weight-one}",
    ),
}
"""Runs that begin with the policy at the end of the demonstrations."""
PPO = "ppo"
WITH_A_CRITIC = (
    *_FROM_START,
    "evaluation.temperatures=[0, 1]",
    "starts.demonstrations=0",
    "credit={type: gae, gamma: 0.95, lam: 0.95, unit: chunk}",
    "trainer.objective=ppo",
    "trainer.critic={type: head, lr: 5.0e-3}",
)
"""The same for PPO: as many tasks, rollouts and updates, and the same rates, as the others have."""
FILTERED = "filtered-imitation"
ON_SUCCESSES = (
    *_FROM_START,
    "evaluation.temperatures=[0, 1]",
    "starts.demonstrations=0",
    "credit={type: filtered-imitation, unfinished: failure}",
    "trainer.objective=reinforce",
)
"""Imitation of the policy's own successes: what IPA has to be above, for the reward to be not all
that teaches."""
FRESH: Mapping[str, Sequence[str]] = {
    "fresh": (),
    "kept": ("trainer.imitation.fresh_moments=false",),
}
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


def stored(path: Path = RESULTS) -> list[Result]:
    """The results in a CSV."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [convert(row, Result, strict=False) for row in csv.DictReader(file)]


def store(results: Sequence[Result], path: Path = RESULTS) -> None:
    """Write a CSV."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Result))
        writer.writerows(astuple(one) for one in results)


def run_seed(seed: int, folder: Path) -> None:
    """Run the quickstart and its controls with one seed; resumes what is there."""
    main = _run(MAIN, seed, folder, ())
    add(MAIN, seed, main)
    model = folder / f"start-{seed}"
    if not model.exists():
        _ale("model", str(main), "--after", str(DEMONSTRATED), "--out", str(model))
    for name, overrides in CONTROLS.items():
        add(name, seed, _run(name, seed, folder, (*overrides, f"llm.model={model}")))


def run_arm(name: str, seed: int, folder: Path) -> None:
    """Run PPO or filtered imitation with a seed whose quickstart has been run; resumes."""
    model = folder / f"start-{seed}"
    overrides = {PPO: WITH_A_CRITIC, FILTERED: ON_SUCCESSES}[name]
    add(name, seed, _run(name, seed, folder, (*overrides, f"llm.model={model}")))


def run_moments(seed: int, folder: Path) -> None:
    """Run the quickstart with a seed, with fresh moments and without; resumes what is there."""
    for name, overrides in FRESH.items():
        add(name, seed, _run(name, seed, folder, overrides), MOMENTS)


def add(name: str, seed: int, run: Path, path: Path = RESULTS) -> None:
    """Put what a run has shown into the CSV files, in place of what they had of it."""

    def others(rows: Sequence[Any]) -> list[Any]:
        return [one for one in rows if (one.seed, one.run) != (seed, name)]

    results = [*others(stored(path)), *_measured(name, seed, run)]
    store(sorted(results, key=lambda one: one.seed), path)
    if name in (MAIN, PPO):
        steps = [*others(stored_steps()), *_steps(name, seed, run)]
        store_steps(sorted(steps, key=lambda one: (one.run, one.seed, one.step)))


def _run(name: str, seed: int, folder: Path, overrides: Sequence[str]) -> Path:
    """The directory of the completed run."""
    pattern = f"*-{name}-{seed}"
    begun = sorted(folder.glob(f"{pattern}/manifest.json"))
    if not begun:
        sets = (
            f"run.name={name}-{seed}",
            f"run.directory={folder}",
            f"run.seed={seed}",
            "run.keep_checkpoints=null",
            "observers=[{type: console}]",
        )
        _ale("run", str(CONFIG), *(f"--set={each}" for each in (*sets, *overrides)))
    else:
        outcome = RunReader(begun[-1].parent).manifest.get("outcome")
        if outcome is None or outcome["outcome"] != "completed":
            _ale("run", "--resume", str(begun[-1].parent))
    return sorted(folder.glob(pattern))[-1]


def _ale(*arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "ale", *arguments]
    done = subprocess.run(command, env=without_overrides(os.environ), check=False)
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


METRICS = ("success", "return_mean", "value_mean", "explained_variance")


@frozen
class Step:
    """A step of reinforcement: a line of the CSV of steps."""

    seed: int
    run: str
    step: int
    metrics: Mapping[str, float]
    """Those of `METRICS` that it has."""


def stored_steps() -> list[Step]:
    """The steps in the CSV."""
    if not STEPS.exists():
        return []
    with STEPS.open(newline="") as file:
        return [
            Step(
                int(row["seed"]),
                row["run"],
                int(row["step"]),
                {name: float(row[name]) for name in METRICS if row[name]},
            )
            for row in csv.DictReader(file)
        ]


def store_steps(steps: Sequence[Step]) -> None:
    """Write the CSV of steps."""
    with STEPS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("seed", "run", "step", *METRICS))
        for one in steps:
            values = (f"{one.metrics[m]:.4f}" if m in one.metrics else "" for m in METRICS)
            writer.writerow([one.seed, one.run, one.step, *values])


def _steps(name: str, seed: int, run: Path) -> Iterator[Step]:
    for event in RunReader(run).events():
        if event["event"] == "step_finished" and not event["metrics"].get("loss_imitation"):
            found = {m: event["metrics"][m] for m in METRICS if m in event["metrics"]}
            yield Step(seed, name, event["step"], found)


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
    ppo: Mapping[float, float]
    """At the end of PPO, by temperature."""
    filtered: Mapping[float, float]
    """At the end of filtered imitation, by temperature."""

    @property
    def best_control(self) -> float | None:
        """The best of start, cooler decoding and all controls; None until these have been run."""
        if len(self.controls) < len(CONTROLS):
            return None
        return max(*self.start.values(), *self.controls.values())

    @property
    def margin(self) -> float | None:
        """What greedy success is above the best control."""
        best = self.best_control
        return None if best is None else self.trained[0.0] - best


def by_seed(results: Sequence[Result]) -> Iterator[Seed]:
    """The seeds whose quickstart is stored, with the controls that are."""
    for seed in sorted({one.seed for one in results if one.run == MAIN}):
        own = [one for one in results if one.seed == seed]
        *_, demonstrated, end = sorted({one.after for one in own if one.run == MAIN})
        last = {run: _of(own, run, end - demonstrated) for run in (*CONTROLS, PPO, FILTERED)}
        yield Seed(
            seed=seed,
            start=_of(own, MAIN, demonstrated),
            controls={name: last[name][0.0] for name in CONTROLS if last[name]},
            trained=_of(own, MAIN, end),
            ppo=last[PPO],
            filtered=last[FILTERED],
        )


def _of(results: Sequence[Result], run: str, after: int) -> dict[float, float]:
    """The shares of a run after so many steps, by temperature."""
    return {one.temperature: one.share for one in results if (one.run, one.after) == (run, after)}


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


def ppo_table(results: Sequence[Result], steps: Sequence[Step]) -> Iterator[str]:
    """The table of PPO, line by line; explained variances are means over three steps."""
    header = ["seed", "start, greedy", "best control", "PPO, at 1", "PPO, greedy", "margin"]
    yield f"| {' | '.join([*header, 'explained variance, first and last steps'])} |"
    yield f"|---|{'---:|' * len(header)}"
    for one in by_seed(results):
        own = [
            step.metrics["explained_variance"]
            for step in steps
            if (step.run, step.seed) == (PPO, one.seed) and "explained_variance" in step.metrics
        ]
        if own and one.ppo and one.best_control is not None:
            shares = (one.start[0.0], one.best_control, one.ppo[1.0], one.ppo[0.0])
            cells = [f"{share:.0%}" for share in shares]
            margin = f"{100 * (one.ppo[0.0] - one.best_control):+.0f}"
            explained = f"{fmean(own[:3]):.2f}, {fmean(own[-3:]):.2f}"
            yield f"| {' | '.join([str(one.seed), *cells, margin, explained])} |"


def filtered_table(results: Sequence[Result]) -> Iterator[str]:
    """IPA beside filtered imitation, for the seeds that have both."""
    yield "| seed | best control | IPA, at 1 | IPA, greedy | filtered, at 1 | filtered, greedy |"
    yield f"|---|{'---:|' * 5}"
    for one in by_seed(results):
        if one.filtered:
            shares = [
                one.best_control,
                *(of[t] for of in (one.trained, one.filtered) for t in (1.0, 0.0)),
            ]
            cells = ["-" if share is None else f"{share:.0%}" for share in shares]
            yield f"| {' | '.join([str(one.seed), *cells])} |"


def moments_table(results: Sequence[Result]) -> Iterator[str]:
    """Greedy success with each seed, when the demonstrations end and at the end."""
    yield "| seed | start | moments kept | fresh moments |"
    yield "|---|---:|---:|---:|"
    for seed in sorted({one.seed for one in results}):
        greedy = [one for one in results if (one.seed, one.temperature) == (seed, 0.0)]
        after = {name: [one for one in greedy if one.run == name] for name in FRESH}
        start, ends = after["fresh"][-2], [after[name][-1] for name in ("kept", "fresh")]
        yield f"| {seed} | {' | '.join(f'{one.share:.0%}' for one in (start, *ends))} |"


def placed(page: str, results: Sequence[Result], steps: Sequence[Step]) -> str:
    """A page with the tables between the marks that it has."""
    moments = moments_table(stored(MOMENTS))
    tables = {"quickstart": table(results), "ppo": ppo_table(results, steps), "moments": moments}
    tables["filtered"] = filtered_table(results)
    for name, lines in tables.items():
        before, mark, rest = page.partition(f"<!-- table {name} -->\n")
        if mark:
            text = "\n".join(lines)
            page = f"{before}{mark}{text}\n{rest[rest.index('<!-- end -->') :]}"
    return page


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--ppo", type=int, nargs="*", default=[], help="seeds that PPO is run with")
    parser.add_argument("--filtered", type=int, nargs="*", default=[], help="seeds to imitate with")
    parser.add_argument("--moments", type=int, nargs="*", default=[], help="seeds to compare with")
    parser.add_argument("--collect", action="store_true", help="run nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "quickstart")
    given = parser.parse_args()
    folder = given.folder.resolve()
    if not given.collect:
        for seed in given.seeds:
            run_seed(seed, folder)
        for name, seeds in ((PPO, given.ppo), (FILTERED, given.filtered)):
            for seed in seeds:
                run_arm(name, seed, folder)
        for seed in given.moments:
            run_moments(seed, folder)
    for page in PAGES:
        page.write_text(placed(page.read_text(), stored(), stored_steps()))
    print("\n".join([*table(stored()), "", *ppo_table(stored(), stored_steps())]))


if __name__ == "__main__":
    main()
