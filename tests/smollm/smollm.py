"""SmolLM2-135M trained on shell tasks: imitation, then IPA, beside its controls.

    python tests/smollm/smollm.py                # everything that is missing; then the table
    python tests/smollm/smollm.py --only ipa     # one arm, and the imitation that it starts from
    python tests/smollm/smollm.py --collect      # the table of what is there

Everything is stored in runs/smollm. A call resumes where the last one ended, in the middle of a run
too. ``--docs`` adds the results to those in docs/smollm, where they replace those of the same arm
and seed, and makes the table of docs/smollm.md from these.
"""

import argparse
import csv
import io
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from attrs import astuple, fields, frozen
from model import make_model, packaged_file
from msgspec import convert

from ale.errors import AleError
from ale.runs import RunReader

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "smollm"
PAGE = ROOT / "docs" / "smollm.md"
CSV = ROOT / "docs" / "smollm" / "results.csv"
FIRST = "imitate"
ARMS = {
    "ipa": "IPA",
    "weight-one": "weight 1 for every episode",
    "imitate-on": "more demonstrations",
    "filtered-imitation": "filtered imitation",
}
"""What each run after the imitation is, by the name of its config."""
FIRST_SEED = 1
"""The setting was chosen with seed 0."""
SHORT = ("run.tasks_per_step=2", "run.rollouts=2", "run.steps=1", "evaluation.tasks.count=2")
DONE = (0, 3)
"""Exit statuses of what came to its end; 3: some episodes broke, and the run says how many."""


HELD_OUT, TRAINING = "held-out", "training"


@frozen
class Result:
    """One evaluation on the held-out tasks, or the rollouts of one step of training."""

    split: str
    arm: str
    seed: int
    step: int
    temperature: float
    tasks: int
    successes: int


def main() -> int:
    """Run what is missing and say what came of it; the exit status of what failed, else 0."""
    arguments = _arguments()
    folder = arguments.folder.resolve()
    arms = [arm for arm in ARMS if arguments.only in (None, arm)]
    if not arguments.collect:
        print("it takes hours; Ctrl-C, and the same call resumes", flush=True)
        try:
            code = _train(folder, range(FIRST_SEED, FIRST_SEED + arguments.seeds), arms, arguments)
        except AleError as error:
            print(error, file=sys.stderr)
            return 1
        if code not in DONE:
            return code
    results = sorted(collect(folder), key=astuple)
    print("\n".join(table(results)))
    if arguments.docs:
        results = added(from_csv(CSV.read_text()), results)
        CSV.write_text(as_csv(results))
        PAGE.write_text(placed(PAGE.read_text(), results))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=list(ARMS), help="one arm")
    parser.add_argument("--collect", action="store_true", help="run nothing")
    parser.add_argument("--docs", action="store_true", help="write into docs/ too")
    parser.add_argument("--short", action="store_true", help="a step each: does it run?")
    parser.add_argument("--file", type=Path, help="another GGUF file of the kind llama")
    parser.add_argument("--folder", type=Path, default=Path("runs/smollm"))
    return parser.parse_args()


def _train(
    folder: Path, seeds: Iterable[int], arms: Sequence[str], arguments: argparse.Namespace
) -> int:
    model = folder / "model"
    if not model.exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"making {model} (once)", flush=True)
        distance = make_model(arguments.file or packaged_file(), model)
        print(f"largest difference of its logits to the file's: {distance:.1g}", flush=True)
    short = list(SHORT) if arguments.short else []
    for seed in seeds:
        first = [f"llm.model={model}", *short]
        code = _run(FIRST, seed, folder, first)
        if code not in DONE:
            return code
        start = folder / f"start-{seed}"
        if not start.exists():
            run = find(FIRST, seed, folder)
            code = _ale("model", str(run), "--out", str(start), "--merge")
            if code:
                return code
        for arm in arms:
            code = _run(arm, seed, folder, [f"llm.model={start}", *short])
            if code not in DONE:
                return code
    return 0


