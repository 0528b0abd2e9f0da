"""`ale data score`: cut the episodes of a file into chunks and give each its credit."""

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import msgspec

from ale.errors import InputError, PluginError
from ale.runs import Crediting, Registry, build_choice, parse_choice
from ale.strict import Node, from_plain
from ale.types import BatchStatistics, Chunk, Credit, Episode, Group, Rollout
from ale_rows.reading import RowFile, damaged, refuse_schema
from ale_rows.report import Counts, Report
from ale_rows.rows import SCHEMA
from ale_rows.stored import EpisodeHead, GroupKey
from ale_rows.streaming import streaming
from ale_rows.writing import encode, refuse_overwriting, writing_lines

Choice = str | Mapping[str, Any]
_NONE = msgspec.Raw(b"null")
_DEFAULTS: Mapping[str, Choice] = {"chunker": "ale-lite", "credit": "ipa-lite"}
"""For episodes of no run that had a chunker and a scheme, such as imported ones."""
_OPTIONS = {"chunker": "--chunker", "credit": "--scheme"}


class _RowHead(msgspec.Struct, gc=False):
    """The fields for the first pass; the rest of the line is skipped."""

    schema: Literal[1]
    kind: Literal["episode"]
    run: str
    episode: EpisodeHead
    crediting: msgspec.Raw = _NONE


class _Row(msgspec.Struct, gc=False):
    """A row with its episode as raw JSON, to copy it."""

    schema: Literal[1]
    kind: Literal["episode"]
    run: str
    episode: msgspec.Raw
    tools: msgspec.Raw = msgspec.Raw(b"null")


class _Given(msgspec.Struct):
    """The output of a chunker and a scheme, to validate it."""

    chunks: tuple[Chunk, ...]
    credit: Credit


_episodes = msgspec.json.Decoder(Episode)
_given = msgspec.json.Decoder(_Given)


def score(
    source: Path,
    out: Path,
    registry: Registry,
    *,
    chunker: Choice | None = None,
    scheme: Choice | None = None,
) -> Report:
    """Write each episode with its chunks and their credit.

    The file is read twice: for the mean reward of all its graded episodes, which some schemes use
    as baseline, and for the credit. Memory holds one group and the offsets of the others. A group
    has the rollouts of one task from one start in one step of one run.

    Args:
        source: JSON Lines of `EpisodeRow`.
        out: JSON Lines of `ScoredRow`, group by group, in the order of the groups' first rows.
        registry: the installed packages.
        chunker: a component, written as for ``--chunker`` (``interaction:turns_without_calls=own``)
            or as a mapping as in a config. Default: that of the episodes' runs; ``ale-lite`` where
            they had none.
        scheme: a credit scheme, written in the same way; default: that of the runs, or
            ``ipa-lite``.

    Raises:
        InputError: there is no such component, a line is damaged, or the runs had different
            chunkers or schemes.
        AleError: a trajectory lacks what the chunker needs, or a component broke its contract.
        StoreError: `out` can't be written.
    """
    refuse_overwriting(out, source)
    given: dict[str, Choice | None] = {"chunker": chunker, "credit": scheme}
    if None not in given.values():  # what is wrong with them is said before a file is read
        _crediting(registry, given, Counter(), source)
    counts = Counts()
    idle: Counter[str] = Counter()
    groups, batch, own = _survey(source, counts)
    crediting = _crediting(registry, given, own, source)
    written = chunks = 0
    with streaming(), RowFile(source, _Row) as rows, writing_lines(out) as write:
        for key, offsets in groups.items():
            for row, rollout, credit in _credited(rows, crediting, key, offsets, batch):
                write(_line(row, rollout, credit, batch, crediting))
                written += 1
                chunks += len(rollout.chunks)
                if credit.skipped:
                    idle[f"without training signal ({credit.skipped})"] += 1
    return counts.report(
        "score",
        [source],
        out,
        unit="episodes",
        written=written,
        options={"chunker": crediting.chunker_name, "scheme": crediting.scheme_name},
        notes={
            "groups": len(groups),
            "chunks": chunks,
            **({"mean reward": batch.mean_reward} if batch.n_episodes else {}),
            **dict(idle.most_common()),
        },
    )


def _crediting(
    registry: Registry, given: Mapping[str, Choice | None], own: Counter[bytes], source: Path
) -> Crediting:
    """The chosen parts; for a part that was not chosen, that of the runs, or the default.

    Args:
        own: episodes by the JSON of `EpisodeRow.crediting`.
    """
    sections = [msgspec.json.decode(each) or {} for each in own]
    chosen: dict[str, Choice] = {}
    for part, choice in given.items():
        different = {encode(each.get(part)): each.get(part) for each in sections}
        if choice is None and len(different) > 1:
            names = ", ".join("none" if v is None else str(v["type"]) for v in different.values())
            raise InputError.of(
                f"the runs of these episodes differ in '{part}': {names}",
                file=str(source),
                hint=f"{_OPTIONS[part]} says which one to use for all of them",
            )
        runs_own = next(iter(different.values()), None)
        chosen[part] = choice or runs_own or _DEFAULTS[part]
    return make_crediting(registry, chosen["chunker"], chosen["credit"])


