import pytest

from ale.plugin import BuildContext
from ale.protocols import ComparesRollouts, CreditScheme
from ale.testing.credit import CreditContract
from ale_credit.plugin import ale_credit_schemes

NAMES = (
    "ipa",
    "ipa-lite",
    "reinforce",
    "grpo",
    "dr-grpo",
    "rloo",
    "weight-one",
    "none",
    "filtered-imitation",
    "oracle",
    "gigpo",
    "tree",
    "repair",
    "gae",
    "step-scores",
)
NEED_OPTIONS = ("oracle", "step-scores")
VARIANTS = (
    ("ipa", {"gamma": 1e-300}),
    ("ipa", {"terminal_reward": "all-or-nothing", "failure_reward": -1.0}),
    ("ipa", {"per_chunk_rewards": "terminal-and-errors", "error_penalty": 1e6, "gamma": 1.0}),
    ("ipa-lite", {"weighting": "geometric", "decay": 0.5}),
    ("reinforce", {"gamma": 0.5, "baseline": "batch"}),
    ("grpo", {"std": "population", "eps": 1e-12}),
    ("repair", {"baseline": "none", "repair_bonus": 0.0}),
    ("repair", {"baseline": "batch", "gamma": 1e-300}),
    ("filtered-imitation", {"unfinished": "failure"}),
    ("gigpo", {"state": "observation", "gamma": 1.0}),
    ("gigpo", {"step_weight": 0.0}),
    ("gae", {"unit": "token", "gamma": 0.9}),
    ("gae", {"unit": "turn", "lam": 0.0}),
    *(("step-scores", {"scorer": "s", "form": form}) for form in ("potential", "sum", "min")),
    ("step-scores", {"scorer": "s", "abstained": "skip"}),
    *((name, {}) for name in NAMES if name not in NEED_OPTIONS),
)


def build(name: str, options: dict[str, object]) -> CreditScheme:
    component = next(one for one in ale_credit_schemes() if one.name == name)
    made = None if component.options is None else component.options(**options)
    return component.build(made, BuildContext())


def test_the_package_registers_these_schemes() -> None:
    assert tuple(component.name for component in ale_credit_schemes()) == NAMES


def test_schemes_that_need_several_rollouts_say_so() -> None:
    made = [name for name in NAMES if name not in NEED_OPTIONS]
    found = [name for name in made if isinstance(build(name, {}), ComparesRollouts)]
    assert found == ["grpo", "dr-grpo", "rloo", "gigpo", "tree"]


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
class TestEveryScheme(CreditContract):
    @pytest.fixture
    def scheme(self, name: str, options: dict[str, object]) -> CreditScheme:
        return build(name, options)
