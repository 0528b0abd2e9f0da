"""An episode as text: turns, calls and observations, chunk by chunk with the credit."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ale.runs import located
from ale.text import counted, number, shorten, shorten_middle, size, visible
from ale.types import (
    Chunk,
    CreditedEpisode,
    Episode,
    Note,
    ScoredEpisode,
    Span,
    StepScore,
    Turn,
)
from ale_look.inspect.calls import Call, calls, turn_chunks
from ale_look.inspect.fitting import fitted

_SHORT_LINES = 12
_WIDTH = 100
_ROWS = 1000
_OUTCOMES = ("passed", "refused", "unreached")


def transcript(
    episode: Episode,
    credited: CreditedEpisode | None,
    *,
    full: bool,
    regraded: str = "",
    scored: Sequence[ScoredEpisode] = (),
    notes: Sequence[Note] = (),
) -> str:
    """The whole episode.

    Args:
        credited: its chunks and their credit, or None where the run has not credited it.
        full: show prompts and outputs whole, and tracebacks.
        regraded: what is to be said of newer scores.
        scored: the stored scores of its chunks.
        notes: what people say of it.
    """
    lines = [*_head(episode, full), *([f"  regraded  {regraded}"] if regraded else [])]
    lines += _notes(notes, None, full)
    credited, scored, problems = fitted(episode, credited, scored)
    lines += [f"  {each}" for each in problems]
    turns = episode.trajectory.turns
    chunks = turn_chunks(turns) if credited is None else credited.chunks
    if credited is None:
        lines.append("not credited: one chunk per turn")
    scores, shown = located(scored, chunks), -1
    for chunk in chunks:
        lines += ["", _chunk_line(chunk, credited)]
        lines += [_score_line(name, scores[name][chunk.index], full) for name in scores]
        for span in chunk.spans:
            if span.turn != shown:
                shown = span.turn
                lines += _turn_head(turns[shown], shown, full)
                lines += _notes(notes, shown, full)
            lines += _span(turns[span.turn], span, full)
    return "\n".join(lines)


def _head(episode: Episode, full: bool) -> Iterator[str]:
    stop = episode.trajectory.stop
    got = "no reward (broken)" if episode.reward is None else f"reward {number(episode.reward)}"
    ended = stop.reason + (f" ({shorten(stop.detail, 60)})" if stop.detail else "")
    yield f"{episode.id}: {got}; agent ended: {ended}"
    yield from _restored(episode)
    for score in episode.scores:
        mark = "passed" if score.passed else "failed"
        value = f"{number(score.value, 2)} x {score.weight:g}"
        detail = "" if full else shorten_middle(score.detail, 4 * _WIDTH)
        yield f"  {mark}  {score.criterion}  {value}  {detail}".rstrip()
        if full:
            yield from _block(score.detail, "    ", full)
    for failure in (*episode.earlier_failures, *([episode.failure] if episode.failure else [])):
        yield f"  broke in {failure.stage}: {failure.kind}: {visible(failure.message)}"
        if full:
            yield from (f"    {visible(line)}" for line in failure.traceback.splitlines())
    yield from egress_lines(episode, _ROWS if full else _SHORT_LINES)
    spent = "  ".join(f"{stage} {seconds:.3f}" for stage, seconds in episode.seconds.items())
    yield f"  seconds  {spent}"


def _restored(episode: Episode) -> Iterator[str]:
    """Whether the start was restored by replay or by fork."""
    how, why = episode.metadata.get("restored"), episode.metadata.get("not_forked")
    if how is not None:
        reason = f", not forked: {shorten(str(why), _WIDTH)}" if why else ""
        yield f"  start {episode.start} by {how}{reason}"


def egress_lines(episode: Episode, most: int) -> Iterator[str]:
    """Lines on what left the sandbox: names and addresses, allowed or refused, and bytes.

    Args:
        most: number of rows.
    """
    told = egress_of(episode)
    yield f"  egress    {told['said']}"
    for row in told["rows"][:most]:
        where = f"{visible(row['host']) or '(no name)'}:{row['port']}"
        at = f" at {row['address']}" if row["address"] else ""
        passed = f"{size(row['sent'])} sent, {size(row['received'])} received"
        what = passed if row["outcome"] == "passed" else visible(row["why"])
        yield f"    {row['outcome']:<9} {where}{at}  {row['connections']} x  {what}"
    if len(told["rows"]) > most:
        yield f"    {len(told['rows']) - most} further rows: --full"


def egress_of(episode: Episode) -> Mapping[str, Any]:
    """The rows that were stored of what left the sandbox, and what is ``said`` of them."""
    found = episode.egress
    if found is None:
        return {"rows": [], "said": f"not recorded by {episode.sandbox or 'the sandbox'}"}
    rows, unrecorded = found["rows"], found["unrecorded"]
    kinds = Counter(row["outcome"] for row in rows)
    counts = [f"{counted(kinds[kind], 'host')} {kind}" for kind in _OUTCOMES if kinds[kind]]
    said = ", ".join(counts) or ("" if unrecorded else "none: nothing left the sandbox")
    lacks = f"not recorded: {unrecorded}" if unrecorded else ""
    return {"rows": rows, "said": "; ".join(filter(None, (said, lacks)))}


def _chunk_line(chunk: Chunk, credited: CreditedEpisode | None) -> str:
    line = f"── chunk {chunk.index}  {chunk.kind}"
    if credited is not None:
        k, credit = chunk.index, credited.credit
        line += (
            f"  reward {number(credit.rewards[k], sign=True)}"
            f"  return {number(credit.returns[k], sign=True)}"
            f"  {credit.scheme} weight {number(credit.weights[k], sign=True)}"
        )
    return line + " " + "─" * max(0, _WIDTH - len(line) - 1)


def _score_line(scorer: str, score: StepScore, full: bool) -> str:
    value = "abstains" if score.value is None else number(score.value, 2)
    why = visible(" ".join((score.abstained or score.text).split()))
    return f"  score  {scorer}  {value}  {why if full else shorten(why, _WIDTH)}".rstrip()


def _notes(notes: Sequence[Note], turn: int | None, full: bool) -> Iterator[str]:
    """The notes on a turn, or with None on the whole episode."""
    for note in notes:
        if note.turn == turn:
            marks = ", ".join(filter(None, (note.verdict, note.label)))
            said = ": ".join(filter(None, (marks, " ".join(note.comment.split()))))
            by = f" ({visible(note.by)})" if note.by else ""
            yield f"  note  {visible(said) if full else shorten_middle(said, 4 * _WIDTH)}{by}"


def _turn_head(turn: Turn, number: int, full: bool) -> Iterator[str]:
    for change in turn.replaced:
        yield f"(earlier messages {change.start} to {change.stop}, without the last, are now:)"
        for message in change.messages:
            yield f"[{message.role}]"
            yield from _block(message.content, "  ", full)
    for message in turn.prompt:
        yield f"[{message.role}]"
        yield from _block(message.content, "  ", full)
    tokens = turn.completion.tokens
    count = "" if tokens is None else f"  {len(tokens.output_ids)} tokens"
    yield f"[assistant]  turn {number}{count}"


def _span(turn: Turn, span: Span, full: bool) -> Iterator[str]:
    text = turn.completion.message.content[slice(*span.text)]
    if text.strip():
        yield from _block(text, "  ", full)
    for call in calls(turn, span):
        yield from _call(call, full)


def _call(call: Call, full: bool) -> Iterator[str]:
    observation = call.observation
    arguments = "(read from the text)" if call.arguments is None else call.arguments
    yield f"  > {visible(call.name)} {visible(arguments) if full else shorten(arguments, _WIDTH)}"
    if observation is None:
        yield "  | (no observation)"
        return
    yield from _block(observation.content, "  | ", full)
    if observation.error is not None:
        yield f"  ! {shorten(observation.error, _WIDTH)}"


def _block(text: str, prefix: str, full: bool) -> Iterator[str]:
    lines = text.splitlines()
    shown = lines if full or len(lines) <= _SHORT_LINES else lines[: _SHORT_LINES - 1]
    for line in map(visible, shown):
        yield prefix + (line if full or len(line) <= _WIDTH else line[: _WIDTH - 1] + "…")
    if len(shown) < len(lines):
        yield f"{prefix}({len(lines) - len(shown)} more lines; --full shows them)"
