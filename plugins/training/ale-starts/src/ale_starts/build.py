"""Builds the schemes from their options."""

from ale.plugin import BuildContext
from ale.protocols import StartScheme
from ale.runs import RunReader
from ale_starts.demonstrations import Experts, OwnSuccesses, ReferenceSolutions, stored_successes
from ale_starts.difficulty import ByDifficulty
from ale_starts.options import (
    ExpertOptions,
    InitialOptions,
    ParallelOptions,
    PrefixOptions,
    RollbackOptions,
)
from ale_starts.prefixes import Prefixes
from ale_starts.restoring.scheme import ForkedStarts
from ale_starts.schemes import Initial, Parallel, Rollback, WithDemonstrations


def initial(options: InitialOptions, context: BuildContext) -> StartScheme:
    """The scheme ``initial``."""
    scheme = Initial() if options.groups is None else ByDifficulty(options, context.seed)
    return _demonstrating(scheme, options, ReferenceSolutions())


def rollback(options: RollbackOptions, context: BuildContext) -> StartScheme:
    """The scheme ``rollback``. Raises the errors of `experts_of`."""
    experts, required = experts_of(options)
    return _with_options(Rollback(options, experts, required=required), options, experts)


def parallel(options: ParallelOptions, context: BuildContext) -> StartScheme:
    """The scheme ``parallel``. Raises the errors of `experts_of`."""
    experts, required = experts_of(options)
    scheme = Parallel(options, experts, required=required, seed=context.seed)
    return _with_options(scheme, options, experts)


def prefixes(options: PrefixOptions, context: BuildContext) -> StartScheme:
    """The scheme ``prefixes``."""
    return Prefixes(options)


def _with_options(scheme: StartScheme, options: ExpertOptions, experts: Experts) -> StartScheme:
    # With `expert: own` there are no own successes yet, so reference solutions are demonstrated.
    shown = experts if options.expert == "episodes" else ReferenceSolutions()
    whole = _demonstrating(scheme, options, shown)
    return ForkedStarts(whole, options.max_snapshots) if options.restore == "fork" else whole


def _demonstrating(scheme: StartScheme, options: InitialOptions, experts: Experts) -> StartScheme:
    return WithDemonstrations(scheme, options, experts) if options.demonstrations else scheme


def experts_of(options: ExpertOptions) -> tuple[Experts, bool]:
    """The experts, and whether every task must have one.

    Raises:
        InputError: `expert_run` is not a run, or has no success.
    """
    strict = options.missing == "error"
    if options.expert_run is not None:
        return stored_successes(
            RunReader(options.expert_run), options.prefer, options.check
        ), strict
    if options.expert == "solution":
        return ReferenceSolutions(), strict
    before = ReferenceSolutions() if options.fallback_expert == "solution" else None
    return OwnSuccesses(before, options.prefer, options.check), strict and before is not None
