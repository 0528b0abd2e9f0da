"""The hooks of `ale`, with when and how often each is called.

Component hooks take no arguments and return `Component`s. They are called once per process and must
not import an SDK; that belongs in ``Component.build``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

from ale.plugin import PROJECT

if TYPE_CHECKING:
    # For annotations only: importing the records would double the time of `ale --help`.
    from collections.abc import Mapping, Sequence

    import click

    from ale.plugin import Component, ConfigFormat
    from ale.protocols import (
        LLM,
        Agent,
        Chunker,
        CreditScheme,
        Criterion,
        Executor,
        Launcher,
        Middleware,
        Objective,
        SandboxBackend,
        StartScheme,
        StepScorer,
        TaskSource,
        Trainer,
    )
    from ale.types import (
        EpisodeFinished,
        EpisodeStage,
        EvaluationFinished,
        RunFinished,
        RunStarted,
        RunSteered,
        StepFinished,
    )

hookspec = pluggy.HookspecMarker(PROJECT)


@hookspec
def ale_task_sources() -> Sequence[Component[Any, TaskSource]]:  # type: ignore[empty-body]
    """Register task sources, selected by ``tasks: {type: ...}``."""


@hookspec
def ale_sandboxes() -> Sequence[Component[Any, SandboxBackend]]:  # type: ignore[empty-body]
    """Register sandboxes, selected by ``sandbox: {type: ...}``."""


@hookspec
def ale_llms() -> Sequence[Component[Any, LLM]]:  # type: ignore[empty-body]
    """Register language models, selected by ``llm: {type: ...}``."""


@hookspec
def ale_agents() -> Sequence[Component[Any, Agent]]:  # type: ignore[empty-body]
    """Register agents, selected by ``agent: {type: ...}``."""


@hookspec
def ale_criteria() -> Sequence[Component[Any, Criterion]]:  # type: ignore[empty-body]
    """Register grading criteria, selected by each entry of a task's ``success_criteria``."""


@hookspec
def ale_step_scorers() -> Sequence[Component[Any, StepScorer]]:  # type: ignore[empty-body]
    """Register scorers of the chunks of an episode, selected by ``scorers: [{type: ...}, ...]``."""


@hookspec
def ale_chunkers() -> Sequence[Component[Any, Chunker]]:  # type: ignore[empty-body]
    """Register chunkers, which split trajectories, selected by ``chunker: {type: ...}``."""


@hookspec
def ale_credit_schemes() -> Sequence[Component[Any, CreditScheme]]:  # type: ignore[empty-body]
    """Register credit schemes, selected by ``credit: {type: ...}``."""


@hookspec
def ale_starts() -> Sequence[Component[Any, StartScheme]]:  # type: ignore[empty-body]
    """Register start schemes for rollouts, selected by ``starts: {type: ...}``."""


@hookspec
def ale_trainers() -> Sequence[Component[Any, Trainer]]:  # type: ignore[empty-body]
    """Register trainers, selected by ``trainer: {type: ...}``."""


@hookspec
def ale_objectives() -> Sequence[Component[Any, Objective]]:  # type: ignore[empty-body]
    """Register objectives, the losses of a trainer, selected by ``trainer: {objective: ...}``.

    Any trainer selects one that has an option with ``doc(..., component="objective")``.
    """


@hookspec
def ale_executors() -> Sequence[Component[Any, Executor]]:  # type: ignore[empty-body]
    """Register executors, which run planned episodes, selected by ``executor: {type: ...}``."""


@hookspec
def ale_launchers() -> Sequence[Component[Any, Launcher]]:  # type: ignore[empty-body]
    """Register launchers, selected by ``launch: {type: ...}`` or ``ale launch --on``."""


@hookspec
def ale_middleware() -> Sequence[Component[Any, Middleware]]:  # type: ignore[empty-body]
    """Register middleware, which rewrites what a model is asked.

    Selected by ``middleware: [{type: ...}, ...]``, applied in that order, in a run and in a proxy.
    """


@hookspec
def ale_observers() -> Sequence[Component[Any, object]]:  # type: ignore[empty-body]
    """Register observers, selected by ``observers: [{type: ...}, ...]``.

    The product is an object with methods marked `hookimpl` for any of the event hooks below. It
    exists as long as the run.
    """


@hookspec
def ale_config_formats() -> Sequence[ConfigFormat]:  # type: ignore[empty-body]
    """Register formats of config files, detected from their keys or named by ``--format NAME``.

    Called whenever a config is read. The converted config is checked like any other, so ``ale
    check``, ``ale run`` and ``--set`` work with such a file.
    """


@hookspec
def ale_commands() -> (  # type: ignore[empty-body]
    Mapping[str, Sequence[click.Command]] | Sequence[click.Command]
):
    """Register commands of ``ale``. Called once per start of the command line, for its help too.

    The keys are sections of `ale --help`: Run, Look, Data and training, Models and machines,
    Extend, or one of your own; commands in a plain sequence are listed under Others. Must be fast:
    import an SDK inside the command's body only. Groups of the same name are joined, whichever
    packages they come from; any other name that `ale` or another package already uses is reported
    with both packages and ignored. A command finds the `ale.runs.Registry` as its context's
    ``obj``.
    """


@hookspec
def ale_run_started(event: RunStarted) -> None:
    """Called once, before the first sandbox is opened.

    This and the following event hooks are called from the event loop, one after the other, and
    must not block. One that raises is reported once and not called again in this run; the run
    continues.
    """


@hookspec
def ale_episode_stage(event: EpisodeStage) -> None:
    """Called whenever an episode enters a stage: about five times per episode."""


@hookspec
def ale_episode_finished(event: EpisodeFinished) -> None:
    """Called once per episode, graded or broken, after it has been written to disk."""


@hookspec
def ale_step_finished(event: StepFinished) -> None:
    """Called once per training step, after the trainer's report; only with a trainer."""


@hookspec
def ale_evaluation_finished(event: EvaluationFinished) -> None:
    """Called after each evaluation; only with a section ``evaluation``."""


@hookspec
def ale_run_steered(event: RunSteered) -> None:
    """Called after each action of `ale steer`, or of the page of `ale view`, on the run."""


@hookspec
def ale_run_finished(event: RunFinished) -> None:
    """Called once, at the end of the run, also after an error or a signal (except SIGKILL)."""
