"""`ale dataset import` and `ale dataset export`: other formats in and out of rows."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from ale.errors import InputError, Problem
from ale.types import ToolSpec
from ale_rows.chat import record
from ale_rows.chattools import recorded_tools
from ale_rows.exchange import atif_in, atif_out, openai, sharegpt, trl
from ale_rows.exchange.conversations import Read, episode_of, task_of
from ale_rows.exchange.items import Item, LeftOutError, items
from ale_rows.files import read_rows
from ale_rows.imitation import conversations
from ale_rows.report import Report, by_reason
from ale_rows.rows import (
    ChatMessage,
    ChatTools,
    DpoRow,
    EpisodeRow,
    Origin,
    RlRow,
    ScoredRow,
    SftRow,
)
from ale_rows.stored import any_kind
from ale_rows.writing import encode, refuse_overwriting, replacing, writing_lines

Format = Literal["openai", "sharegpt", "trl", "atif"]
_LONGEST_NAME = 200
"""Characters; a file system takes 255 bytes."""

Preference = tuple[Read, Sequence[ChatMessage], Sequence[ChatMessage]]


@frozen(kw_only=True)
class _Format:
    """A format of conversations and preferences."""

    read: Callable[[Item], Read]
    read_preference: Callable[[Item], Preference]
    has_preference: str
    """The key that only a preference has."""
    write: Callable[[SftRow], dict[str, Any]]
    write_preference: Callable[[DpoRow], dict[str, Any]]


_FORMATS: Mapping[str, _Format] = {
    "openai": _Format(
        read=openai.read_chat,
        read_preference=openai.read_preference,
        has_preference="preferred_output",
        write=openai.write_chat,
        write_preference=openai.write_preference,
    ),
    "sharegpt": _Format(
        read=sharegpt.read_conversation,
        read_preference=sharegpt.read_preference,
        has_preference="chosen",
        write=sharegpt.write_conversation,
        write_preference=sharegpt.write_preference,
    ),
    "trl": _Format(
        read=trl.read_conversation,
        read_preference=trl.read_preference,
        has_preference="chosen",
        write=trl.write_conversation,
        write_preference=trl.write_preference,
    ),
}


def import_rows(
    paths: Sequence[Path], out: Path, *, form: Format, reward: float | None = None
) -> Report:
    """Import files of other programs as rows: episodes, or `DpoRow` of preferences.

    An item that can't become a row (images, no answer) is left out and counted.

    Args:
        paths: files of JSON lines (``.jsonl``) or of one array or object, which are read whole; of
            ATIF also folders, below which every ``trajectory*.json`` is taken.
        out: JSON Lines. All items are preferences if the first is.
        form: format of `paths`.
        reward: for every episode, since such files have none. Episodes with None can be imitated
            but not scored.

    Raises:
        InputError: a file does not exist or is not JSON.
        StoreError: `out` can't be written.
    """
    files = [file for path in paths for file in _files(path, form)]
    refuse_overwriting(out, *files)
    dropped: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    with writing_lines(out) as write:
        for row in _imported(files, form, reward, dropped, seen):
            write(encode(row) + b"\n")
            seen["written"] += 1
    report = Report(
        stage="import",
        inputs=tuple(map(str, paths)),
        output=str(out),
        options={"format": form, "reward": reward},
        read=seen["items"],
        unit="items",
        written=seen["written"],
        dropped=by_reason(dropped),
    )
    report.write()
    return report


def _files(path: Path, form: Format) -> list[Path]:
    if form != "atif" or not path.is_dir():
        return [path]
    found = sorted(path.rglob("trajectory*.json"))
    if not found:
        raise InputError([Problem(message="no trajectory*.json below it", file=str(path))])
    return found


def _imported(
    files: Sequence[Path],
    form: Format,
    reward: float | None,
    dropped: "Counter[str]",
    seen: "Counter[str]",
) -> Iterator[EpisodeRow | DpoRow]:
    preference: bool | None = None
    for file in files:
        for number, item in items(file):
            seen["items"] += 1
            if preference is None:
                preference = form != "atif" and _FORMATS[form].has_preference in item
            try:
                if preference:
                    yield _preference(_FORMATS[form].read_preference(item), file, number)
                else:
                    yield _episode(item, form, file, number, reward)
            except LeftOutError as error:
                dropped[str(error)] += 1


def _episode(item: Item, form: Format, file: Path, number: int, reward: float | None) -> EpisodeRow:
    name = f"{file.stem}-{number}"
    run = str(file)
    tools: ChatTools
    if form == "atif":
        episode, tools = atif_in.read_episode(item, name, reward)
        ours = "ale" in (item.get("extra") or {})
        run = str(item.get("session_id") or run) if ours else run
    else:
        read = _FORMATS[form].read(item)
        episode, tools = episode_of(read, name, reward), read.tools
    offered: tuple[ToolSpec, ...] | None = recorded_tools(tools)
    return EpisodeRow(run=run, tools=offered, episode=episode)


def _preference(found: Preference, file: Path, number: int) -> DpoRow:
    read, chosen, rejected = found
    if not chosen or not rejected or tuple(chosen) == tuple(rejected):
        raise LeftOutError("a preference with equal or missing answers")
    origin = Origin(run=str(file), episode=f"{file.stem}-{number}", turn=0)
    return DpoRow(
        prompt=tuple(read.messages),
        chosen=tuple(chosen),
        rejected=tuple(rejected),
        tools=read.tools,
        pairing="same-prompt",
        task=task_of([record(message) for message in read.messages]),
        chosen_from=origin,
        rejected_from=origin,
    )


def export_rows(source: Path, out: Path, *, form: Format) -> Report:
    """Export rows in the format of other programs.

    Args:
        source: rows of episodes (scored or not), conversations or preferences. All
            answers of episodes are to be trained on: select with `make_sft` first. ATIF takes
            episodes only.
        out: JSON Lines; for ATIF also a folder (no suffix), with a file per episode, since readers
            of ATIF want one trajectory in a file.

    Raises:
        InputError: the format can't hold rows of this kind, or they are damaged.
        StoreError: it can't be written.
    """
    refuse_overwriting(out, source)
    kind = any_kind(source)
    if kind is RlRow or (form == "atif" and kind not in (EpisodeRow, ScoredRow)):
        message = f"rows of this kind can't be written as {form}"
        raise InputError([Problem(message=message, file=str(source))])
    dropped: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    rows = _counted(read_rows(source, kind), seen)
    made = _exported(rows, form, dropped)
    written = _write_files(made, out) if form == "atif" and not out.suffix else _write(made, out)
    report = Report(
        stage="export",
        inputs=(str(source),),
        output=str(out),
        options={"format": form},
        read=seen["rows"],
        unit="rows",
        written=written,
        dropped=by_reason(dropped),
    )
    report.write()
    return report


def _counted(rows: Iterator[Any], seen: "Counter[str]") -> Iterator[Any]:
    for row in rows:
        seen["rows"] += 1
        yield row


def _exported(
    rows: Iterator[Any], form: Format, dropped: "Counter[str]"
) -> Iterator[dict[str, Any]]:
    for row in rows:
        try:
            if form == "atif":
                yield atif_out.write_episode(row)
            elif isinstance(row, DpoRow):
                yield _FORMATS[form].write_preference(row)
            else:
                yield from map(_FORMATS[form].write, _conversations(row))
        except LeftOutError as error:
            dropped[str(error)] += 1


def _conversations(row: EpisodeRow | ScoredRow | SftRow) -> list[SftRow]:
    if isinstance(row, SftRow):
        return [row]
    made = list(conversations(row, None))
    if not made:
        raise LeftOutError("no answer to learn from")
    return made


def _write_files(made: Iterator[dict[str, Any]], out: Path) -> int:
    """A folder with a file per trajectory."""
    if out.exists():
        message = f"{out} is there; it is not replaced"
        raise InputError([Problem(message=message, path="out", hint="choose another name")])
    written = 0
    with replacing(out) as partial:
        partial.mkdir()
        for item in made:
            name = _file_name(str(item["trajectory_id"]))
            path = partial / f"{name}.json"
            if path.exists():  # two ids that differ in what a file's name can't hold
                path = partial / f"{name}~{written}.json"
            path.write_bytes(encode(item))
            written += 1
    return written


def _file_name(trajectory: str) -> str:
    name = re.sub(r"[^\w.@-]+", "-", trajectory, flags=re.ASCII)
    return f"trajectory-{name[-_LONGEST_NAME:]}"


def _write(made: Iterator[dict[str, Any]], out: Path) -> int:
    written = 0
    with writing_lines(out) as write:
        for item in made:
            write(encode(item) + b"\n")
            written += 1
    return written
