"""``ale art``: flags in, ``ale run`` out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from ale.commands import Group, Starting, overrides_option
from ale.errors import InputError, NotUsableError, Problem

if TYPE_CHECKING:
    from ale_bench.art.config import Flags


@click.group("art", cls=Group)
def art() -> None:
    """Train a model to write Python by reinforcement learning on MBPP: the reward is tests passed.

    MBPP is a set of short programming problems, each with tests.

    \b
    Example:
      ale art train --data mbpp.jsonl --in-process --model models/my-model
    """


@art.command("train", cls=Starting)
@click.option(
    "--model",
    default="Qwen/Qwen2.5-3B-Instruct",
    show_default=True,
    help="Name of the model, as its server lists it; with --in-process, its folder or name.",
)
@click.option(
    "--project", default="aviato-rl-demo", show_default=True, help="W&B project for the metrics."
)
@click.option(
    "--num-steps", type=click.IntRange(1), default=10, show_default=True, help="Training steps."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Problems per training step.",
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, min_open=True),
    default=2e-5,
    show_default=True,
    help="Learning rate of the trainer.",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Answers per problem; each follows the errors of the one before.",
)
@click.option(
    "--dataset-split",
    type=click.Choice(["train", "test", "validation"]),
    default="train",
    show_default=True,
    help="Split of MBPP.",
)
@click.option(
    "--dataset-limit",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Maximum number of problems to load; 0 for all.",
)
@click.option("--dry-run", is_flag=True, help="Rollouts without training and without W&B.")
@click.option(
    "--use-openai", is_flag=True, help="Ask OpenAI's API, with the key in OPENAI_API_KEY."
)
@click.option(
    "--in-process",
    is_flag=True,
    help="Sample and train the model in this process, with the packages of ale-bench[train].",
)
@click.option("--base-url", help="URL of the API, up to /v1.  [default: vLLM's on this machine]")
@click.option(
    "--rollouts",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Episodes per problem and step.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    help="File of MBPP, as published; without it, the library `datasets` loads MBPP.",
)
@click.option(
    "--shown-tests",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Tests of a problem that the model sees; all of them decide its reward.",
)
@click.option(
    "--sandbox",
    default="auto",
    show_default=True,
    help="Type of the sandbox that runs the code; auto is the best that is usable here.",
)
@click.option("--image", help="Image of the container, for a sandbox that has one.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder in which the run's folder is created.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the run."
)
@overrides_option
@click.option("--print-config", is_flag=True, help="Print the config for `ale run` and exit.")
@click.pass_context
def train(
    ctx: click.Context, /, overrides: tuple[str, ...], print_config: bool, **given: Any
) -> None:
    """Sample solutions of MBPP problems, run them in sandboxes, and train on the rewards.

    A signal (Ctrl-C, SIGTERM) finishes the running batch; a second one cancels it. Exit codes and
    stored files are those of `ale run`.

    \b
    Examples:
      ale art train --data mbpp.jsonl
      ale art train --data mbpp.jsonl --dry-run --use-openai --model gpt-5-mini
      ale art train --data mbpp.jsonl --in-process --model models/my-model --rollouts 8
    """
    # Here: `ale --help` does not need them.
    import tempfile

    import yaml

    from ale_bench.art.config import Flags, config_of, overrides_of
    from ale_bench.art.serving import takes_weights

    flags = Flags(**given)
    _check(flags)
    url = _server(flags)
    trainable = url is not None and takes_weights(url)
    if trainable:
        _check_trainer(f"training the model of {url}", "; --dry-run samples without training")
    config = config_of(flags, os.environ, trainable=trainable)
    text = yaml.safe_dump(config, sort_keys=False)
    if print_config:
        click.echo(text, nl=False)
        return
    _announce(flags, config_of(flags, {}, trainable=trainable)["llm"])
    with tempfile.TemporaryDirectory(prefix="ale-art-") as folder:
        path = Path(folder) / "art.yaml"
        path.write_text(text)
        every = (*overrides_of(config, _typed(ctx, given)), *overrides)
        arguments = [*(part for one in every for part in ("--set", one)), str(path)]
        try:
            _run(ctx, arguments)
        except InputError as error:
            keys = {one.partition("=")[0].strip() for one in overrides}
            raise InputError([_by_flag(each, path, keys) for each in error.problems]) from error


def _run(ctx: click.Context, arguments: list[str]) -> None:
    """`ale run`, whose errors are raised."""
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    command = root.command.get_command(root, "run")
    assert command is not None
    with command.make_context("run", arguments, parent=root) as made:
        command.invoke(made)


def _by_flag(problem: Problem, path: Path, overridden: Collection[str]) -> Problem:
    """The problem at the flag that decides the value, not in a file that is deleted."""
    from ale_bench.art.config import flag_of

    written = problem.file in (str(path), "--set")
    if not written or problem.path is None:
        return problem
    if any(f"{problem.path}.".startswith(f"{key}.") for key in overridden):
        return problem
    # A value that no flag decides is found by its path in the printed config.
    return evolve(problem, file=flag_of(problem.path), line=None)


def _typed(ctx: click.Context, given: Iterable[str]) -> list[str]:
    """The flags that the command line has, rather than their defaults."""
    source = click.core.ParameterSource.COMMANDLINE
    return [name for name in given if ctx.get_parameter_source(name) is source]


def _check(flags: Flags) -> None:
    if flags.in_process and (flags.use_openai or flags.base_url):
        raise click.UsageError("--in-process asks no server: leave out --use-openai and --base-url")
    if flags.in_process:
        _check_trainer("--in-process", "")


def _check_trainer(what: str, otherwise: str) -> None:
    if find_spec("ale_trainer_policy") is None:
        raise NotUsableError(
            f"{what} needs more packages: pip install -e '.[train]' in a clone; "
            f"else pip install 'ale-bench[train]'{otherwise}"
        )


def _server(flags: Flags) -> str | None:
    """The URL of the server that might be trained."""
    from ale_bench.art.config import VLLM

    if flags.in_process or flags.use_openai or flags.dry_run:
        return None
    return flags.base_url or VLLM


def _announce(flags: Flags, llm: Mapping[str, Any]) -> None:
    """Where the answers come from, before anything is checked."""
    click.echo("\n".join(["Loading MBPP problems...", *_source(flags, llm), ""]), err=True)


def _source(flags: Flags, llm: Mapping[str, Any]) -> Iterator[str]:
    match llm["type"]:
        case "policy":
            yield "Using the model in this process"
        case "openai":
            yield f"Using OpenAI at {llm['base_url']}" if "base_url" in llm else "Using OpenAI"
        case "servers":
            yield f"Using a server of `ale serve`, which is trained, at {llm['urls'][0]}"
        case _:
            yield f"Using vLLM at {llm['base_url']}"
            yield f"  Start vLLM with: vllm serve {flags.model}"
            if not flags.dry_run:
                yield f"  To train it, start instead: ale serve vllm-server:model={flags.model}"
    if not flags.dry_run and find_spec("wandb") is None:
        yield "W&B is not installed, so nothing is logged there: pip install wandb"
