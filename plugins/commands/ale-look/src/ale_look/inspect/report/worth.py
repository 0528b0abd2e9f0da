"""The value of an episode's states beside the credit of its chunks, where values were measured."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ale.errors import InputError
from ale.runs import Registry, RunReader
from ale.values import NAME, ValuedEpisode, edges, rates, read_values, valued
from ale_look.inspect.against import every_scheme
from ale_look.inspect.recrediting import recredited

_DIGITS = 4


def pictures(
    run: RunReader,
    ids: Collection[str],
    registry: Registry | None = None,
    *,
    plugin_files: bool = True,
) -> Mapping[str, dict[str, Any]]:
    """The numbers of the picture of each of these episodes that has measured values.

    Every installed credit scheme that needs no options is computed anew, as `ale show credit
    --against values` does. Nothing is drawn where a chunk is not of whole turns, between which
    values are measured.

    Args:
        plugin_files: load those of the run, which runs what stands in them.

    Raises:
        InputError: the file of values is damaged, or is that of other episodes.
    """
    if not (run.path / NAME).exists():
        return {}
    values = read_values(run.path / NAME)
    schemes, _ = every_scheme(
        run, registry or Registry.installed(), None, plugin_files=plugin_files
    )
    if not values.episodes or not schemes:
        return {}
    names = [each.scheme_name for each in schemes]
    found = valued(values, recredited(run, schemes), names)
    v = rates(values)
    shown = [each for each in found if each.values.episode_id in ids and _of_whole_turns(each)]
    return {each.values.episode_id: _picture(each, v) for each in shown}


def _of_whole_turns(each: ValuedEpisode) -> bool:
    try:
        edges(each.rollout.chunks, len(each.values.states) - 1)
    except InputError:
        return False
    return bool(each.rollout.chunks)


def _picture(each: ValuedEpisode, v: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """V before each chunk and after the last, its rollouts, and the weights by scheme."""
    states, n_turns = each.values.states, len(each.values.states) - 1
    at = edges(each.rollout.chunks, n_turns)
    along = [round(v[each.values.task_id, states[turn]], _DIGITS) for turn in at]
    worth = [round(b - a, _DIGITS) for a, b in pairwise(along)]
    return {
        "values": along,
        "trials": [each.values.trials[turn] for turn in at],
        "bars": [["worth", worth], *map(_rounded, each.weights.items())],
    }


def _rounded(row: tuple[str, Sequence[float]]) -> list[Any]:
    name, weights = row
    return [name, [round(weight, _DIGITS) for weight in weights]]
