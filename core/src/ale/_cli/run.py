"""``ale run CONFIG``."""

import asyncio
import gc
import json
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Collection, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from ale._cli.common import CONFIG, PATH, RUN, format_option, overrides_option
from ale._cli.main import Starting, started

if TYPE_CHECKING:
    from ale._config import RunConfig
    from ale._registry import Registry
    from ale._run.interrupt import Interrupt
    from ale._run.run import Run
    from ale._run.start import Host
    from ale._store.index import Index
    from ale.types import RunFinished


_REPLAY_TYPE = "llm.type=scripted"
_CHANGED = 5
"""How many changed keys of a config are named."""
_OTHER = "  to use it, choose another --directory"
_CAUSES = 5
"""How many causes of broken episodes the summary names."""


class _Concurrency(click.IntRange):
    """A number, or ``auto``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does."""
        return value if value == "auto" else super().convert(value, param, ctx)


@click.command("run", cls=Starting)
@click.argument("config", type=PATH, required=False)
@overrides_option
@format_option
@click.option(
    "--resume",
    type=RUN,
    metavar="DIR",
    help="Resume a stored run with its saved config; only missing episodes are run. --set changes "
    "what does not enter the results: addresses, keys, retries, where episodes run.",
)
@click.option(
    "--retry-broken",
    is_flag=True,
    help="With --resume: also sample the broken episodes again, in a run without a trainer.",
)
@click.option(
    "--replay",
    type=RUN,
    metavar="DIR",
    help="Replay the model's responses from a stored run.",
)
@click.option(
    "--directory",
    type=PATH,
    metavar="DIR",
    help="Run directory to create. If it already holds a run, that run is resumed with its saved "
    "config, so the same command continues an interrupted run; a CONFIG that differs only in what "
    "--resume --set can change is used.",
)
@click.option("--dry-run", is_flag=True, help="Validate the config, print the plan and exit.")
@click.option(
    "-n",
    "--concurrency",
    type=_Concurrency(1),
    metavar="NUMBER|auto",
    help="Maximum number of episodes running at the same time (run.concurrency).",
)
@click.option(
    "--no-checks",
    is_flag=True,
    help="Don't check model and sandbox first (run.preflight), and don't stop when the first "
    "episodes all break (run.stop_after_broken).",
)
@click.option(
    "--deterministic",
    is_flag=True,
    help="Take clock and ids from run.seed and run one episode at a time: with a scripted model "
    "and the local sandbox, the same config gives the same episodes, credits and events to the "
    "byte. Only output that contains workspace paths (pwd) differs, if sandbox.root does.",
)
@click.pass_context
def command(
    ctx: click.Context,
    config: Path | None,
    overrides: tuple[str, ...],
    format: str | None,
    resume: Path | None,
    retry_broken: bool,
    replay: Path | None,
    directory: Path | None,
    dry_run: bool,
    concurrency: int | str | None,
    no_checks: bool,
    deterministic: bool,
) -> None:
    """Run CONFIG: sample, grade and credit episodes, and train on them.

    Without a CONFIG, ale.yaml is run, which `ale init` writes. For a stored run, `latest` is the
    newest one in ./runs.

    The model and the first task's image are checked first; if one can't be used, nothing is
    started. The first Ctrl-C waits for the running episodes, the second cancels them. --resume
    continues a run that was interrupted or stopped.

    \b
    Examples:
      ale run configs/quickstart.yaml
      ale run configs/quickstart.yaml --set credit.type=grpo -n 16
      ale run --resume runs/20260101-120000-3f2a-quickstart
    """
    if config is None and resume is None and CONFIG.exists():
        config = CONFIG
    _announce(config or resume, dry_run)
    from ale._cli.plan import describe_plan
    from ale._config import load_config
    from ale._run.interrupt import Interrupt
    from ale._run.start import Host, check_run, start_checked

    gc.disable()  # until `_to_the_end`: of what is imported and built nothing is garbage
    ctx.call_on_close(gc.enable)
    root, registry = ctx.find_root().command, ctx.obj
    assert isinstance(root, click.Group)
    interrupt = Interrupt(show=lambda text: click.echo(f"\n{text}", err=True))
    host = Host(registry=registry, interrupt=interrupt)
    others = format or replay or directory or dry_run or deterministic
    _check_usage(config, resume, retry_broken=retry_broken, others=bool(others))
    options = _run_options(concurrency, no_checks)
    config_now = None
    if directory is not None and not dry_run and (directory / "manifest.json").exists():
        assert config is not None
        made = _all_overrides(overrides, replay, options)
        text, config_now = _resumed(directory, config, registry, made, format)
        click.echo(text, err=True)
        resume, overrides = directory, ()
    if resume is not None:
        options |= {"overrides": overrides, "config_now": config_now, "retry_broken": retry_broken}
        starting = _resume(resume, host, options)
    else:
        assert config is not None
        options = _run_options(concurrency, no_checks, deterministic)
        changed = _all_overrides(overrides, replay, options)
        loaded = load_config(config, registry, changed, format)
        ready = check_run(loaded, config.stem, host, directory)
        for note in ready.notes:
            # --replay replaces the model on purpose, so its options are dropped without a note.
            if replay is None or not note.startswith(f"--set {_REPLAY_TYPE}:"):
                host.report(note)
        if dry_run:
            click.echo(describe_plan(ready))
            return
        starting = start_checked(ready, host)
    ctx.exit(_to_the_end(starting, interrupt, root.list_commands(ctx)))


