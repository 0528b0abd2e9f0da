"""The paper's figures 10, 12 and 13 in miniature, and what the paper leaves out.

    python tests/study/study.py                     # everything that is missing; then the tables
    python tests/study/study.py --only objectives   # one grid
    python tests/study/study.py --plan              # what is missing, and how long it will take
    python tests/study/study.py --collect           # the tables of what is there

Everything is stored in runs/study. A call resumes where the last one ended: with a policy to start
from, a grid that was interrupted, and the missing runs of each. Every table is made from the CSV
files in runs/study/results. ``--docs`` adds their lines to those in docs/study, and makes the
tables of docs/study.md and the pictures from these.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import data
import learning
import sweeps
from attrs import evolve
from measured import Measures, Table, measure, measure_runs, table
from pages import markdown, picture
from plan import PLANS, Plan

from ale.errors import AleError, InputError, Problem
from ale.runs import RunReader, without_overrides
from ale.text import counted, seconds
from ale_ablate.forecast import timings
from ale_ablate.grid import Grid, read
from ale_ablate.measuring import is_completed as is_completed_slot
from ale_ablate.sweeping import FOLDER as SWEEP

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "study"
DATA = ROOT / "docs" / "study"
LONGEST_S = 8 * 3600
"""A grid that takes longer is left out, unless ``--long`` is given."""
DONE = (0, 3)
"""Exit statuses of what came to its end; 3: some episodes broke, and the tables say how many."""


def main() -> int:
    """Run what is missing and say what came of it; the exit status of what failed, else 0."""
    arguments = _arguments()
    plans = [
        evolve(plan, seeds=arguments.seeds or plan.seeds, starts=plan.starts[: arguments.starts])
        for plan in PLANS
        if arguments.only in (None, plan.name)
    ]
    folder = arguments.folder.resolve()
    try:
        if not arguments.collect:
            plans = list(_affordable(plans, folder, arguments))
        if arguments.plan:
            return 0
        code = 0 if arguments.collect else _run(plans, folder, arguments.jobs)
        _collect(folder, docs=arguments.docs)
    except AleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=[plan.name for plan in PLANS], help="one grid")
    parser.add_argument("--seeds", type=int, help="of each start and cell; default: the grid's")
    parser.add_argument("--starts", type=int, help="how many of a grid's starts; default: all")
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
        n, each = missing(plan, folder)
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


def left(plan: Plan, folder: Path) -> Sequence[int]:
    """Starts but those done elsewhere, whose runs are in docs/study and not in `folder`."""
    stored = data.read(DATA, [plan]).get(plan.name, [])
    done = [{start for start, _ in runs} for _, _, runs in stored]
    whole = set.intersection(*done) if done and plan.fixed else set[int]()
    return [s for s in plan.starts if s not in whole or grid_of(plan, s, folder)]


def missing(plan: Plan, folder: Path) -> tuple[int, float | None]:
    """Runs that a plan lacks, and the mean seconds of one.

    The seconds are those of its own completed runs, or of the stored study in docs/study; None
    where there are neither.
    """
    n, known = 0, list[float]()
    for start in left(plan, folder):
        grid, swept = grid_of(plan, start, folder), 0 if start else plan.n_sweep
        if grid is None:
            n += len(plan.cells) * (plan.seeds + swept)
        else:
            slots = list(grid.slots())
            n += sum(not is_completed_slot(slot) for slot in slots)
            n += len(plan.cells) * swept if grid.sweep else 0
            known += timings(slots).values()
    if not known:
        stored = data.read(DATA, [plan]).get(plan.name, [])
        runs = [run for _, _, of in stored for run in of.values()]
        known = [run.seconds for run in runs if run.seconds is not None]
    return n, sum(known) / len(known) if known else None


def _run(plans: Sequence[Plan], folder: Path, jobs: int) -> int:
    for plan in plans:
        for start in left(plan, folder):
            code = _ale(*_ablate(plan, start, folder), "--jobs", str(jobs))
            if code not in DONE:
                return code
    return 0


def _ale(*arguments: str) -> int:
    command = [sys.executable, "-P", "-m", "ale", *arguments]
    environ = without_overrides(os.environ)
    return subprocess.run(command, env=environ, check=False).returncode


def _ablate(plan: Plan, start: int, folder: Path) -> list[str]:
    """The arguments of `ale` that run the grid of a start, or what it lacks."""
    grid = grid_of(plan, start, folder)
    if grid is not None:
        return ["ablate", "--resume", str(grid.path)]
    first = grid_of(plan, plan.starts[0], folder)
    cells = plan.cells if first is None else first.cells  # with what the sweep chose
    given = [part for cell in cells for part in ("--cell", "; ".join(cell.overrides))]
    sets = {
        "llm.tiny": "null",
        "llm.model": start_policy(plan.warm, start, folder),
        "run.name": f"{plan.name}-{start}",
        "run.directory": folder,
        "tasks.seed": 10 + start,
    }
    if plan.fixed:  # what its sandboxes recall: see configs/study/recalled_sandbox.py
        sets["sandbox.file"] = folder / f"recalled-{start}.jsonl"
    given += [f"--set={key}={value}" for key, value in sets.items()]
    if plan.sweep and first is None:
        given += ["--sweep", plan.sweep]
    return ["ablate", str(CONFIGS / f"{plan.config}.yaml"), *given, "--seeds", str(plan.seeds)]


def grid_of(plan: Plan, start: int, folder: Path) -> Grid | None:
    """The newest grid of a plan and a start, as far as it has been run."""
    found = sorted(folder.glob(f"*-ablate-{plan.name}-{start}/grid.json"))
    return read(found[-1].parent) if found else None


def start_policy(warm: str, start: int, folder: Path) -> Path:
    """The folder with the model that runs begin with; made where it is not there yet.

    Raises:
        AleError: imitating did not come to its end.
    """
    model = folder / f"start-{start}"
    if not model.exists():
        run = _imitated(warm, start, folder)
        if code := _ale("model", str(run), "--out", str(model)):
            raise AleError(f"start {start} can't be stored: exit status {code}")
    return model


def _imitated(warm: str, start: int, folder: Path) -> Path:
    """The run that imitates, from its beginning or from where it was interrupted."""
    pattern = f"*-{warm}-{start}/manifest.json"
    begun = sorted(folder.glob(pattern))
    if begun and is_completed(begun[-1].parent):
        return begun[-1].parent
    sets = {"run.directory": folder, "run.name": f"{warm}-{start}", "run.seed": start}
    fresh = [str(CONFIGS / f"{warm}.yaml"), *(f"--set={k}={v}" for k, v in sets.items())]
    code = _ale("run", *(["--resume", str(begun[-1].parent)] if begun else fresh))
    if code not in DONE:
        raise AleError(f"start {start} did not come to its end: exit status {code}")
    return sorted(folder.glob(pattern))[-1].parent


def is_completed(run: Path) -> bool:
    """Has it done all its steps? One that was interrupted has an outcome, too."""
    outcome = RunReader(run).manifest.get("outcome")
    return outcome is not None and outcome["outcome"] == "completed"


def _collect(folder: Path, *, docs: bool) -> None:
    measured = {
        plan.name: measure(plan, grids, len(plan.starts))
        for plan in PLANS
        if (grids := {s: grid for s in plan.starts if (grid := grid_of(plan, s, folder))})
    }
    swept = [line for plan in PLANS for line in _swept(plan, folder)]
    out = folder / "results"
    data.write(out, measured)
    for each in _tables(data.read(out, PLANS)):
        text = "\n\n".join("\n".join(lines) for lines in shown(each).values())
        print(f"\n{each.plan.title}\n\n{text}", flush=True)
        (out / f"{each.plan.name}.md").write_text(f"{text}\n")
    if docs:
        whole = {
            plan.name: _whole(plan, measured[plan.name]) for plan in PLANS if plan.name in measured
        }
        known = data.merged(data.read(DATA, PLANS), whole)
        data.write(DATA, {plan.name: known[plan.name] for plan in PLANS if plan.name in known})
        swept = sweeps.added(sweeps.stored(DATA / sweeps.FILE), swept)
        sweeps.write(DATA / sweeps.FILE, swept)
        for page, text in pages(list(_tables(data.read(DATA, PLANS))), swept).items():
            page.write_text(text)
    print(f"\nstored in\n  {os.path.relpath(out)}")


def _whole(plan: Plan, measures: Measures) -> Measures:
    """Of a plan that is fixed beforehand, the starts of which each cell is done."""
    if not plan.fixed:
        return measures
    done = set.intersection(*({start for start, _ in runs} for _, _, runs in measures))
    return [
        (cell, asked, {key: run for key, run in runs.items() if key[0] in done})
        for cell, asked, runs in measures
    ]


def _swept(plan: Plan, folder: Path) -> Iterator[sweeps.Tried]:
    grid = grid_of(plan, plan.starts[0], folder)
    if grid is not None and (grid.path / SWEEP / "grid.json").exists():
        yield from sweeps.tried(plan, grid, measure_runs(read(grid.path / SWEEP)))


def _tables(measured: Mapping[str, Measures]) -> Iterator[Table]:
    for plan in PLANS:
        if any(runs for _, _, runs in measured.get(plan.name, [])):
            yield table(plan, measured[plan.name])


def pages(tables: Sequence[Table], swept: Sequence[sweeps.Tried]) -> Mapping[Path, str]:
    """The pages and pictures with these tables: their files, and what is to be in them."""
    found: dict[Path, str] = {}
    for each in tables:
        page = ROOT / "docs" / f"{each.plan.page}.md"
        text = found.get(page) or page.read_text()
        for name, lines in shown(each).items():
            text = _placed(text, name, [*lines, ""], page)
        if tried := [line for line in swept if line.grid == each.plan.name]:
            lines = [*sweeps.markdown(tried), ""]
            text = _placed(text, f"{each.plan.name}, sweep", lines, page)
        found[page] = text
        if not each.plan.fixed:
            found[DATA / f"{each.plan.name}.svg"] = picture(each)
    return found


def _placed(text: str, name: str, lines: Sequence[str], page: Path) -> str:
    """The page with a table in its place."""
    begin, end = f"<!-- table {name} -->\n", "<!-- end -->"
    before, mark, rest = text.partition(begin)
    if not mark:
        message = f"there is no place for the table '{name}'"
        raise InputError([Problem(message=message, file=str(page))])
    after = rest[rest.index(end) :]
    return "".join([before, begin, "\n".join(lines), after])


def shown(table: Table) -> Mapping[str, list[str]]:
    """What the page has of a grid, by the name of the place."""
    plan, name = table.plan, table.plan.name
    own = f"{name}, primary" if plan.contrasts else name
    curves, described = f"{name}, curves", f"{name}, described"
    n, planned = learning.whole_starts(table), len(plan.starts)
    if plan.fixed and n < planned:
        said = f"{n} of {counted(planned, 'start')} done; no test is made yet."
        hidden = ["No arm is shown before all starts are done."]
        return {own: [said], curves: hidden, **({described: hidden} if plan.described else {})}
    picture = [] if plan.fixed else [f"![Success after training]({DATA.name}/{name}.svg)", ""]
    lines = learning.primary(table) if plan.contrasts else markdown(table)
    found = {own: [*picture, *lines], curves: list(learning.markdown(table))}
    return {**found, described: list(learning.described(table))} if plan.described else found


if __name__ == "__main__":
    sys.exit(main())
