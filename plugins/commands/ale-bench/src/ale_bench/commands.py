"""The command line of `ale bench`; the implementation is imported when it runs.

`ale --help` imports this module, so it imports only click and `ale.commands`.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ale.commands import COMPONENT, PATH, RUN, Group, Starting, overrides_option

if TYPE_CHECKING:
    from ale.runs import Registry

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Bench(Group):
    """Says how to run a benchmark whose name is typed in place of a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does."""
        from ale.errors import nearest
        from ale_bench.offered import offered

        if args and args[0] not in self.commands and not args[0].startswith("-"):
            names = {each.benchmark.name for each in offered(ctx.obj)}
            hint = nearest(args[0], self.commands)
            if args[0] in names or (hint is None and nearest(args[0], names)):
                hint = "to run a benchmark: ale bench run NAME"
            ctx.fail(f"no such command '{args[0]}'" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


@click.group("bench", cls=_Bench)
def bench() -> None:
    """Run a benchmark against a model, show its results, and compare two runs.

    \b
    Examples:
      ale bench list
      ale bench run humaneval --model gpt-5-mini --api-key-env OPENAI_API_KEY
      ale bench compare runs/A runs/B
    """


@bench.command("list")
@_json_option
@click.pass_obj
def list_(registry: "Registry", as_json: bool) -> None:
    """List the installed benchmarks, and what each needs.

    Any installed package with a task source can add some.

    \b
    Example:
      ale bench list
    """
    from ale_bench.offered import offered
    from ale_bench.tables import benchmarks_json, benchmarks_text

    found = offered(registry)
    click.echo(benchmarks_json(found) if as_json else benchmarks_text(found))


@bench.command("run", cls=Starting)
@click.argument("benchmark")
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
    "-k", type=click.IntRange(1), default=1, show_default=True, help="Samples per problem."
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
@_json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    benchmark: str,
    concurrency: int | None,
    no_checks: bool,
    out: Path | None,
    overrides: tuple[str, ...],
    print_config: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Let a model answer the problems of BENCHMARK, grade the answers, and show pass@k.

    BENCHMARK is a name of `ale bench list`. The run is stored like any other of `ale run`, with the
    same exit codes. After a Ctrl-C, a kill or an outage, the same command continues it: it samples
    what is missing and what broke. With --out, also at another --base-url.

    \b
    Examples:
      ale bench run humaneval --llm vllm --model Qwen/Qwen2.5-Coder-7B-Instruct
      ale bench run gsm8k --data grade-school-math/data --config my.yaml -k 8 --limit 200
      ale bench run mbpp --sample --llm scripted:script=answers.yaml
    """
    from ale.runs import apply_environment, apply_overrides, environment_notes, written_config
    from ale_bench import running
    from ale_bench.config import Flags, config_tree
    from ale_bench.offered import find

    flags = Flags(out=out, **given)
    if flags.config is not None and flags.llm is not None:
        raise click.UsageError("give either --llm or --config FILE")
    registry: Registry = ctx.obj
    chosen = find(registry, benchmark)
    tree = config_tree(flags, chosen, registry)
    tree = apply_overrides(apply_environment(tree, os.environ, _typed(ctx)), overrides)
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
    arguments = [] if concurrency is None else ["-n", str(concurrency)]
    arguments += ["--no-checks"] * no_checks
    code = running.run_in(folder, text, arguments, registry, quiet=as_json)
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


def _warn(config: dict[str, Any]) -> None:
    k = config["run"]["rollouts"]
    if k > 1 and config["llm"].get("temperature") == 0:
        click.echo(
            f"warning: at temperature 0 the {k} samples of a problem are nearly the same, so "
            f"pass@{k} says no more than pass@1",
            err=True,
        )


def _show(folder: Path, registry: "Registry", *, as_json: bool) -> None:
    from ale_bench.results import read_results
    from ale_bench.tables import results_json, results_text

    results = read_results(folder, registry)
    click.echo(results_json(results) if as_json else results_text(results))


@bench.command("show")
@click.argument("run", type=RUN)
@_json_option
@click.pass_obj
def show(registry: "Registry", run: Path, as_json: bool) -> None:
    """Show the results of RUN, finished or not, of `ale bench run` or `ale run`.

    RUN is a run directory, or the folder that `ale bench run` has made for one.

    \b
    Example:
      ale bench show runs/humaneval-small-1a2b3c4d
    """
    _show(run, registry, as_json=as_json)


@bench.command("compare")
@click.argument("a", type=RUN)
@click.argument("b", type=RUN)
@_json_option
@click.pass_obj
def compare(registry: "Registry", a: Path, b: Path, as_json: bool) -> None:
    """Compare the runs A and B on the same problems, problem by problem.

    The interval is that of the mean difference over problems (Student's t). A problem is solved
    if one of its samples passes.

    \b
    Example:
      ale bench compare runs/humaneval-small-1a2b3c4d runs/humaneval-large-5e6f7a8b
    """
    from ale_bench import comparing
    from ale_bench.results import read_results

    found = comparing.compare(read_results(a, registry), read_results(b, registry))
    text = comparing.comparison_json if as_json else comparing.comparison_text
    click.echo(text(found))