def _announce(what: Path | None, dry_run: bool) -> None:
    """Say on a terminal what is done before the first line of the run, which may take seconds.

    A log is not watched: what it has first is the run's plan.
    """
    if what is not None and not dry_run and sys.stderr.isatty():
        click.echo(f"{what.name}: loading its parts, then a check of model and sandbox", err=True)


def _check_usage(
    config: Path | None, resume: Path | None, *, retry_broken: bool, others: bool
) -> None:
    """Refuse options that exclude each other."""
    if retry_broken and resume is None:
        raise click.UsageError("--retry-broken needs --resume DIR")
    if (config is None) == (resume is None):
        raise click.UsageError(
            "give either a CONFIG (ale init writes ale.yaml, the default) or --resume DIR"
        )
    if resume and others:
        raise click.UsageError(
            "--resume uses the run's saved config; only --set, -n and --no-checks change it"
        )


def _resume(
    directory: Path, host: "Host", options: Mapping[str, Any]
) -> "Coroutine[Any, Any, Run]":
    """Open a stored run, and say what is changed of its config."""
    from ale._run.manifest import described
    from ale._run.start import check_resumed, resume

    run = resume(directory, host, **options)
    for change in run.changes:
        click.echo(f"changed: {described(change)}", err=True)
    return check_resumed(run)


def _resumed(
    directory: Path, config: Path, registry: "Registry", overrides: list[str], format: str | None
) -> "tuple[str, RunConfig | None]":
    """The message if a directory holds a run, and the config whose changes a resume takes."""
    from ale._config import load_config
    from ale._run.manifest import FOR_THIS_TIME, changes, described
    from ale._run.start import saved_config
    from ale._store import RunReader
    from ale.errors import InputError

    said = f"{directory} holds a run: it is resumed with its saved config"
    try:
        now = load_config(config, registry, overrides, format)
    except InputError as error:
        return f"{said}; {config} is not used, and is not valid:\n{error}", None
    found = changes(saved_config(RunReader(directory), registry), now)
    found = [each for each in found if each.path not in FOR_THIS_TIME]
    if all(each.allowed for each in found):
        return said, now
    more = [f"and {len(found) - _CHANGED} more"] if len(found) > _CHANGED else []
    lines = [f"  not used: {line}" for line in [*map(described, found[:_CHANGED]), *more]]
    return "\n".join([f"{said}, from which {config} differs", *lines, _OTHER]), None


