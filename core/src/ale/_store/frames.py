"""Stored runs as tables of Arrow."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from ale._store.directory import RunReader
from ale._store.index import SUCCESS
from ale.errors import InputError, NotUsableError
from ale.strict import nearest
from ale.types import Episode

Row = dict[str, Any]
_BATCH = 10_000
"""Rows that are Python objects at a time."""
_OF_EPISODE = {"episode": "string", "task_id": "string", "step": "int64"}
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "episodes": {
        **{"id": "string", "task_id": "string", "split": "string", "step": "int64"},
        **{"start": "string", "rollout": "int64", "temperature": "float64"},
        **{"reward": "float64", "success": "bool_", "contested": "bool_", "timed_out": "bool_"},
        **{"failure_stage": "string", "failure_kind": "string", "failure": "string"},
        **{"stop": "string", "turns": "int64"},
        **{"prompt_tokens": "int64", "completion_tokens": "int64"},
        **{"seconds": "float64", "sandbox": "string", "started_at": "string"},
    },
    "turns": {
        **_OF_EPISODE,
        **{"turn": "int64", "content": "string", "reasoning": "string"},
        **{"calls": "strings", "observations": "strings", "errors": "int64"},
        **{"finish_reason": "string", "model": "string"},
        **{"forced": "bool_", "fresh_context": "bool_"},
        **{"prompt_tokens": "int64", "completion_tokens": "int64", "seconds": "float64"},
    },
    "chunks": {
        **_OF_EPISODE,
        **{"chunk": "int64", "kind": "string", "turns": "numbers"},
        **{"chunker": "string", "scheme": "string"},
        **{"reward": "float64", "return": "float64", "weight": "float64", "skipped": "string"},
    },
    "tokens": {
        **_OF_EPISODE,
        **{"turn": "int64", "position": "int64", "token": "int64", "logprob": "float64"},
        **{"policy_version": "int64", "forced": "bool_"},
    },
    "notes": {
        **_OF_EPISODE,
        **{"turn": "int64", "label": "string", "comment": "string", "verdict": "string"},
        **{"by": "string", "at": "float64", "id": "string"},
    },
    "steps": {"step": "int64", "at": "float64"},
}
"""The columns of each table and their types; those of steps are followed by the metrics."""


def frame(
    runs: "str | os.PathLike[str] | RunReader | Iterable[str | os.PathLike[str] | RunReader]",
    of: str = "episodes",
) -> Any:
    """Stored runs as one table of Arrow, for pandas, Polars, DuckDB and others.

    Each row begins with the run's id, `run`. Rewards are those that the run has stored: newer ones
    of `ale regrade` are in `RunReader.regraded`.

    Args:
        runs: one or several, as paths or readers.
        of: what a row is: ``episodes``, ``turns``, ``chunks`` with their credit, ``tokens`` that
            were sampled, ``notes`` of people on the episodes, or ``steps`` with their metrics.

    Returns:
        A ``pyarrow.Table``.

    Raises:
        InputError: there is no such table, or a run can't be read.
        NotUsableError: pyarrow is not installed.
    """
    if of not in _COLUMNS:
        expected = f"one of {', '.join(_COLUMNS)}"
        message, hint = f"there is no table of '{of}'", nearest(of, _COLUMNS)
        raise InputError.of(message, expected=expected, hint=hint)
    try:
        arrow: Any = import_module("pyarrow")
    except ImportError as error:
        raise NotUsableError(
            "tables need pyarrow, which is not installed: pip install 'pyarrow>=17'"
        ) from error
    several = [runs] if isinstance(runs, str | os.PathLike | RunReader) else runs
    readers = [each if isinstance(each, RunReader) else RunReader(Path(each)) for each in several]
    columns = {"run": "string", **_COLUMNS[of]}
    if of == "steps":
        metrics = {name for run in readers for row in _steps(run) for name in row}
        columns |= dict.fromkeys(sorted(metrics - columns.keys()), "float64")
    types = {
        "strings": arrow.list_(arrow.string()),
        "numbers": arrow.list_(arrow.int64()),
    }
    schema = arrow.schema(
        (name, types.get(kind) or getattr(arrow, kind)()) for name, kind in columns.items()
    )
    rows = ({"run": run.manifest["run_id"], **row} for run in readers for row in _ROWS[of](run))
    batches = []
    while batch := [*islice(rows, _BATCH)]:
        batches.append(arrow.RecordBatch.from_pylist(batch, schema=schema))
    return arrow.Table.from_batches(batches, schema=schema)


def _episodes(run: RunReader) -> Iterator[Row]:
    for each in run.episodes:
        usages = [turn.completion.usage for turn in each.turns]
        failure = each.failure
        yield {
            "id": each.id,
            "task_id": each.task_id,
            "split": each.split,
            "step": each.step,
            "start": each.start,
            "rollout": each.rollout,
            "temperature": each.temperature,
            "reward": each.reward,
            "success": None if each.reward is None else each.reward == SUCCESS,
            "contested": each.contested,
            "timed_out": each.timed_out,
            "failure_stage": failure and failure.stage,
            "failure_kind": failure and failure.kind,
            "failure": failure and failure.message,
            "stop": each.trajectory.stop.reason,
            "turns": len(each.turns),
            "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
            "completion_tokens": sum(usage.completion_tokens for usage in usages),
            "seconds": math.fsum(each.seconds.values()),
            "sandbox": each.sandbox,
            "started_at": each.started_at,
        }


def _of(episode: Episode) -> Row:
    return {"episode": episode.id, "task_id": episode.task_id, "step": episode.step}


def _turns(run: RunReader) -> Iterator[Row]:
    for episode in run.episodes:
        for number, turn in enumerate(episode.turns):
            completion = turn.completion
            yield {
                **_of(episode),
                "turn": number,
                "content": completion.message.content,
                "reasoning": completion.message.reasoning,
                "calls": [call.name for call in completion.message.tool_calls],
                "observations": [each.content for each in turn.observations],
                "errors": sum(each.error is not None for each in turn.observations),
                "finish_reason": completion.finish_reason,
                "model": completion.model,
                "forced": completion.forced,
                "fresh_context": turn.fresh_context,
                "prompt_tokens": completion.usage.prompt_tokens,
                "completion_tokens": completion.usage.completion_tokens,
                "seconds": turn.duration_s,
            }


def _tokens(run: RunReader) -> Iterator[Row]:
    for episode in run.episodes:
        for number, turn in enumerate(episode.turns):
            if (trace := turn.completion.tokens) is None:
                continue
            sampled = zip(trace.output_ids, trace.logprobs, trace.policy_versions, strict=True)
            for position, (token, logprob, version) in enumerate(sampled):
                yield {
                    **_of(episode),
                    "turn": number,
                    "position": position,
                    "token": token,
                    "logprob": logprob,
                    "policy_version": version,
                    "forced": turn.completion.forced,
                }


def _chunks(run: RunReader) -> Iterator[Row]:
    for credited in run.credits():
        credit = credited.credit
        rows = zip(credited.chunks, credit.rewards, credit.returns, credit.weights, strict=True)
        for chunk, reward, gain, weight in rows:
            yield {
                "episode": credited.episode_id,
                "task_id": credited.task_id,
                "step": credited.step,
                "chunk": chunk.index,
                "kind": chunk.kind,
                "turns": sorted({span.turn for span in chunk.spans}),
                "chunker": credited.chunker,
                "scheme": credit.scheme,
                "reward": reward,
                "return": gain,
                "weight": weight,
                "skipped": credit.skipped,
            }


def _notes(run: RunReader) -> Iterator[Row]:
    notes = run.notes
    for episode in run.episodes if notes else ():
        for note in notes.of(episode):
            yield {
                **_of(episode),
                "turn": note.turn,
                "label": note.label,
                "comment": note.comment,
                "verdict": note.verdict,
                "by": note.by,
                "at": note.at,
                "id": note.id,
            }


def _steps(run: RunReader) -> Iterator[Row]:
    for event in run.events():
        if event["event"] == "step_finished":
            yield {**event["metrics"], "step": event["step"], "at": event["at"]}


_ROWS: Mapping[str, Callable[[RunReader], Iterator[Row]]] = {
    "episodes": _episodes,
    "turns": _turns,
    "chunks": _chunks,
    "tokens": _tokens,
    "notes": _notes,
    "steps": _steps,
}
