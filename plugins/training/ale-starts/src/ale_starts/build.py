"""From options to schemes."""

from ale.plugin import BuildContext
from ale.protocols import StartScheme
from ale.runs import RunReader
from ale_starts.demonstrations import Experts, Own, Solutions, stored
from ale_starts.options import ExpertOptions, InitialOptions, ParallelOptions, RollbackOptions
from ale_starts.restoring.scheme import ForkedStarts
from ale_starts.schemes import Demonstrating, Initial, Parallel, Rollback


def initial(options: InitialOptions, context: BuildContext) -> StartScheme:
    """The scheme ``initial``."""
    return _demonstrating(Initial(), options, Solutions())


def rollback(options: RollbackOptions, context: BuildContext) -> StartScheme:
    """The scheme ``rollback``. Raises as `experts_of`."""
    experts, must_have = experts_of(options)
    return _begun(Rollback(options, experts, must_have=must_have), options, experts)


def parallel(options: ParallelOptions, context: BuildContext) -> StartScheme:
    """The scheme ``parallel``. Raises as `experts_of`."""
    experts, must_have = experts_of(options)
    scheme = Parallel(options, experts, must_have=must_have, seed=context.seed)
    return _begun(scheme, options, experts)


def _begun(scheme: StartScheme, options: ExpertOptions, experts: Experts) -> StartScheme:
    # The policy's own successes come after the demonstrations: these are of solutions then.
    shown = experts if options.expert == "episodes" else Solutions()
    whole = _demonstrating(scheme, options, shown)
    return ForkedStarts(whole, options.keep) if options.restore == "fork" else whole


def _demonstrating(scheme: StartScheme, options: InitialOptions, experts: Experts) -> StartScheme:
    return Demonstrating(scheme, options, experts) if options.demonstrations else scheme


def experts_of(options: ExpertOptions) -> tuple[Experts, bool]:
    """Who the experts are, and whether every task must have one.

    Raises:
        InputError: the stored run is none, or has no success.
    """
    strict = options.missing == "error"
    if options.expert_run is not None:
        return stored(RunReader(options.expert_run), options.prefer, options.check), strict
    if options.expert == "solution":
        return Solutions(), strict
    before = Solutions() if options.until_own == "solution" else None
    return Own(before, options.prefer, options.check), strict and before is not None
