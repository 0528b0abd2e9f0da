"""``ale credit RUN --scheme A --scheme B``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ale._cli.common import registry_of

if TYPE_CHECKING:
    from ale._registry import Registry
    from ale._run.crediting import Crediting
    from ale._store import RunReader
    from ale._store.index import Index
    from ale.protocols import Chunker
    from ale.strict import Node
    from ale.types import Credit, Rollout


@click.command("credit")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--scheme",
    "schemes",
    multiple=True,
    required=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="A credit scheme; give it again to compare: --scheme ipa:gamma=0.9 --scheme grpo.",
)
@click.option("--chunker", metavar="NAME[:OPTION=VALUE,...]", help="Default: the run's own.")
@click.option("--episode", help="Show this episode only: an id, its beginning, or a task's id.")
@click.option("--limit", type=click.IntRange(0), default=3, show_default=True, help="Episodes.")
@click.pass_context
def command(
    ctx: click.Context,
    run: Path,
    schemes: tuple[str, ...],
    chunker: str | None,
    episode: str | None,
    limit: int,
) -> None:
    """Compare credit schemes on the same stored episodes of RUN, chunk by chunk.

    Nothing is sampled and nothing is written: the episodes are cut and credited again from disk.

    \b
    Examples:
      ale credit runs/20260101-120000-3f2a-quickstart --scheme ipa --scheme grpo
      ale credit RUN --scheme ipa:gamma=0.5 --scheme ipa:gamma=1 --episode basics-ls
    """
    from ale._cli.show import find_episode
    from ale._store import RunReader

    reader = RunReader(run)
    compared = _creditings(reader, schemes, chunker, registry_of(ctx))
    index = reader.index()
    if episode is not None:
        found = find_episode(reader, episode)
        rows = list(_rollouts(reader, index, compared, found.step, found.task_id))
        rows = [row for row in rows if row[0].episode.id == found.id]
        if not rows:
            click.echo(f"{found.id} is broken: it has no reward, and so no credit")
        for rollout, credits in rows:
            click.echo(chunk_table(rollout, credits))
        return
    sums = [_Sum(name) for name in schemes]
    for shown, (rollout, credits) in enumerate(_everything(reader, index, compared)):
        if shown < limit:
            click.echo(chunk_table(rollout, credits) + "\n")
        for total, credit in zip(sums, credits, strict=True):
            total.add(credit)
    click.echo(_sums_table(sums))


def _creditings(
    reader: "RunReader", schemes: Sequence[str], chunker: str | None, registry: "Registry"
) -> "list[Crediting]":
    """One crediting per scheme, all over the same cut."""
    from ale._config.load import select
    from ale._run.crediting import Crediting
    from ale._run.parts import build
    from ale.plugin import BuildContext
    from ale.strict import from_plain

    if chunker is None:
        file = str(reader.path / "manifest.json")
        node = from_plain(reader.manifest["config"]["chunker"], file=file)
    else:
        node = parse_choice(chunker, "--chunker")
    picked = select(node, "chunker", registry, path="chunker")
    context = BuildContext()
    built: Chunker = build(picked, context)
    made = []
    for text in schemes:
        scheme = select(parse_choice(text, "--scheme"), "credit", registry, path="credit")
        made.append(
            Crediting(
                chunker=built,
                chunker_name=picked.name,
                scheme=build(scheme, context),
                scheme_name=text,
            )
        )
    return made


def parse_choice(text: str, option: str) -> "Node":
    """``ipa:gamma=0.9,failure_reward=-1`` as the mapping that a config would have.

    Raises:
        InputError: an option is not ``name=value``.
    """
    from ale.errors import InputError, Problem
    from ale.strict import Node, parse_yaml

    name, _, rest = text.partition(":")
    entries = {"type": Node(name, option)}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            message = f"expected option=value, found '{pair}'"
            raise InputError([Problem(message=message, file=option)])
        entries[key] = Node(parse_yaml(value, file=option).value, option)
    return Node(dict(entries), option)


def _everything(
    reader: "RunReader", index: "Index", compared: "Sequence[Crediting]"
) -> "Iterator[tuple[Rollout, list[Credit]]]":
    for step in index.steps():
        yield from _rollouts(reader, index, compared, step, None)


def _rollouts(
    reader: "RunReader",
    index: "Index",
    compared: "Sequence[Crediting]",
    step: int,
    task_id: str | None,
) -> "Iterator[tuple[Rollout, list[Credit]]]":
    """Each rollout with its credit under every scheme; the first scheme cuts for all."""
    first, *others = compared
    for credited in first.groups(reader, index, step, task_id):
        columns = [credited.credits]
        columns += [other.assign(credited.group).credits for other in others]
        for i, rollout in enumerate(credited.group.rollouts):
            yield rollout, [column[i] for column in columns]


def chunk_table(rollout: "Rollout", credits: "Sequence[Credit]") -> str:
    """One episode: a line per chunk, a weight per scheme."""
    from ale._cli.text import shorten, table

    rows = [
        [
            str(chunk.index),
            chunk.kind,
            *(f"{credit.weights[k]:+.4f}" for credit in credits),
            shorten(_excerpt(rollout, k), 60),
        ]
        for k, chunk in enumerate(rollout.chunks)
    ]
    header = ["chunk", "kind", *(credit.scheme for credit in credits), "what it did"]
    right = (0, *range(2, 2 + len(credits)))
    reward = rollout.episode.reward
    title = f"{rollout.episode.id}: reward {reward:.3f}, {len(rows)} chunks"
    notes = [f"  {credit.scheme}: {credit.skipped}" for credit in credits if credit.skipped]
    return "\n".join([title, *notes, table(header, rows, right)])


def _excerpt(rollout: "Rollout", k: int) -> str:
    said: list[str] = []
    for span in rollout.chunks[k].spans:
        message = rollout.episode.trajectory.turns[span.turn].completion.message
        said.append(message.content[slice(*span.text)])
        calls = message.tool_calls[slice(*span.calls)]
        said += [f"{call.name} {call.arguments}" for call in calls]
    return " ".join(filter(None, said))


class _Sum:
    """What a scheme gave over all episodes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.episodes = self.chunks = self.zero = self.skipped = 0
        self.absolute = 0.0

    def add(self, credit: "Credit") -> None:
        self.episodes += 1
        self.chunks += len(credit.weights)
        self.zero += credit.weights.count(0.0)
        self.skipped += credit.skipped is not None
        self.absolute += sum(map(abs, credit.weights))


def _sums_table(sums: Sequence[_Sum]) -> str:
    from ale._cli.text import table

    rows = [
        [
            total.name,
            str(total.episodes),
            str(total.chunks),
            f"{total.absolute / max(1, total.chunks):.4f}",
            f"{100 * total.zero / max(1, total.chunks):.1f}%",
            str(total.skipped),
        ]
        for total in sums
    ]
    header = ["scheme", "episodes", "chunks", "mean |weight|", "zero weights", "skipped episodes"]
    return table(header, rows, right=tuple(range(1, 6)))