def make_crediting(registry: Registry, chunker: Choice, scheme: Choice) -> Crediting:
    """Chunker and scheme, built.

    Raises:
        InputError: there is no such component, or an option of it is wrong.
    """
    chunker_name, cutter = _built(chunker, "chunker", registry)
    scheme_name, made = _built(scheme, "credit", registry)
    return Crediting(
        chunker=cutter, chunker_name=chunker_name, scheme=made, scheme_name=scheme_name
    )


def _built(choice: Choice, kind: str, registry: Registry) -> tuple[str, Any]:
    """The component, under the name as given, options included."""
    if isinstance(choice, str):
        option = "--chunker" if kind == "chunker" else "--scheme"
        return choice, build_choice(parse_choice(choice, option=option), kind, registry)[1]
    node: Node = from_plain(dict(choice), file=kind)
    return build_choice(node, kind, registry)


def _survey(
    source: Path, counts: Counts
) -> tuple[dict[GroupKey, list[int]], BatchStatistics, Counter[bytes]]:
    """The first pass: offsets of the rows of each group, the mean of all rewards, and the chunkers
    and schemes of the runs.
    """
    groups: dict[GroupKey, list[int]] = {}
    own: Counter[bytes] = Counter()
    count = 0
    total = Fraction(0)  # equal rewards have exactly this mean
    with streaming(), RowFile(source, _RowHead) as file:
        for offset, row in file:
            counts.seen["episodes"] += 1
            head = row.episode
            if head.split != "train":
                counts.dropped["of an evaluation: held out"] += 1
            elif head.reward is None:
                counts.dropped[head.no_reward] += 1
            else:
                count, total = count + 1, total + Fraction(head.reward)
                groups.setdefault(head.group(row.run), []).append(offset)
                own[bytes(row.crediting)] += 1
    mean = float(total / count) if count else 0.0
    return groups, BatchStatistics(n_episodes=count, mean_reward=mean), own


def _credited(
    rows: RowFile[_Row],
    crediting: Crediting,
    key: GroupKey,
    offsets: list[int],
    batch: BatchStatistics,
) -> Iterator[tuple[_Row, Rollout, Credit]]:
    """The chunks and credits of one group."""
    read = [rows.at(offset) for offset in offsets]
    episodes = [_episode(rows, row, at) for row, at in zip(read, offsets, strict=True)]
    _refuse_duplicates(key, episodes, rows.path)
    rollouts = tuple(crediting.split(episode) for episode in episodes)
    group = Group(task_id=key[2], rollouts=rollouts, batch=batch)
    yield from zip(read, rollouts, crediting.assign(group).credits, strict=True)


def _refuse_duplicates(key: GroupKey, episodes: list[Episode], path: Path) -> None:
    twice = [name for name, n in Counter(each.id for each in episodes).items() if n > 1]
    if twice:
        message = f"episode {twice[0]} of run '{key[0]}' is there twice"
        raise InputError.of(message, file=str(path), hint="collect the runs again")


def _episode(rows: RowFile[_Row], row: _Row, offset: int) -> Episode:
    try:
        episode = _episodes.decode(row.episode)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(error, rows.path, rows.number(offset), below="episode") from None
    refuse_schema(episode, rows.path)
    return episode


def _line(
    row: _Row, rollout: Rollout, credit: Credit, batch: BatchStatistics, crediting: Crediting
) -> bytes:
    """A line of the output.

    Raises:
        PluginError: a chunk or a credit is not valid.
    """
    given = _Given(chunks=rollout.chunks, credit=credit)
    try:
        made = encode(given)
        _given.decode(made)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise PluginError(
            f"chunker '{crediting.chunker_name}' or credit scheme '{crediting.scheme_name}' gave "
            f"what can't be stored for {rollout.episode.id}: {error}"
        ) from error
    head = {
        "schema": SCHEMA,
        "kind": "scored",
        "run": row.run,
        "tools": row.tools,
        "chunker": crediting.chunker_name,
        "scheme": crediting.scheme_name,
        "batch": batch,
    }
    # The episode, most of the line, is copied unchanged.
    return b"".join([encode(head)[:-1], b",", made[1:-1], b',"episode":', row.episode, b"}\n"])
