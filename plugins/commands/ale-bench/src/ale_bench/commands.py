"""The command line of `ale eval`; the implementation is imported when it runs.

`ale --help` imports this module, so it imports only click and `ale.commands`.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ale.commands import COMPONENT, PATH, Starting, overrides_option

if TYPE_CHECKING:
    from ale.runs import Registry
    from ale_bench.targets import Target


@click.command("eval", cls=Starting)
@click.argument("target", required=False, metavar="[BENCHMARK|FOLDER|ORG/NAME@REF|RUN]")
@click.option("--model", help="Name of the model, as its server lists it.")
@click.option(
    "--base-url", help="URL of the model's API, up to /v1.  [default: the URL of its type]"
)
@click.option("--api-key-env", metavar="VARIABLE", help="Environment variable with the API key.")
@click.option(
    "--llm",
    metavar=COMPONENT,
    help="Type of the model, with more options: vllm, or policy:device=cpu.  [default: openai]",
)
@click.option(
    "--config", type=PATH, metavar="FILE", help="Take the model from section llm of this config."
)
@click.option(
    "-k", type=click.IntRange(1), default=1, show_default=True, help="Attempts at each task."
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    help="Sampling temperature.  [default: 0 for one sample, 0.8 for more]",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Maximum tokens of an answer.")
@click.option("--data", type=PATH, help="File or folder of the problems, as published.")
@click.option(
    "--dataset", metavar="NAME[:SUBSET]", help="Data set that the library `datasets` loads instead."
)
@click.option("--sample", is_flag=True, help="Use a few problems that the package ships instead.")
@click.option("--split", help="Split of the benchmark.  [default: the test split]")
@click.option("--limit", type=click.IntRange(0), help="Only the first N problems; 0 for all.")
@click.option(
    "--agent", metavar=COMPONENT, help="Agent.  [default: the benchmark's own, or single-shot]"
)
@click.option(
    "--sandbox", metavar=COMPONENT, help="Sandbox.  [default: the benchmark's own, or auto]"
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the run."
)
@click.option(
    "-n",
    "--concurrency",
    type=click.IntRange(1),
    help="Maximum number of episodes running at the same time.",
)
@click.option("--no-checks", is_flag=True, help="Skip the checks, as `ale run --no-checks` does.")
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="Folder for the run; if it holds an unfinished run, that run is continued.  [default: "
    "one below ./runs, named after benchmark, model and options]",
)
@overrides_option
@click.option("--print-config", is_flag=True, help="Print the config for `ale run` and exit.")
@click.option("--against", type=PATH, metavar="RUN", help="Compare RUN with another, task by task.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def eval_(
    ctx: click.Context,
    /,
    target: str | None,
    concurrency: int | None,
    no_checks: bool,
    out: Path | None,
    overrides: tuple[str, ...],
    print_config: bool,
    against: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Let a model do the tasks of a benchmark or FOLDER, grade them, and show pass@k.

    FOLDER has tasks in a format that an installed package reads, such as Harbor's; ORG/NAME@REF is
    a repository of GitHub with such folders. Of a RUN, the results are shown. Without any of
    these, the benchmarks are listed that can be named.

    The run is stored like any other of `ale run`, with the same exit codes. After a Ctrl-C, a kill
    or an outage, the same command continues it: it samples what is missing and what broke. With
    --out, also at another --base-url.

    \b
    Examples:
      ale eval humaneval --llm vllm --model Qwen/Qwen2.5-Coder-7B-Instruct
      ale eval my-tasks/ --model gpt-5-mini --api-key-env OPENAI_API_KEY -k 4 -n 8
      ale eval my-tasks/ --agent oracle --set run.contested=failed --print-config
      ale eval runs/humaneval-small-1a2b3c4d --against runs/humaneval-large-5e6f7a8b
    """
    from ale_bench.targets import resolve, stored_target

    registry: Registry = ctx.obj
    if target is None:
        _list(registry, as_json=as_json)
        return
    stored = stored_target(target)
    if stored is not None:
        _only_shown(ctx)
        _show(stored, registry, as_json=as_json, against=against)
        return
    if against is not None:
        raise click.UsageError("--against compares the results of a stored RUN")
    _run(
        ctx,
        resolve(target, registry),
        arguments=[
            *([] if concurrency is None else ["-n", str(concurrency)]),
            *["--no-checks"] * no_checks,
        ],
        out=out,
        overrides=overrides,
        print_config=print_config,
        as_json=as_json,
        given=given,
    )


def _run(
    ctx: click.Context,
    chosen: "Target",
    *,
    arguments: list[str],
    out: Path | None,
    overrides: tuple[str, ...],
    print_config: bool,
    as_json: bool,
    given: dict[str, Any],
) -> None:
    from ale.runs import apply_environment, apply_overrides, environment_notes, written_config
    from ale_bench import running
    from ale_bench.config import Flags, check_model, config_tree

    registry: Registry = ctx.obj
    flags = Flags(out=out, **given)
    if flags.config is not None and flags.llm is not None:
        raise click.UsageError("give either --llm or --config FILE")
    tree = config_tree(flags, chosen, registry)
    tree = apply_overrides(apply_environment(tree, os.environ, _typed(ctx)), overrides)
    check_model(flags, tree)
    config = written_config(tree, registry)
    for note in environment_notes(tree):
        click.echo(note, err=True)
    parent = Path(config["run"].pop("directory"))
    folder = out or running.default_folder(config, parent)
    text = running.as_yaml(config, folder)
    if print_config:
        click.echo(text, nl=False)
        return
    _warn(config)
    code = running.run_in(folder, text, tree, arguments, registry, quiet=as_json)
    if code not in running.NOT_STARTED and running.stored_run(folder) is not None:
        click.echo("" if as_json else "\n", nl=False)
        _show(folder, registry, as_json=as_json)
    ctx.exit(code)


def _typed(ctx: click.Context) -> set[str]:
    """The options that the command line has, rather than their defaults."""
    typed = click.core.ParameterSource.COMMANDLINE
    given = [each for each in ctx.command.params if each.name is not None]
    return {
        option
        for each in given
        if ctx.get_parameter_source(str(each.name)) is typed
        for option in each.opts
    }


def _only_shown(ctx: click.Context) -> None:
    others = sorted(_typed(ctx) - {"--json", "--against"} - {"target"})
    if others:
        raise click.UsageError(f"{others[0]} is for a run to be made, and this one is stored")


def _list(registry: "Registry", *, as_json: bool) -> None:
    from ale_bench.offered import offered
    from ale_bench.tables import benchmarks_json, benchmarks_text

    found = offered(registry)
    click.echo(benchmarks_json(found) if as_json else benchmarks_text(found))


def _warn(config: dict[str, Any]) -> None:
    k = config["run"]["rollouts"]
    if k > 1 and config.get("llm", {}).get("temperature") == 0:
        click.echo(
            f"warning: at temperature 0 the {k} samples of a problem are nearly the same, so "
            f"pass@{k} says no more than pass@1",
            err=True,
        )


def _show(
    folder: Path, registry: "Registry", *, as_json: bool, against: Path | None = None
) -> None:
    from ale_bench.comparing import compare, comparison_json, comparison_text
    from ale_bench.results import read_results
    from ale_bench.tables import results_json, results_text

    results = read_results(folder, registry)
    if against is not None:
        found = compare(results, read_results(against, registry))
        click.echo(comparison_json(found) if as_json else comparison_text(found))
        return
    click.echo(results_json(results) if as_json else results_text(results))
