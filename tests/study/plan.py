"""What the study compares: grids of cells, each against the first cell of its grid.

To add a cell to a grid that has been run, give its grid a new name, or delete its folder.
"""

from collections.abc import Sequence

from attrs import frozen

STARTS = range(5)
"""Policies that runs begin with: each is created from its own seed and imitates for itself."""
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

PLANS: Sequence[Plan] = (OBJECTIVES, PARTS, BEGINNINGS)
