"""Recompute the credit of a stored run with any schemes and chunker, group by group."""

from collections.abc import Iterator, Sequence
from typing import Literal

from ale.errors import InputError, Problem
from ale.protocols import ReadsScores
from ale.runs import Crediting, Registry, RunReader, build_choice, load_plugins, parse_choice
from ale.strict import Node, from_plain, nearest
from ale.types import Credit, Rollout


def creditings(
    run: RunReader,
    schemes: Sequence[str],
    registry: Registry,
    *,
    chunker: str | None = None,
    plugin_files: bool = True,
) -> list[Crediting]:
    """One crediting per scheme, all with the same chunker.

    Args:
        schemes: each as for `parse_choice`; also the scheme's name in its credits. One that is not
            installed may be in a plugin file of the run's config. None of them: the run's own.
        chunker: likewise; default: the run's own.
        plugin_files: load those, which runs what stands in them.

    Raises:
        InputError: as `parse_choice`, `build_choice` and `load_plugins`.
    """
    cut = _own(run, "chunker") if chunker is None else parse_choice(chunker, option="--chunker")
    wanted = [parse_choice(text, option="--scheme") for text in schemes]
    if not schemes:
        wanted = [_own(run, "credit")]
        schemes = [run.manifest["config"]["credit"]["type"].rpartition("/")[2]]
    named = [("chunker", cut), *(("credit", each) for each in wanted)]
    if plugin_files and not all(_is_registered(choice, kind, registry) for kind, choice in named):
        load_plugins(run, registry)
    name, cutter = build_choice(cut, "chunker", registry)
    made = []
    for text, choice in zip(schemes, wanted, strict=True):
        _, scheme = build_choice(choice, "credit", registry)
        made.append(Crediting(chunker=cutter, chunker_name=name, scheme=scheme, scheme_name=text))
    _check_scorers(run, made)
    return made


def _own(run: RunReader, section: Literal["chunker", "credit"]) -> Node:
    """The component that a section of the run's config selects."""
    file, option = str(run.path / "manifest.json"), {"chunker": "chunker", "credit": "scheme"}
    if section not in run.manifest["config"]:
        message = f"this run trained nothing, and had no {section}"
        raise InputError.of(message, file=file, hint=f"--{option[section]} NAME")
    return from_plain(run.manifest["config"][section], file=file)


def _check_scorers(run: RunReader, made: Sequence[Crediting]) -> None:
    """Refuse a scheme that reads the scores of a scorer whose scores the run does not have."""
    wanted = {
        (each.scheme_name, name)
        for each in made
        if isinstance(each.scheme, ReadsScores)
        for name in each.scheme.reads
    }
    if not wanted:
        return
    known = sorted({row.scorer for row in run.step_scores()})
    problems = [
        Problem(
            message=f"{scheme} reads the scores of '{name}', and the run has none of it",
            path="--scheme",
            expected="scores of " + (", ".join(known) or "any scorer: the run has none"),
            hint=nearest(name, known) or f"ale regrade {run.path} --scorer TYPE scores it again",
        )
        for scheme, name in sorted(wanted)
        if name not in known
    ]
    if problems:
        raise InputError(problems)


def _is_registered(choice: Node, kind: str, registry: Registry) -> bool:
    named = choice.get("type")
    return any(
        named is not None and named.value in (each.component.name, each.full_name)
        for each in registry.registrations(kind)
    )


def recredited(
    run: RunReader,
    compared: Sequence[Crediting],
    *,
    step: int | None = None,
    task_id: str | None = None,
) -> Iterator[tuple[Rollout, list[Credit]]]:
    """Each graded rollout of a stored run with its credit under every scheme.

    Args:
        compared: from `creditings`; the chunks of the first are used for all.
        step: of this step only.
        task_id: of this task only.

    Raises:
        AleError: a trajectory lacks what the chunker needs, or a scheme broke its contract.
    """
    first, *others = compared
    index = run.index()
    for at in index.steps() if step is None else [step]:
        for credited in first.groups(run, index, at, task_id):
            columns = [credited.credits]
            columns += [other.assign(credited.group).credits for other in others]
            for i, rollout in enumerate(credited.group.rollouts):
                yield rollout, [column[i] for column in columns]
