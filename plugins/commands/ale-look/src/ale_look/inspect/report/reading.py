"""One episode as JSON for the page's script: split at chunk boundaries, bounded in size."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ale.text import visible
from ale.types import Chunk, CreditedEpisode, Episode, Failure, Span, Turn
from ale_figures.forks import Fork
from ale_look.inspect.calls import Call, calls, turn_chunks
from ale_look.inspect.fitting import has_whole_trace
from ale_look.inspect.report.forks import on_chunk

TEXT = 6000
"""Most characters of one text; a longer one loses its middle."""
TOKENS = 4000
"""Most tokens of a turn that are shown one by one; a longer turn is shown as text."""

LogRatios = Sequence[Sequence[float | None] | None]
"""By turn, per generated token: log pi_theta - log mu_old, None where none is known."""


def readable(
    episode: Episode,
    credited: CreditedEpisode | None,
    log_ratios: LogRatios | None = None,
    forks: Sequence[Fork] = (),
    most: int = TEXT,
) -> dict[str, Any]:
    """An episode as JSON.

    Args:
        credited: its chunks and their credit, as of `fitted`; if None, each turn is a chunk.
        log_ratios: of the trainer, if it stores them.
        forks: of the turns that the episode replayed.
        most: characters of one text; a longer one loses its middle.
    """
    turns = episode.trajectory.turns
    chunks = turn_chunks(turns) if credited is None else credited.chunks
    stop = episode.trajectory.stop
    return {
        "id": episode.id,
        "reward": episode.reward,
        "start": episode.start,
        "stop": stop.reason,
        "detail": clipped(stop.detail, most),
        "scores": [
            [score.criterion, score.passed, score.value, score.weight, clipped(score.detail, most)]
            for score in episode.scores
        ],
        "failures": [
            _failure(failure, most)
            for failure in (*episode.earlier_failures, episode.failure)
            if failure is not None
        ],
        "seconds": {stage: round(seconds, 3) for stage, seconds in episode.seconds.items()},
        "sandbox": episode.sandbox,
        "started": episode.started_at,
        "chunker": None if credited is None else credited.chunker,
        "scheme": None if credited is None else credited.credit.scheme,
        "skipped": None if credited is None else credited.credit.skipped,
        "chunks": [
            _chunk(chunk, credited, turns, log_ratios) | _forks_of(chunk, forks) for chunk in chunks
        ],
        "turns": [
            _turn(turn, _spans(chunks, number), _of(log_ratios, number), most)
            for number, turn in enumerate(turns)
        ],
    }


def clipped(text: str, most: int = TEXT) -> str:
    """Beginning and end of a text, with control characters made visible."""
    if len(text) > most:
        half = most // 2
        text = (
            f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
        )
    return visible(text)


def _failure(failure: Failure, most: int) -> list[str]:
    texts = (clipped(text, most) for text in (failure.message, failure.traceback))
    return [failure.stage, failure.kind, *texts]


def _of(log_ratios: LogRatios | None, turn: int) -> Sequence[float | None] | None:
    return log_ratios[turn] if log_ratios is not None and turn < len(log_ratios) else None


def _spans(chunks: Sequence[Chunk], turn: int) -> list[tuple[int, Span]]:
    return [(chunk.index, span) for chunk in chunks for span in chunk.spans if span.turn == turn]


def _chunk(
    chunk: Chunk,
    credited: CreditedEpisode | None,
    turns: Sequence[Turn],
    log_ratios: LogRatios | None,
) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": chunk.kind}
    if credited is not None:
        credit, k = credited.credit, chunk.index
        numbers = (credit.rewards[k], credit.returns[k], credit.weights[k])
        made |= dict(zip("rgw", (round(number, 6) for number in numbers), strict=True))
    logps = list(_over(chunk, [_logprobs(turn) for turn in turns]))
    if logps:
        made |= {"n": len(logps), "p": round(sum(logps) / len(logps), 4)}
    ratios = list(_over(chunk, log_ratios or ()))
    if ratios:
        # The geometric mean over its tokens: the ratio of a chunk (arXiv:2512.24873, Eq. 8).
        made["rho"] = _exp(sum(ratios) / len(ratios))
    return made


def _forks_of(chunk: Chunk, forks: Sequence[Fork]) -> dict[str, Any]:
    """Success before and after the turns of a chunk."""
    turns = {span.turn for span in chunk.spans}
    found = [on_chunk(fork) for fork in forks if turns.intersection(fork.turns)]
    return {"forks": found} if found else {}


def _exp(value: float) -> float:
    return round(math.exp(max(-50.0, min(50.0, value))), 4)


def _logprobs(turn: Turn) -> Sequence[float] | None:
    tokens = turn.completion.tokens
    return None if tokens is None else tokens.logprobs


def _over(chunk: Chunk, by_turn: Sequence[Sequence[float | None] | None]) -> Iterator[float]:
    """The values of a chunk's tokens, where known."""
    for span in chunk.spans:
        numbers = by_turn[span.turn] if span.turn < len(by_turn) else None
        if span.tokens is not None and numbers is not None:
            yield from (each for each in numbers[slice(*span.tokens)] if each is not None)


