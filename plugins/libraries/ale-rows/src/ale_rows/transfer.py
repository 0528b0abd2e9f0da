"""`ale data import` and `ale data export`: other formats in and out of rows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from ale.errors import InputError, Problem
from ale.text import counted
from ale.types import ToolSpec
from ale_rows.chat import record
from ale_rows.chattools import recorded_tools
from ale_rows.exchange import atif_in, atif_out, openai, sharegpt, trl
from ale_rows.exchange.conversations import Read, episode_of, task_of
from ale_rows.exchange.items import Item, LeftOutError, items, unread
from ale_rows.exchange.known import known_item
from ale_rows.files import read_rows
from ale_rows.imitation import conversations
from ale_rows.report import Counts, Report
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
from ale_rows.writing import encode, refuse_overwriting, replacing, write_lines

Format = Literal["openai", "sharegpt", "trl", "atif"]
_MOST_KEYS = 20
"""Names of keys that are not read, in a report."""
_LONGEST_NAME = 200
"""Characters; a file system takes 255 bytes."""
_OWN_REWARD = "not given the reward, since they have their own or are preferences"

Preference = tuple[Read, Sequence[ChatMessage], Sequence[ChatMessage]]


class _Format(Protocol):
    """A module that reads and writes conversations and preferences of one format."""

    PREFERENCE_KEY: str
    """The key that only a preference has."""
    KEYS: frozenset[str]
    """The keys that are read; others are named in the report."""
    BELOW: dict[str, frozenset[str]]
    """The keys of messages that are read, by the key of their list."""

    def read(self, item: Item) -> Read: ...
    def read_preference(self, item: Item) -> Preference: ...
    def write(self, row: SftRow) -> dict[str, Any]: ...
    def write_preference(self, row: DpoRow) -> dict[str, Any]: ...


_FORMATS: Mapping[str, _Format] = {"openai": openai, "sharegpt": sharegpt, "trl": trl}


def import_rows(
    paths: Sequence[Path], out: Path, *, form: Format, reward: float | None = None
) -> Report:
    """Import files of other programs as rows: episodes, or preferences as `DpoRow`.

    An item that can't become a row (a line that is not JSON, a rejected answer, images) is left
    out, counted, and named by its line. Keys of items that are not read are named too. Files of
    which no item can are refused, since they are probably of another format, and so are files
    without items.

    Args:
        paths: files of JSON lines (``.jsonl``), or of one array or object, which are read whole;
            for ATIF also folders, in which every ``trajectory*.json`` at any depth is read.
        out: JSON Lines. All items are preferences if the first is.
        form: format of `paths`.
        reward: reward of the episodes, since such files have none, except ATIF that we wrote:
            those keep theirs, also none of a broken one, and are counted. With None, episodes can
            be imitated but not scored.

    Raises:
        InputError: a file does not exist, is read whole and not JSON, or is known to be of another
            kind; or no item is there that can become a row.
        StoreError: `out` can't be written.
    """
    files = [file for path in paths for file in _files(path, form)]
    refuse_overwriting(out, *files)
    counts = Counts()
    written = write_lines((encode(row) for row in _imported(files, form, reward, counts)), out)
    options = {"format": form, "reward": reward}
    return counts.report("import", paths, out, unit="items", written=written, options=options)


def _files(path: Path, form: Format) -> list[Path]:
    if form != "atif" or not path.is_dir():
        return [path]
    found = sorted(path.rglob("trajectory*.json"))
    if not found:
        raise InputError.of("no trajectory*.json below it", file=str(path))
    return found


def _imported(
    files: Sequence[Path],
    form: Format,
    reward: float | None,
    counts: Counts,
) -> Iterator[EpisodeRow | DpoRow]:
    preference: bool | None = None
    first: Item | LeftOutError | None = None
    made = 0
    for file in files:
        for number, item in items(file):
            counts.seen["items"] += 1
            if preference is None:
                first, preference = item, _is_preference(item, form)
            try:
                row = _row(item, form, file, number, reward, preference=preference)
            except LeftOutError as error:
                counts.leave_out(str(error), f"{file}:{number}")
            else:
                made += 1
                _count_unread(item, form, counts)
                _count_reward(row, reward, counts)
                yield row
    if first is None:
        message, expected = "there is nothing to import in it", f"items of the format {form}"
        raise InputError(
            [Problem(message=message, file=str(file), expected=expected) for file in files]
        )
    if not made:
        raise _nothing_imported(first, form, files, counts)


def _count_reward(row: EpisodeRow | DpoRow, given: float | None, counts: Counts) -> None:
    own = row.episode.reward if isinstance(row, EpisodeRow) else None
    if given is not None and own != given:
        counts.seen[_OWN_REWARD] += 1


def _count_unread(item: Item | LeftOutError, form: Format, counts: Counts) -> None:
    if form == "atif" or isinstance(item, LeftOutError):
        return
    for key in unread(item, _FORMATS[form].KEYS, _FORMATS[form].BELOW):
        note = f"items with {key}, which is not read"
        if note not in counts.seen and len(counts.seen) > _MOST_KEYS:
            note = "items with further keys, which are not read"
        counts.seen[note] += 1


def _nothing_imported(
    item: Item | LeftOutError, form: Format, files: Sequence[Path], counts: Counts
) -> InputError:
    reason, _ = counts.dropped.most_common(1)[0]
    n = counted(counts.seen["items"], "item")
    if isinstance(item, LeftOutError):
        return InputError.of(f"none of {n} can be imported: {reason}", file=str(files[0]))
    others = [other for other in get_args(Format) if other != form and _is_readable(item, other)]
    hint = f"the first item can be read with --format {others[0]}" if others else None
    if what := known_item(item):
        reason, hint = f"the first is {what[0]}", what[1]
    return InputError.of(
        f"none of {n} can be imported: {reason}",
        file=str(files[0]),
        expected=f"the format {form}",
        hint=hint,
    )


def _is_readable(item: Item, form: Format) -> bool:
    preference = _is_preference(item, form)
    try:
        _row(item, form, Path("item"), 1, None, preference=preference)
    except LeftOutError:
        return False
    return True


def _is_preference(item: Item | LeftOutError, form: Format) -> bool | None:
    """None of a line that is no item."""
    if isinstance(item, LeftOutError):
        return None
    return form != "atif" and _FORMATS[form].PREFERENCE_KEY in item


def _row(
    item: Item | LeftOutError,
    form: Format,
    file: Path,
    number: int,
    reward: float | None,
    *,
    preference: bool | None,
) -> EpisodeRow | DpoRow:
    if isinstance(item, LeftOutError):
        raise item
    if preference != _is_preference(item, form):
        raise LeftOutError(
            "no preference, as the first item is" if preference else "a preference, as none before"
        )
    if preference:
        return _preference(_FORMATS[form].read_preference(item), file, number)
    return _episode(item, form, file, number, reward)


def _episode(item: Item, form: Format, file: Path, number: int, reward: float | None) -> EpisodeRow:
    name = f"{file.stem}-{number}"
    run = str(file)
    tools: ChatTools
    if form == "atif":
        episode, tools = atif_in.read_episode(item, name, reward)
        extra = item.get("extra")
        ours = isinstance(extra, Mapping) and "ale" in extra
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
        source: rows of episodes (scored or not), conversations or preferences. Of episodes, all
            answers are to be trained on, except those that did nothing, as in `make_sft`; select
            with it first. ATIF takes episodes only.
        out: JSON Lines; for ATIF also a folder (no suffix), with a file per episode, since readers
            of ATIF want one trajectory in a file.

    Raises:
        InputError: the format can't hold rows of this kind, or they are damaged.
        StoreError: it can't be written.
    """
    refuse_overwriting(out, source)
    kind = any_kind(source)
    if kind is RlRow or (form == "atif" and kind not in (EpisodeRow, ScoredRow)):
        raise InputError.of(f"rows of this kind can't be written as {form}", file=str(source))
    counts = Counts()
    made = _exported(read_rows(source, kind), form, counts)
    if form == "atif" and not out.suffix:
        written = _write_files(made, out)
    else:
        written = write_lines(map(encode, made), out)
    options = {"format": form}
    return counts.report("export", [source], out, unit="rows", written=written, options=options)


def _exported(rows: Iterator[Any], form: Format, counts: Counts) -> Iterator[dict[str, Any]]:
    for row in rows:
        counts.seen["rows"] += 1
        try:
            if form == "atif":
                yield atif_out.write_episode(row)
            elif isinstance(row, DpoRow):
                yield _FORMATS[form].write_preference(row)
            else:
                yield from map(_FORMATS[form].write, _conversations(row))
        except LeftOutError as error:
            counts.dropped[str(error)] += 1


def _conversations(row: EpisodeRow | ScoredRow | SftRow) -> list[SftRow]:
    if isinstance(row, SftRow):
        return [row]
    made = list(conversations(row, None))
    if not made:
        raise LeftOutError("no answer to learn from")
    return made


def _write_files(made: Iterator[dict[str, Any]], out: Path) -> int:
    """Write a folder with one file per trajectory."""
    if out.exists():
        message = f"{out} is there; it is not replaced"
        raise InputError.of(message, path="out", hint="choose another name")
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
