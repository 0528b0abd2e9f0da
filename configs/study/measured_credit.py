"""Credit from values that are measured while a policy is trained: for docs/study/credit.md.

Before a step is learned from, the policy that sampled its episodes continues each of their states
several times, in real sandboxes (`ale data values`). The weight of a chunk is its worth, V after it
minus V before it: VinePPO's advantage (arXiv:2410.01679), without discount. `permuted` deals the
same weights to the chunks of an episode in a random order: they have the same distribution, and say
nothing about the chunks.

The rollouts of step n are in forks/<n> of the run's directory. A run that is resumed measures what
it lacks.
"""

import random
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import InputError
from ale.plugin import BuildContext, Component, doc, ge, hookimpl
from ale.protocols import CreditScheme
from ale.runs import Registry, RunReader
from ale.types import Credit, Group, Rollout
from ale.values import Values, rates, read_values, worths
from ale_starts.options import PrefixOptions
from ale_starts.prefixes import chosen
from ale_starts.valuing import Valuation
from ale_trainer_policy.export import write_model

_MODEL = "model"
_SHARED = "shared_rollouts.py/shared"
_AT_ONCE = 1024
"""Most rollouts that are sampled at the same time, if they are shared."""
_NOTHING = "every chunk is worth 0"
_UNREACHED = "a state of the episode could not be reached again"


@frozen(kw_only=True)
class MeasuredOptions:
    """The worth of each chunk, measured before the step is learned from."""

    rollouts: int = field(
        default=4, validator=ge(2), metadata=doc("Number of rollouts from each state.")
    )
    shared: bool = field(
        default=True,
        metadata=doc("Run only rollouts that repeat no other: see `shared_rollouts.py`."),
    )
    permuted: bool = field(
        default=False,
        metadata=doc("Deal an episode's weights to its chunks in a random order: a control."),
    )


@frozen(kw_only=True)
class StepValuation(Valuation):
    """A valuation of one step, whose rollouts have a folder of their own."""

    at: Path

    @property
    def folder(self) -> Path:
        """The directory of the run of rollouts."""
        return self.at / "rollouts"

    @property
    def file(self) -> Path:
        """The file of values."""
        return self.at / "values.jsonl"

    shared: bool

    def _config(self) -> dict[str, Any]:
        config = {**super()._config(), "observers": []}
        if self.shared:
            for section in ("llm", "starts"):
                config[section] = {**config[section], "type": _SHARED}
            config["executor"] = {"type": _SHARED}
            valued = {e.task_id for e in chosen(self.run, self.options)}
            # Tasks of `sort_tasks.py` end with their number; reading all takes seconds.
            config["tasks"]["only"] = sorted(int(each.rpartition("-")[2]) for each in valued)
            config["run"] = {**config["run"], "concurrency": _AT_ONCE, "preflight": False}
        return config


class MeasuredCredit:
    """Implements `CreditScheme`; measures the values of a step when its first group is credited."""

    def __init__(self, options: MeasuredOptions, context: BuildContext) -> None:
        self._options, self._context = options, context
        self._known: tuple[int, Values] | None = None

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout; an episode has no weight if a state of it can't be replayed.

        Raises:
            InputError: the episodes are not those of the run.
        """
        values = self._values(group.rollouts[0].episode.step)
        known = rates(values)
        return [self._credit(rollout, values, known) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout, values: Values, known: Any) -> Credit:
        episode = rollout.episode
        measured = values.episodes.get(episode.id)
        if measured is None:
            weights: tuple[float, ...] = (0.0,) * len(rollout.chunks)
        else:
            weights = worths(measured, rollout.chunks, known)
        if self._options.permuted:
            rng = random.Random(f"permuted {self._context.seed} {episode.id}")  # noqa: S311
            weights = tuple(rng.sample(weights, len(weights)))
        return Credit(
            episode_id=episode.id,
            scheme="measured",
            rewards=weights,
            returns=weights,
            weights=weights,
            skipped=None if any(weights) else _UNREACHED if measured is None else _NOTHING,
        )

    def _values(self, step: int) -> Values:
        if self._known is None or self._known[0] != step:
            self._known = (step, self._measured(step))
        return self._known[1]

    def _measured(self, step: int) -> Values:
        directory = self._context.run_directory
        if directory is None or not (directory / "episodes.jsonl").exists():
            raise InputError.of("values are measured while a run is trained, and of its episodes")
        run, at = RunReader(directory), directory / "forks" / f"{step:05d}"
        n = sum(e.split == "train" and e.step == step for e in run.episodes)
        if not n:
            raise InputError.of(f"the run has no episodes of step {step}")
        options = PrefixOptions(run=directory, episodes=n, per_task=n, step=step)
        # Credit is assigned in a running event loop, and the rollouts are a run of their own.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(_carried_out, run, self._options, options, at).result()


def _carried_out(
    run: RunReader, measured: MeasuredOptions, options: PrefixOptions, at: Path
) -> Values:
    assert options.step is not None
    valuation = StepValuation(
        run=run,
        rollouts=measured.rollouts,
        shared=measured.shared,
        options=options,
        model=_policy(run, options.step, at),
        report=lambda text: None,
        at=at,
    )
    valuation.carry_out()
    values = read_values(valuation.file)
    # Their counts are in the file of values.
    shutil.rmtree(valuation.folder, ignore_errors=True)
    shutil.rmtree(at / _MODEL, ignore_errors=True)
    return values


def _policy(run: RunReader, step: int, at: Path) -> Path:
    """The model that sampled a step's episodes: the newest checkpoint, as there is no staleness."""
    if step == 0:
        return Path(run.manifest["config"]["llm"]["model"])
    out = at / _MODEL
    if not out.exists():
        at.mkdir(parents=True, exist_ok=True)
        write_model(run.path, out, Registry.installed(), after=step)
    return out


def _build(options: MeasuredOptions, context: BuildContext) -> CreditScheme:
    if context.staleness:
        message = "the policy whose values are measured has to be the one that sampled"
        raise InputError.of(message, path="run.staleness", expected="0")
    return MeasuredCredit(options, context)


@hookimpl
def ale_credit_schemes() -> Sequence[Component[MeasuredOptions, CreditScheme]]:
    """Register ``measured``."""
    summary = "The worth of each chunk, measured by rollouts before a step is learned from."
    return [Component("measured", MeasuredOptions, _build, summary=summary)]