def _to_the_end(
    starting: "Coroutine[Any, Any, Run]", interrupt: "Interrupt", commands: Collection[str]
) -> int:
    """Execute a run and print its summary; the exit status."""
    from ale._front import carry_out
    from ale._run.run import ENDED_EARLY

    def begun(run: "Run") -> "Run":
        started()
        # Modules stay loaded: torch and transformers are 360,000 objects to traverse.
        gc.freeze()
        gc.enable()
        return run if run.config.run.deterministic else evolve(run, startup_s=_elapsed_s())

    with asyncio.Runner() as runner:
        run, finished = runner.run(carry_out(starting, begun))
        if interrupt.signal is not None:
            # Only the summary is left to print; another Ctrl-C must not prevent that.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        click.echo(summary(run, finished, commands))
        code = interrupt.exit_code or (3 if finished.n_broken else 0)
        if code == 0:
            code = ENDED_EARLY.get(finished.outcome, 0)
        if any(not task.done() for task in run.supervisor.abandoned):
            # A plugin keeps running although it was cancelled; asyncio would wait for it for ever.
            sys.stdout.flush()
            os._exit(code)
    return code


def _all_overrides(
    overrides: tuple[str, ...], replay: Path | None, options: Mapping[str, Any]
) -> list[str]:
    made = []
    if replay is not None:
        # Quoted, because the value is read as YAML. A script in the config is replaced.
        quoted = str(replay).replace("'", "''")
        made += [_REPLAY_TYPE, "llm.script=null", f"llm.replay='{quoted}'"]
    return [
        *made,
        *overrides,
        *(f"run.{key}={json.dumps(value)}" for key, value in options.items()),
    ]


def _run_options(
    concurrency: int | str | None, no_checks: bool, deterministic: bool = False
) -> dict[str, Any]:
    """Options of section ``run`` that flags of the command line set."""
    options: dict[str, Any] = {}
    if concurrency is not None:
        options["concurrency"] = concurrency
    if no_checks:
        options |= {"preflight": False, "stop_after_broken": None}
    if deterministic:
        if concurrency not in (None, 1):
            raise click.UsageError("--deterministic runs one episode at a time, without -n")
        options |= {"deterministic": True, "concurrency": 1}
    return options


def _evaluations(index: "Index", tasks: str = "held-out tasks") -> list[str]:
    """A line for each evaluation and temperature.

    Args:
        tasks: what the evaluation is on, as of `evaluated_on`.
    """
    from ale.text import rate_line, sampling_name

    lines = []
    for step in index.steps("evaluation"):
        by_temperature = index.attempts(step)
        named = {*by_temperature} != {None}
        # Not as the episodes ended: the same run would print another order each time.
        for temperature in sorted(by_temperature, key=lambda t: math.inf if t is None else t):
            rate = rate_line(by_temperature[temperature].values())
            how = f", {sampling_name(temperature)}" if named else ""
            lines.append(f"  after step {step:<3} {rate} on {tasks}{how}")
    return lines


def _broken(run: "Run", number: int) -> list[str]:
    """How many episodes broke, and the most common causes."""
    from ale._store.diagnosis import Causes

    causes = Causes()
    for offset in run.store.index.broken_offsets():
        causes.add(run.store.reader.episodes.at(offset))
    lines = [f"    {line}" for line in causes.lines(_CAUSES)]
    return [f"  broken       {number}  (no reward)", *lines]


def _elapsed_s() -> float:
    """Seconds since this process was started, imports included; 0 where only Linux could say."""
    if sys.platform != "linux":
        return 0.0
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _stopped(run: "Run") -> list[str]:
    """Why a run was stopped early."""
    number = run.early_stop.n_broken
    which = "the first episode" if number == 1 else f"the first {number} episodes all"
    return [
        f"  {which} broke: {run.early_stop.cause}",
        *_remedy(run),
    ]


def _remedy(run: "Run") -> list[str]:
    """The advice on a run that was stopped early."""
    from ale._run.manifest import has_results

    if has_results(run.store.reader):
        return [
            "  fix it and resume the run, which samples them again; --no-checks continues anyway"
        ]
    return [
        "  no episode was graded: if the config is to be changed, start a new run; otherwise fix",
        "  the cause and resume the run, which samples them again (--set llm.base_url=... there",
        "  changes an address); --no-checks continues anyway",
    ]


