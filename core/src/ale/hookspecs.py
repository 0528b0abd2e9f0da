"""The hooks of `ale`. Each says when it is called, how often, and what it may not do.

Component hooks all have one shape: they take nothing and return `Component`s, are asked once per
process, and must not import an SDK: that belongs in ``Component.build``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

from ale.plugin import PROJECT

if TYPE_CHECKING:
    # Only named in annotations: building the records would double the time of `ale --help`.
    from collections.abc import Sequence

    import click

    from ale.plugin import Component, ConfigFormat
    from ale.protocols import (
        LLM,
        Agent,
        Chunker,
        CreditScheme,
        Criterion,
        SandboxBackend,
        StartScheme,
        TaskSource,
        Trainer,
    )
    from ale.types import (
        EpisodeFinished,
        EpisodeStage,
        EvaluationFinished,
        RunFinished,
        RunStarted,
        StepFinished,
    )

hookspec = pluggy.HookspecMarker(PROJECT)


@hookspec
def ale_task_sources() -> Sequence[Component[Any, TaskSource]]:  # type: ignore[empty-body]
    """Register places to read tasks from, chosen by ``tasks: {type: ...}``."""


@hookspec
def ale_sandboxes() -> Sequence[Component[Any, SandboxBackend]]:  # type: ignore[empty-body]
    """Register places to run commands, chosen by ``sandbox: {type: ...}``."""


@hookspec
def ale_llms() -> Sequence[Component[Any, LLM]]:  # type: ignore[empty-body]
    """Register language models, chosen by ``llm: {type: ...}``."""


@hookspec
def ale_agents() -> Sequence[Component[Any, Agent]]:  # type: ignore[empty-body]
    """Register agents, chosen by ``agent: {type: ...}``."""


@hookspec
def ale_criteria() -> Sequence[Component[Any, Criterion]]:  # type: ignore[empty-body]
    """Register grading criteria, chosen by each entry of a task's ``success_criteria``."""


@hookspec
def ale_chunkers() -> Sequence[Component[Any, Chunker]]:  # type: ignore[empty-body]
    """Register ways to cut a trajectory, chosen by ``chunker: {type: ...}``."""


@hookspec
def ale_credit_schemes() -> Sequence[Component[Any, CreditScheme]]:  # type: ignore[empty-body]
    """Register credit schemes, chosen by ``credit: {type: ...}``."""


@hookspec
def ale_starts() -> Sequence[Component[Any, StartScheme]]:  # type: ignore[empty-body]
    """Register ways to choose where rollouts begin, chosen by ``starts: {type: ...}``."""


@hookspec
def ale_trainers() -> Sequence[Component[Any, Trainer]]:  # type: ignore[empty-body]
    """Register trainers, chosen by ``trainer: {type: ...}``."""


@hookspec
def ale_observers() -> Sequence[Component[Any, object]]:  # type: ignore[empty-body]
    """Register observers, chosen by ``observers: [{type: ...}, ...]``.

    The product is an object with methods marked `hookimpl` that answer any of the event hooks
    below. It lives as long as the run.
    """


@hookspec
def ale_config_formats() -> Sequence[ConfigFormat]:  # type: ignore[empty-body]
    """Register to read config files of another format, told by their keys or by ``--format NAME``.

    Asked whenever a config is read. What a format gives is laid over and checked like any config,
    so ``ale check``, ``ale run`` and ``--set`` work on such a file as on one of the project's own.
    """


@hookspec
def ale_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Add commands to ``ale``. Asked once per start of the command line, for its help too.

    Must be quick: no SDK is imported here, but inside the command's body. In `ale --help` they
    stand in the order in which a package gives them. A name that `ale` itself or another package
    has taken is an error that names both. A command finds what is installed, a
    `ale.runs.Registry`, as its context's ``obj``.
    """


@hookspec
def ale_run_started(event: RunStarted) -> None:
    """Called once, before the first sandbox is opened.

    This and the following event hooks are called from the event loop, one after the other: they
    must return at once and must not start to wait. One that raises is reported once, dropped for
    the rest of the run, and harms nothing.
    """


@hookspec
def ale_episode_stage(event: EpisodeStage) -> None:
    """Called whenever an episode enters a stage: some five times an episode."""


@hookspec
def ale_episode_finished(event: EpisodeFinished) -> None:
    """Called once per episode, graded or broken, after it has been written to disk."""


@hookspec
def ale_step_finished(event: StepFinished) -> None:
    """Called once per training step, after the trainer has reported. Never without a trainer."""


@hookspec
def ale_evaluation_finished(event: EvaluationFinished) -> None:
    """Called after each round of evaluation. Never without a section ``evaluation``."""


@hookspec
def ale_run_finished(event: RunFinished) -> None:
    """Called once, at the end of the run, however it ended, short of SIGKILL."""
