"""What the study compares: grids of cells, each against the first cell of its grid.

To add a cell to a grid that has been run, give its grid a new name, or delete its folder.
"""

from collections.abc import Sequence

from attrs import evolve, frozen

_SWEEP_SEEDS = 2
"""The default of `ale ablate --sweep-seeds`."""


@frozen
class Cell:
    """One line of a table."""

    label: str
    overrides: tuple[str, ...]
    """As `ale ablate --cell` takes them."""
    control: bool = False
    """It learns from something else than rewards, and its rollouts may differ from the others'."""


@frozen(kw_only=True)
class Plan:
    """One grid: a question, and the cells that answer it. It is run from each start."""

    name: str
    title: str
    config: str
    """In configs/study."""
    cells: tuple[Cell, ...]
    starts: range = range(5)
    """Policies that runs begin with: each is created from its own seed and imitates for itself."""
    warm: str = "warm"
    """The config, in configs/study, by which it imitates."""
    seeds: int = 2
    """Runs of each cell from each start, if not said otherwise."""
    page: str = "study"
    """In docs; the page that has its table."""
    fixed: bool = False
    """It was written down before it was run: a start counts when each of its cells is done."""
    contrasts: tuple[tuple[str, str], ...] = ()
    """The primary comparisons, fixed beforehand: of the area under success, cell by cell."""
    described: tuple[tuple[str, str], ...] = ()
    """Further comparisons of the area, which were not fixed beforehand and are not tested."""
    sweep: str = ""
    """As `ale ablate --sweep` takes it: chosen for each cell with the first start, by seeds that
    are not reported."""

    @property
    def n_sweep(self) -> int:
        """Runs that choose the value of one cell."""
        return _SWEEP_SEEDS * (self.sweep.count(",") + 1) if self.sweep else 0


def _cell(label: str, *overrides: str) -> Cell:
    return Cell(label, overrides)


_GROUP = ("credit={type: grpo}", "trainer.correction=truncate")
IMITATION = Cell(
    "more imitation",
    ("starts.demonstrations=1000", "run.tasks_per_step=64", "run.rollouts=1"),
    control=True,
)
BLIND = Cell("weight 1 for every episode", ("credit={type: weight-one}",), control=True)

OBJECTIVES = Plan(
    name="objectives",
    title="Chunk-level IPA against Eq. 6, GRPO, GSPO, CISPO and Dr. GRPO",
    config="learn",
    sweep="trainer.lr=1.5e-4,3e-4,6e-4",
    cells=(
        _cell("IPA (Eq. 9)", "trainer.objective=ipa"),
        _cell("trajectory level (Eq. 6)", "credit.gamma=1", "trainer.objective=ipa-baseline"),
        _cell("GRPO", *_GROUP, "trainer.objective={preset: grpo, kl: off}"),
        _cell("GSPO", *_GROUP, "trainer.objective=gspo"),
        _cell("CISPO", *_GROUP, "trainer.objective=cispo"),
        _cell(
            "Dr. GRPO",
            "credit={type: dr-grpo}",
            "trainer.correction=truncate",
            "trainer.objective=dr-grpo",
        ),
    ),
)

PARTS = Plan(
    name="parts",
    title="IPA beside controls, and its parts one at a time",
    config="learn",
    cells=(
        _cell("IPA", "trainer.objective=ipa"),
        BLIND,
        IMITATION,
        _cell("failures weigh nothing", "credit.failure_reward=0"),
        _cell("without the clamp", "trainer.objective={preset: ipa, negative: none}"),
        _cell("ratio of the trajectory", "trainer.objective={preset: ipa, ratio: trajectory}"),
        _cell("no mask", "trainer.objective={preset: ipa, mask: none}"),
        _cell("H = 1.1", "trainer.objective={preset: ipa, mask_threshold: 1.1}"),
        _cell("gamma 1", "credit.gamma=1"),
        _cell("gamma 0.5", "credit.gamma=0.5"),
    ),
)

BEGINNINGS = Plan(
    name="starts",
    title="Where rollouts begin",
    config="learn",
    cells=(
        _cell("at the beginning", "starts.type=initial"),
        _cell("sequential rollback", "starts.type=rollback"),
        _cell("parallel anchors", "starts.type=parallel"),
        IMITATION,
    ),
)

OUTCOME = _cell("A outcome minus group mean", "credit={type: dr-grpo}")
IPA = _cell("B IPA, gamma 0.95", "credit={type: ipa, gamma: 0.95}")
ORACLE = _cell("C measured worth", "credit={type: measured, rollouts: 4}")
PERMUTED = _cell(
    "D measured worth, permuted", "credit={type: measured, rollouts: 4, permuted: true}"
)
FILTERED = _cell("E filtered imitation", "credit={type: filtered-imitation}")
CREDIT = Plan(
    name="credit",
    title="Credit within an episode against credit by episode",
    config="credit",
    cells=(
        OUTCOME,
        IPA,
        ORACLE,
        PERMUTED,
        FILTERED,
        _cell(
            "F GAE with a critic",
            "credit={type: gae, gamma: 1, lam: 0.95, unit: chunk}",
            "trainer.critic={type: head, lr: 5.0e-3}",
        ),
    ),
    starts=range(100, 124),
    warm="credit-warm",
    seeds=1,
    page="study/credit",
    fixed=True,
    contrasts=((ORACLE.label, PERMUTED.label), (IPA.label, OUTCOME.label)),
    described=(
        (IPA.label, FILTERED.label),
        (FILTERED.label, OUTCOME.label),
        (ORACLE.label, OUTCOME.label),
        (ORACLE.label, FILTERED.label),
    ),
)
CREDIT_ONE = evolve(
    CREDIT,
    name="credit-one",
    title="The same, where a success does not show which action decided it",
    config="credit-one",
)


def _stale(staleness: int) -> Plan:
    at = f"run.staleness={staleness}"
    return Plan(
        name=f"stale-{staleness}",
        title=f"IPA and its parts with samples up to {staleness} versions old",
        config="stale",
        cells=(
            _cell("IPA (Eq. 9)", at, "trainer.objective=ipa"),
            _cell(
                "trajectory level (Eq. 6)", at, "credit.gamma=1", "trainer.objective=ipa-baseline"
            ),
            _cell("without the clamp", at, "trainer.objective={preset: ipa, negative: none}"),
            _cell(
                "staleness masked, H = 1.05",
                at,
                "trainer.old_policy=recompute",
                "trainer.objective={preset: ipa, mask_threshold: 1.05}",
            ),
            _cell(
                "filtered imitation",
                at,
                "credit={type: filtered-imitation, unfinished: failure}",
                "trainer.objective=reinforce",
            ),
        ),
        starts=range(200, 240),
        seeds=1,
        page="study/credit",
        fixed=True,
    )


PLANS: Sequence[Plan] = (OBJECTIVES, PARTS, BEGINNINGS, CREDIT, CREDIT_ONE, _stale(4), _stale(8))