def _run(arm: str, seed: int, folder: Path, overrides: Sequence[str]) -> int:
    """The exit status of a run, from its beginning or from where it was interrupted."""
    begun = find(arm, seed, folder)
    if begun is not None:
        return 0 if is_completed(begun) else _ale("run", "--resume", str(begun))
    sets = [*overrides, f"run.seed={seed}", f"run.directory={folder}"]
    return _ale("run", str(CONFIGS / f"{arm}.yaml"), *(f"--set={each}" for each in sets))


def _ale(*arguments: str) -> int:
    command = [sys.executable, "-P", "-m", "ale", *arguments]
    return subprocess.run(command, check=False).returncode


def find(arm: str, seed: int, folder: Path) -> Path | None:
    """The newest run of an arm with this seed."""
    runs = [file.parent for file in sorted(folder.glob("*/manifest.json"))]
    found = [run for run in runs if _is_of(run, arm, seed)]
    return found[-1] if found else None


def _is_of(run: Path, arm: str, seed: int) -> bool:
    manifest = RunReader(run).manifest
    name: str = manifest["config"]["run"]["name"]
    return name == arm and manifest["seed"] == seed


def is_completed(run: Path) -> bool:
    """Has it done all its steps? One that was interrupted has an outcome, too."""
    outcome = RunReader(run).manifest.get("outcome")
    return outcome is not None and outcome["outcome"] == "completed"


def collect(folder: Path) -> Iterator[Result]:
    """Every evaluation and step of every run, of those that have not come to their end too."""
    for file in folder.glob("*/manifest.json"):
        reader = RunReader(file.parent)
        arm, seed = reader.manifest["config"]["run"]["name"], reader.manifest["seed"]
        for event in reader.events():
            step, metrics = event.get("step"), event.get("metrics", {})
            if event["event"] == "evaluation_finished":
                tasks, done = event["n_graded"], event["n_succeeded"]
                yield Result(HELD_OUT, arm, seed, step, event["temperature"], tasks, done)
            elif event["event"] == "step_finished" and "success" in metrics:
                tasks = int(metrics["episodes"] - metrics["broken"])
                done = round(metrics["success"] * tasks)
                yield Result(TRAINING, arm, seed, step, 1.0, tasks, done)


def added(stored: Sequence[Result], found: Sequence[Result]) -> list[Result]:
    """Both, but of an arm and seed that were found again only what was found."""
    again = {(each.arm, each.seed) for each in found}
    kept = [each for each in stored if (each.arm, each.seed) not in again]
    return sorted([*kept, *found], key=astuple)


def as_csv(results: Iterable[Result]) -> str:
    """A line for each result."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(Result))
    writer.writerows(astuple(each) for each in results)
    return out.getvalue()


def from_csv(text: str) -> list[Result]:
    """What `as_csv` has written."""
    return [convert(row, Result, strict=False) for row in csv.DictReader(io.StringIO(text))]


def table(results: Sequence[Result]) -> list[str]:
    """Success on the held-out tasks, in the lines of a Markdown table."""
    lines = ["| arm | seed | steps | greedy | T = 0.5 | T = 1 |", "|---|---:|---:|---:|---:|---:|"]
    labels = {FIRST: "imitation", **ARMS}
    results = [each for each in results if each.split == HELD_OUT]
    points = dict.fromkeys((each.seed, list(labels).index(each.arm), each.step) for each in results)
    for seed, arm, step in sorted(points):
        cells = [_cell(results, list(labels)[arm], seed, step, t) for t in (0.0, 0.5, 1.0)]
        label = list(labels.values())[arm]
        lines.append(f"| {label} | {seed} | {step} | {' | '.join(cells)} |")
    return lines


def _cell(results: Sequence[Result], arm: str, seed: int, step: int, temperature: float) -> str:
    point = (arm, seed, step, temperature)
    found = [r for r in results if (r.arm, r.seed, r.step, r.temperature) == point]
    return f"{found[-1].successes} of {found[-1].tasks}" if found else ""


def placed(page: str, results: Sequence[Result]) -> str:
    """The page with the table in its place."""
    before, begin, rest = page.partition("<!-- table -->\n")
    _, end, after = rest.partition("<!-- end -->")
    return "".join([before, begin, "\n".join(table(results)), "\n", end, after])


if __name__ == "__main__":
    sys.exit(main())
