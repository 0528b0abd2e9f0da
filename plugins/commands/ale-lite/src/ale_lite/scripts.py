"""The console scripts `iflow`, `tbp`, `roll` and `rock`: flags in, a command of `ale` out."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import click

from ale.commands import Group, ale
from ale.errors import NotUsableError, PluginError
from ale.plugin import Probe
from ale_lite.plugin import FORMAT

_SKIPS = "skips this check"

config_option = click.option(
    "--config",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Config of ALE-lite: llm, agent, sandbox.",
)


_deterministic = click.option(
    "--deterministic",
    is_flag=True,
    help="Take clock and ids from the seed, so that the same answers give the same files.",
)
_no_checks = click.option(
    "--no-checks",
    is_flag=True,
    help="Don't check model and sandbox first, and don't stop when the first episodes all break.",
)
_RUN_NAMES = {
    f"run.preflight: false {_SKIPS}, as does ale run --no-checks": f"--no-checks {_SKIPS}"
}
"""Texts of `ale run` in errors, and what the two programs say instead."""


def _run(
    config: Path,
    names: Mapping[str, str],
    *settings: str,
    deterministic: bool,
    no_checks: bool,
) -> None:
    flags = [part for setting in settings for part in ("--set", setting)]
    flags += ["--deterministic"] * deterministic + ["--no-checks"] * no_checks
    ale(["run", "--format", FORMAT, *flags, "--", str(config)], {**_RUN_NAMES, **names})


def _setting(key: str, path: Path) -> str:
    """A path for ``--set``, which reads the value as YAML."""
    return key + "='" + str(path).replace("'", "''") + "'"


@click.group(cls=Group)
@click.version_option(package_name="ale-lite")
def iflow() -> None:
    """Let a model work on one task in a sandbox, by tool calls.

    \b
    Example:
      iflow run --task tasks/tbp_examples/basics_ls.yaml --config configs/local_lmstudio.yaml
    """


@iflow.command("run")
@click.option(
    "--task",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A task file.",
)
@config_option
@_deterministic
@_no_checks
def iflow_run(task: Path, config: Path, **flags: bool) -> None:
    """Run the model of CONFIG on one task; the run is stored in runs/.

    \b
    Example:
      iflow run --task tasks/tbp_examples/basics_ls.yaml --config configs/local_lmstudio.yaml
    """
    _run(
        config,
        {"--set: tasks.path": "--task"},
        "tasks.type=tbp",
        _setting("tasks.path", task),
        **flags,
    )


@click.group(cls=Group)
@click.version_option(package_name="ale-lite")
def tbp() -> None:
    """Run a model on every task of a folder, and store the results.

    \b
    Example:
      tbp run --tasks tasks/tbp_examples --config configs/local_lmstudio.yaml --out runs/
    """


@tbp.command("run")
@click.option(
    "--tasks",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A folder with task files, searched recursively.",
)
@config_option
@click.option(
    "--out",
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder in which the run's folder is created.",
)
@_deterministic
@_no_checks
def tbp_run(tasks: Path, config: Path, out: Path, **flags: bool) -> None:
    """Run the model of CONFIG on every task of a folder, one after the other.

    \b
    Example:
      tbp run --tasks tasks/tbp_examples --config configs/local_lmstudio.yaml --out runs/
    """
    settings = ("tasks.type=tbp", _setting("tasks.path", tasks), _setting("run.directory", out))
    _run(
        config,
        {"--set: tasks.path": "--tasks", "--set: run.directory": "--out"},
        *settings,
        **flags,
    )


_in = click.option(
    "--in", "source", required=True, metavar="FILE", type=click.Path(), help="Rows to read."
)
_out = click.option(
    "--out", required=True, metavar="FILE", type=click.Path(), help="Rows to write."
)

ROLL_NAMES = {
    "ale data collect RUN": "roll collect --runs RUN",
    "ale data collect": "roll collect",
    "ale data score": "roll ipa-score",
    "ale data dpo": "roll make-dpo",
    "ale train dpo": "roll train-dpo",
}
"""Commands of `ale` by the names that they have here, for the hints of errors."""


def _roll(arguments: list[str]) -> None:
    ale(arguments, ROLL_NAMES)


@click.group(cls=Group)
@click.version_option(package_name="ale-lite")
def roll() -> None:
    """Turn stored runs into scored chunks, preference pairs and a trained adapter, in four steps.

    \b
    Examples:
      roll collect --runs runs/ --out datasets/raw.jsonl
      roll ipa-score --in datasets/raw.jsonl --out datasets/ipa_scored.jsonl
      roll make-dpo --in datasets/ipa_scored.jsonl --out datasets/dpo.jsonl
      roll train-dpo --config dpo.yaml
    """


@roll.command("collect")
@click.option(
    "--runs", required=True, metavar="DIR", type=click.Path(), help="A folder with runs in it."
)
@_out
def roll_collect(runs: str, out: str) -> None:
    """Collect the episodes of stored runs in one file.

    \b
    Example:
      roll collect --runs runs/ --out datasets/raw.jsonl
    """
    _roll(["data", "collect", "--out", out, "--", runs])


@roll.command("ipa-score")
@_in
@_out
def roll_ipa_score(source: str, out: str) -> None:
    """Cut episodes into chunks and score each of them, with `ipa-lite`: an approximation.

    \b
    Example:
      roll ipa-score --in datasets/raw.jsonl --out datasets/ipa_scored.jsonl
    """
    parts = ("--chunker", "ale-lite", "--scheme", "ipa-lite")
    _roll(["data", "score", "--in", source, "--out", out, *parts])


@roll.command("make-dpo")
@_in
@_out
def roll_make_dpo(source: str, out: str) -> None:
    """Pair the highest and the lowest rewarded chunk of each trajectory.

    The two chunks follow different contexts, so such a pair is not a preference between two answers
    to one prompt. `ale data dpo` makes pairs that are.

    \b
    Example:
      roll make-dpo --in datasets/ipa_scored.jsonl --out datasets/dpo.jsonl
    """
    pairing = ("--pairing", "same-trajectory")
    _roll(["data", "dpo", "--in", source, "--out", out, *pairing])


@roll.command("train-dpo")
@click.option(
    "--config",
    required=True,
    metavar="FILE",
    type=click.Path(),
    help="Config with model_name_or_path, dataset_path, output_dir, and options of the training.",
)
def roll_train_dpo(config: str) -> None:
    """Train a LoRA adapter on preference pairs, with TRL and PEFT.

    \b
    Example:
      roll train-dpo --config dpo.yaml
    """
    if find_spec("ale_trainer_trl") is None:
        raise NotUsableError(
            "training needs the package ale-trainer-trl: pip install 'ale-lite[train]', or "
            "pip install -e '.[train]' in a clone of ale"
        )
    _roll(["train", "dpo", "--", config])


@click.group(cls=Group)
@click.version_option(package_name="ale-lite")
def rock() -> None:
    """Show which sandboxes work on this machine.

    \b
    Example:
      rock doctor
    """


@rock.command("doctor")
def rock_doctor() -> None:
    """Show each sandbox, whether it works here and why not, and which one `backend: auto` chooses.

    \b
    Example:
      rock doctor
    """
    from ale.runs import Registry
    from ale_lite.reader import chosen_backend

    registry = Registry.installed()

    def probe(kind: str, name: str) -> Probe | None:
        return registry.find(kind, name).probe()

    click.echo(f"sandbox.backend: auto is {_auto(chosen_backend('auto', probe), probe)}\n")
    ale(["doctor", "sandbox"])


def _auto(backend: str, probe: Callable[[str, str], Probe | None]) -> str:
    if backend == "docker":
        return "docker here: each task has a container of its own"
    try:
        docker = probe("sandbox", "docker")
    except PluginError as error:
        reason = str(error)
    else:
        reason = docker.reason if docker is not None else "it is not installed"
    return f"local here, since docker is not usable: {reason}\nlocal does not isolate anything"
