"""The paper's figures 10, 12 and 13 in miniature, and what the paper leaves out.

    python tests/study/study.py                     # everything that is missing; then the tables
    python tests/study/study.py --only objectives   # one grid
    python tests/study/study.py --plan              # what is missing, and how long it will take
    python tests/study/study.py --collect           # the tables of what is there

Everything is stored in runs/study. A call resumes where the last one ended: with the warm start, a
grid that was interrupted, and the missing runs of each. Every table is made from the CSV files in
runs/study/results. ``--docs`` adds their lines to those in docs/study, and makes the tables of
docs/study.md and the pictures from these.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import data
from measured import Measures, Table, measure, table
from pages import markdown, picture
from plan import PLANS, Plan

from ale.errors import AleError, InputError, Problem
from ale.runs import RunReader, without_overrides
from ale.text import counted, seconds
from ale_ablate.forecast import timings
from ale_ablate.grid import Grid, read
from ale_ablate.measuring import is_completed as is_completed_slot

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "study"
PAGE = ROOT / "docs" / "study.md"
LONGEST_S = 8 * 3600
"""A grid that takes longer is left out, unless ``--long`` is given."""
WARM = "warm"
DONE = (0, 3)
"""Exit statuses of what came to its end; 3: some episodes broke, and the tables say how many."""


def main() -> int:
    """Run what is missing and say what came of it; the exit status of what failed, else 0."""
    arguments = _arguments()
    plans = [plan for plan in PLANS if arguments.only in (None, plan.name)]
    folder = arguments.folder.resolve()
    try:
        if not arguments.collect:
            plans = list(_affordable(plans, folder, arguments))
        if arguments.plan:
            return 0
        code = 0 if arguments.collect else _run(plans, folder, arguments.seeds, arguments.jobs)
        _collect(folder, docs=arguments.docs)
    except AleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=[plan.name for plan in PLANS], help="one grid")
    parser.add_argument("--seeds", type=int, default=5, help="of each cell of a new grid")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help="runs side by side")
    parser.add_argument(
        "--plan", action="store_true", help="say what would be run, and for how long"
    )
    parser.add_argument("--long", action="store_true", help="run what takes more than 8 hours, too")
    parser.add_argument("--collect", action="store_true", help="run nothing")
    parser.add_argument("--docs", action="store_true", help="write into docs/ too")
    parser.add_argument("--folder", type=Path, default=Path("runs/study"))
    return parser.parse_args()


def _affordable(
    plans: Sequence[Plan], folder: Path, arguments: argparse.Namespace
) -> Iterator[Plan]:
    """Print what is missing of each grid and how long it will take; those that are to be run."""
    total, unknown = 0.0, False
    for plan in plans:
        n, each = missing(plan, folder, arguments.seeds)
        needed = None if each is None else n * each / arguments.jobs
        time = "time unknown before its first run" if needed is None else f"about {seconds(needed)}"
        left_out = needed is not None and needed > LONGEST_S and not arguments.long
        print(
            f"{plan.name}: {counted(n, 'run')} missing, "
            f"{'nothing to do' if n == 0 else time}"
            f"{'; left out, --long runs it' if left_out else ''}",
            flush=True,
        )
        if not left_out:
            total, unknown = total + (needed or 0.0), unknown or (needed is None and n > 0)
            yield plan
    if unknown and not total:
        return
    more = ", and what is unknown" if unknown else ""
    print(f"in all about {seconds(total)}{more}, {counted(arguments.jobs, 'run')} side by side")


def missing(plan: Plan, folder: Path, seeds: int) -> tuple[int, float | None]:
    """Runs that a grid lacks, and the mean seconds of one.

    The seconds are those of its own completed runs, or of the stored study in docs/study; None
    where there are neither.
    """
    grid = grid_of(plan, folder)
    swept = len(plan.cells) * plan.n_sweep
    if grid is not None:
        slots = list(grid.slots())
        left = sum(not is_completed_slot(slot) for slot in slots)
        left += swept if grid.sweep else 0
        known = list(timings(slots).values())
    else:
        left, known = len(plan.cells) * seeds + swept, []
    if not known:
        stored = data.read(PAGE.with_suffix(""), [plan]).get(plan.name, [])
        runs = [run for _, _, of in stored for run in of.values()]
        known = [run.seconds for run in runs if run.seconds is not None]
    return left, sum(known) / len(known) if known else None


def _run(plans: Sequence[Plan], folder: Path, seeds: int, jobs: int) -> int:
    for plan in plans:
        model = warm_start(plan.warm_steps, folder)
        code = _ale(*_ablate(plan, folder, model, seeds), "--jobs", str(jobs))
        if code not in DONE:
            return code
    return 0


def _ale(*arguments: str) -> int:
    command = [sys.executable, "-P", "-m", "ale", *arguments]
    environ = without_overrides(os.environ)
    return subprocess.run(command, env=environ, check=False).returncode


def _ablate(plan: Plan, folder: Path, model: Path, seeds: int) -> list[str]:
    grid = grid_of(plan, folder)
    if grid is not None:
        return ["ablate", "--resume", str(grid.path)]
    laid = ["llm.tiny=null", f"llm.model={model}", f"run.name={plan.name}"]
    laid.append(f"run.directory={folder}")
    cells = [part for cell in plan.cells for part in ("--cell", "; ".join(cell.overrides))]
    sets = [part for each in laid for part in ("--set", each)]
    sweep = ["--sweep", plan.sweep] if plan.sweep else []
    config = str(CONFIGS / f"{plan.config}.yaml")
    return ["ablate", config, *sets, *cells, *sweep, "--seeds", str(seeds)]


def grid_of(plan: Plan, folder: Path) -> Grid | None:
    """The newest grid of this name, as far as it has been run."""
    found = sorted(folder.glob(f"*-ablate-{plan.name}/grid.json"))
    return read(found[-1].parent) if found else None


def warm_start(steps: int, folder: Path) -> Path:
    """The folder with the model that runs begin with; made where it is not there yet.

    Args:
        steps: of imitation that it has had.

    Raises:
        AleError: imitating did not come to its end.
    """
    model = folder / "models" / f"after-{steps}"
    if not model.exists():
        _save(_imitated(folder), steps, model)
    return model


def _imitated(folder: Path) -> Path:
    """The run that imitates, from its beginning or from where it was interrupted."""
    begun = sorted(folder.glob(f"*-{WARM}/manifest.json"))
    if begun and is_completed(begun[-1].parent):
        return begun[-1].parent
    sets = [f"--set=run.directory={folder}", f"--set=run.name={WARM}"]
    fresh = [str(CONFIGS / f"{WARM}.yaml"), *sets]
    code = _ale("run", *(["--resume", str(begun[-1].parent)] if begun else fresh))
    if code not in DONE:
        raise AleError(f"the warm start did not come to its end: exit status {code}")
    return sorted(folder.glob(f"*-{WARM}/manifest.json"))[-1].parent


def is_completed(run: Path) -> bool:
    """Has it done all its steps? One that was interrupted has an outcome, too."""
    outcome = RunReader(run).manifest.get("outcome")
    return outcome is not None and outcome["outcome"] == "completed"


def _save(run: Path, steps: int, model: Path) -> None:
    """Write the weights that a run had after so many steps as a model of transformers."""
    from safetensors.torch import load_file

    from ale_llm_policy.pretrained import TinyShape, tiny_policy

    manifest = RunReader(run).manifest
    tiny = dict(manifest["config"]["llm"]["tiny"])
    corpus, whole = Path(tiny.pop("corpus")), tiny.pop("whole")
    policy = tiny_policy(corpus, TinyShape(**tiny), seed=manifest["seed"], whole=whole)
    stored = load_file(run / "checkpoints" / f"{steps - 1:05d}" / "trainer.safetensors")
    weights = {
        name.removeprefix("weight/"): tensor
        for name, tensor in stored.items()
        if name.startswith("weight/")
    }
    policy.load_weights(weights)
    partial = model.with_name(f".{model.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    policy.save(partial)
    partial.replace(model)


def _collect(folder: Path, *, docs: bool) -> None:
    measured = {
        plan.name: measure(plan, grid)
        for plan in PLANS
        if (grid := grid_of(plan, folder)) is not None
    }
    out = folder / "results"
    data.write(out, measured)
    for each in _tables(data.read(out, PLANS)):
        text = "\n".join(markdown(each))
        print(f"\n{each.plan.title}\n\n{text}", flush=True)
        (out / f"{each.plan.name}.md").write_text(f"{text}\n")
        (out / f"{each.plan.name}.svg").write_text(picture(each))
    if docs:
        stored = PAGE.with_suffix("")
        data.write(stored, {**data.read(stored, PLANS), **measured})
        _write(list(_tables(data.read(stored, PLANS))))
    print(f"\nstored in\n  {os.path.relpath(out)}")


def _tables(measured: Mapping[str, Measures]) -> Iterator[Table]:
    for plan in PLANS:
        if not any(runs for _, _, runs in measured.get(plan.name, [])):
            continue
        if plan.first and plan.first not in measured:
            message = f"run it first: '{plan.name}' is compared to a cell of it"
            raise InputError([Problem(message=message, file=plan.first)])
        yield table(plan, measured[plan.name], measured[plan.first] if plan.first else None)


def _write(tables: Sequence[Table]) -> None:
    """Put tables between their marks in the page, and pictures beside it."""
    text = PAGE.read_text()
    pictures = PAGE.with_suffix("")
    pictures.mkdir(exist_ok=True)
    for each in tables:
        text = _placed(text, each)
        (pictures / f"{each.plan.name}.svg").write_text(picture(each))
    PAGE.write_text(text)


def _placed(text: str, table: Table) -> str:
    """The page with a table in its place."""
    begin, end = f"<!-- table {table.plan.name} -->\n", "<!-- end -->"
    before, mark, rest = text.partition(begin)
    if not mark:
        message = f"there is no place for the table '{table.plan.name}'"
        raise InputError([Problem(message=message, file=str(PAGE))])
    after = rest[rest.index(end) :]
    lines = "\n".join(markdown(table))
    return f"{before}{begin}{lines}\n{after}"


if __name__ == "__main__":
    sys.exit(main())
