"""What the study compares: grids of cells, each against the first cell of its grid.

To add a cell to a grid that has been run, give its grid a new name, or delete its folder.
"""

from collections.abc import Sequence

from attrs import frozen

GROUP = "credit.type=grpo"
RATES = "trainer.lr=1e-4,3e-4,1e-3"
_SWEEP_SEEDS = 2
"""The default of `ale ablate --sweep-seeds`."""


@frozen
class Cell:
    """One line of a table."""

    label: str
    overrides: tuple[str, ...]
    """As `ale ablate --cell` takes them."""


@frozen(kw_only=True)
class Plan:
    """One grid: a question, and the cells that answer it."""

    name: str
    title: str
    config: str
    """In configs/study."""
    warm_steps: int
    """Steps of configs/study/warm.yaml after which its runs begin with that policy."""
    cells: tuple[Cell, ...]
    first: str = ""
    """The grid whose first cell stands in front of these: it is not run twice."""
    sweep: str = ""
    """As `ale ablate --sweep` takes it: chosen for each cell by seeds that are not reported."""

    @property
    def n_sweep(self) -> int:
        """Runs that choose the value of one cell."""
        return _SWEEP_SEEDS * (self.sweep.count(",") + 1) if self.sweep else 0


def _cell(label: str, *overrides: str) -> Cell:
    return Cell(label, overrides)


OBJECTIVES = Plan(
    name="objectives",
    title="Chunk-level IPA against Eq. 6, GRPO, GSPO, CISPO and Dr. GRPO",
    config="learn",
    warm_steps=22,
    sweep=RATES,
    cells=(
        _cell("IPA (Eq. 9)", "credit.type=ipa"),
        _cell("trajectory level (Eq. 6)", "credit.gamma=1", "trainer.objective=ipa-baseline"),
        _cell("GRPO", GROUP, "trainer.objective={preset: grpo, kl: off}"),
        _cell("GSPO", GROUP, "trainer.objective=gspo"),
        _cell("CISPO", GROUP, "trainer.objective=cispo"),
        _cell("Dr. GRPO", "credit.type=dr-grpo", "trainer.objective=dr-grpo"),
    ),
)

STARTS = Plan(
    name="starts",
    title="Where rollouts begin, on tasks too hard for the beginning",
    config="hard",
    warm_steps=16,
    cells=(
        _cell("at the beginning", "starts.type=initial"),
        _cell("sequential rollback", "starts.type=rollback"),
        _cell("parallel anchors", "starts.type=parallel"),
    ),
)

GAMMA = Plan(
    name="gamma",
    title="Gamma",
    config="learn",
    warm_steps=22,
    cells=(
        _cell("gamma 0.95", "credit.gamma=0.95"),
        _cell("gamma 0.8", "credit.gamma=0.8"),
        _cell("gamma 0.5", "credit.gamma=0.5"),
        _cell("gamma 1e-6: the last chunk alone", "credit.gamma=0.000001"),
    ),
)

NEGATIVE = Plan(
    name="negative",
    title="Failures that teach, and IPA's parts for them",
    config="learn",
    warm_steps=22,
    first="objectives",
    sweep=RATES,
    cells=(
        _cell("failures weigh -0.05", "credit.failure_reward=-0.05"),
        _cell(
            "-0.05, trajectory level (Eq. 6)",
            "credit.failure_reward=-0.05",
            "credit.gamma=1",
            "trainer.objective=ipa-baseline",
        ),
        _cell(
            "-0.05, without the clamp",
            "credit.failure_reward=-0.05",
            "trainer.objective={preset: ipa, negative: none}",
        ),
        _cell(
            "-0.05, ratio of the trajectory",
            "credit.failure_reward=-0.05",
            "trainer.objective={preset: ipa, ratio: trajectory}",
        ),
        _cell(
            "-0.05, ratio of the token",
            "credit.failure_reward=-0.05",
            "trainer.objective={preset: ipa, ratio: token}",
        ),
    ),
)

STALE = Plan(
    name="stale",
    title="The mask and its H, on rollouts up to four versions old",
    config="stale",
    warm_steps=22,
    cells=(
        _cell("H = 2", "trainer.objective=ipa"),
        _cell("H = 1.1", "trainer.objective={preset: ipa, mask_threshold: 1.1}"),
        _cell("no mask", "trainer.objective={preset: ipa, mask: none}"),
        _cell("trajectory level (Eq. 6)", "credit.gamma=1", "trainer.objective=ipa-baseline"),
    ),
)

PLANS: Sequence[Plan] = (OBJECTIVES, STARTS, GAMMA, NEGATIVE, STALE)