def _turn(
    turn: Turn,
    spans: Sequence[tuple[int, Span]],
    log_ratios: Sequence[float | None] | None,
    most: int,
) -> dict[str, Any]:
    completion = turn.completion
    tokens = completion.tokens
    made: dict[str, Any] = {
        "prompt": [[message.role, clipped(message.content, most)] for message in turn.prompt],
        "parts": [_part(turn, number, span, log_ratios, most) for number, span in spans],
    }
    facts = {
        "fresh": turn.fresh_context,
        "replaced": [
            [message.role, clipped(message.content, most)]
            for change in turn.replaced
            for message in change.messages
        ],
        "dropped": sum(change.stop - change.start for change in turn.replaced),
        "s": round(turn.duration_s, 3),
        "forced": completion.forced,
        "reasoning": clipped(completion.message.reasoning or "", most),
        "tokens": 0 if tokens is None else len(tokens.output_ids),
        "versions": [] if tokens is None else sorted(set(tokens.policy_versions)),
        "finish": ""
        if completion.finish_reason in ("stop", "tool_calls")
        else completion.finish_reason,
    }
    return made | {name: value for name, value in facts.items() if value}


def _part(
    turn: Turn,
    number: int,
    span: Span,
    log_ratios: Sequence[float | None] | None,
    most: int,
) -> dict[str, Any]:
    """The part of one turn that belongs to one chunk."""
    made: dict[str, Any] = {"k": number}
    content = turn.completion.message.content[slice(*span.text)]
    pieces = _tokens(turn, span, log_ratios)
    if pieces is not None:
        made |= pieces
    elif content:
        made["text"] = clipped(content, most)
    if found := [_call(call, most) for call in calls(turn, span)]:
        made["calls"] = found
    return made


def _tokens(
    turn: Turn, span: Span, log_ratios: Sequence[float | None] | None
) -> Mapping[str, Any] | None:
    """A span's text by token with log-probabilities, if the token offsets are recorded."""
    trace = turn.completion.tokens
    if trace is None or trace.text_offsets is None or len(trace.output_ids) > TOKENS:
        return None
    if not has_whole_trace(turn):
        return None
    start, stop = span.text
    inside = [i for i, at in enumerate(trace.text_offsets) if start <= at < stop]
    if not inside:
        return None
    content = turn.completion.message.content
    starts = [start, *(trace.text_offsets[i] for i in inside[1:])]
    texts = [visible(content[a:b]) for a, b in zip(starts, [*starts[1:], stop], strict=True)]
    made: dict[str, Any] = {"tok": texts, "lp": [round(trace.logprobs[i], 2) for i in inside]}
    if len({*trace.policy_versions}) > 1:
        made["v"] = [trace.policy_versions[i] for i in inside]
    if log_ratios is not None and len(log_ratios) == len(trace.output_ids):
        known = [log_ratios[i] for i in inside]
        if any(each is not None for each in known):
            made["lr"] = [None if each is None else round(each, 3) for each in known]
    return made


def _call(call: Call, most: int) -> dict[str, Any]:
    made: dict[str, Any] = {"name": clipped(call.name)}
    if call.arguments is not None:
        made["args"] = clipped(call.arguments, most)
    observation = call.observation
    if observation is not None:
        made |= {"seen": clipped(observation.content, most), "s": round(observation.duration_s, 3)}
        if observation.error is not None:
            made["error"] = clipped(observation.error, most)
    return made