def _spent(run: "Run", finished: "RunFinished") -> list[str]:
    """Lines about the budget; none without one."""
    if run.spending is None:
        return []
    spending, ended = run.spending, run.budget_spent()
    lines = [f"  spent        {spending.described()}"]
    if ended is not None and finished.outcome == "drained":
        lines += [
            f"  the budget is spent: {ended}",
        ]
    if spending.price is not None and finished.n_succeeded:
        each = spending.usd / finished.n_succeeded
        lines.append(f"  cost         ${each:.4f} a success of training")
    return lines


def _counted_apart(run: "Run") -> list[str]:
    """Lines that count what was learned from or graded, but may not be what it seems."""
    from ale._store.diagnosis import short_groups

    found = {
        "short groups": short_groups(run.store.reader.events()),
        "timed out": _graded(run.store.index.timed_out(), "a time limit of the grading"),
        "contested": _contested(run.store.index.contested()),
        "damaged": _graded(run.store.index.damaged(), "the agent damaged its sandbox"),
    }
    return [f"  {name:<12} {what}" for name, what in found.items() if what]


def _contested(n: int) -> str | None:
    said = "a pass that used files the agent changed; what it counts as: run.contested"
    return f"{n}  ({said})" if n else None


def _graded(n: int, why: str) -> str | None:
    return f"{n}  ({why}; graded)" if n else None


def summary(run: "Run", finished: "RunFinished", commands: Collection[str]) -> str:
    """The outcome, the run directory, and installed commands to try next."""
    from ale._store.diagnosis import learning, model_name, scored
    from ale.runs import evaluated_on
    from ale.text import counted, number, rate_line, seconds

    stopped = finished.outcome == "stopped"
    index = run.store.index
    relative = os.path.relpath(finished.directory)
    path = finished.directory if relative.startswith("..") else relative
    stored = counted(len(index), "episode")
    before = run.store.earlier_s
    spent = seconds(before + finished.seconds)
    now = f", of which {seconds(finished.seconds)} now" if before and finished.seconds else ""
    lines = [
        f"{finished.outcome}: {stored} on disk after {spent}{now}",
        *([f"  model        {model}"] if (model := model_name(run.config.resolved)) else []),
        *(_stopped(run) if stopped else ()),
        *_spent(run, finished),
        *([f"  stopped      {run.watch.stopped}"] if finished.outcome == "halted" else ()),
    ]
    if finished.n_graded or not stopped:
        lines.append(f"  success      {rate_line(index.training_attempts().values())}")
    if finished.mean_reward is not None:
        lines.append(f"  mean reward  {number(finished.mean_reward)}")
    lines += _evaluations(index, evaluated_on(run.store.reader))
    if warning := learning(run.store.reader.events(), index).warning():
        lines.append(f"  training     {warning}")
    if finished.n_broken and not stopped:
        lines += _broken(run, finished.n_broken)
    for name, text in scored(run.store.reader.step_scores()):
        lines.append(f"  scored       {name}: {text}" if name else f"    {text}")
    lines += [*_counted_apart(run), "stored in", f"  {path}"]
    quoted = shlex.quote(path)
    # A group of one has no credit under most schemes.
    grouped = any(graded > 1 for graded, _ in index.training_attempts().values())
    creditable = "show" in commands and grouped and run.parts.credit is not None
    larger = run.spending and run.spending.larger()
    more = f" --set {larger}" if larger else ""
    following = {
        f"ale run --resume {quoted}{more}": finished.outcome != "completed",
        f"ale show {quoted}": "show" in commands,
        f"ale report {quoted}": "report" in commands,
        f"ale show credit {quoted}": creditable,
    }
    if any(following.values()):
        lines += ["next", *(f"  {line}" for line, useful in following.items() if useful)]
    return "\n".join(lines)
