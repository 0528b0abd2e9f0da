"""Until which step the reward rose: what the number is, and what it is for runs of pure noise."""

import random
from typing import Any

import pytest

from ale_look.inspect.progress import FEWEST, progress, progress_of


def rewards(seed: int, *, rise: int, n: int = 60, noise: float = 0.05) -> dict[int, float]:
    """From 0.1 to 0.7 over the first `rise` steps, then the same."""
    rng = random.Random(seed)
    return {step: 0.1 + 0.6 * min(1.0, step / rise) + rng.gauss(0, noise) for step in range(n)}


def rose_until(values: dict[int, float]) -> int | None:
    found = progress(values, dict.fromkeys(values, 1.0))
    assert found is not None
    return found.rising_from


@pytest.mark.parametrize("seed", range(5))
def test_it_is_before_the_step_at_which_a_rise_ended(seed: int) -> None:
    found = rose_until(rewards(seed, rise=30))
    assert found is not None
    assert 15 <= found <= 30


@pytest.mark.parametrize("seed", range(5))
def test_a_reward_that_rises_to_the_end_is_late(seed: int) -> None:
    found = rose_until(rewards(seed, rise=59))
    assert found is not None
    assert found >= 35


def test_noise_alone_rarely_rises() -> None:
    """Among all beginnings of a run of 60 steps one run in some sixty shows a rise by chance."""
    flat = [
        rose_until({s: random.Random(1000 * k + s).random() for s in range(60)}) for k in range(200)
    ]
    assert sum(found is not None for found in flat) / len(flat) < 0.04


def test_equal_rewards_are_no_rise() -> None:
    assert rose_until(dict.fromkeys(range(20), 0.5)) is None
    falling = {step: -float(step) for step in range(20)}
    assert rose_until(falling) is None


def test_few_steps_say_nothing() -> None:
    assert progress(dict.fromkeys(range(FEWEST - 1), 0.5), {}) is None
    assert progress_of([]) is None


def test_a_steady_rise_goes_to_the_end_and_the_last_update_is_named() -> None:
    values = {step: float(step) for step in range(20)}
    found = progress(values, {step: float(step < 15) for step in range(20)})
    assert found is not None
    assert found.value == "until the end, step 19"
    assert found.reason == (
        "steps 12 to 19 show a rise; from a later step on, none can be told from noise; "
        "no update after step 14"
    )


def test_it_is_read_from_the_steps_of_a_run() -> None:
    def finished(step: int) -> dict[str, Any]:
        return {
            "event": "step_finished",
            "step": step,
            "metrics": {"mean_reward": min(step, 10) / 10, "updates": 1.0},
        }

    found = progress_of([{"event": "run_started"}, *map(finished, range(40))])
    assert found is not None
    assert found.rising_from is not None
    assert found.value == f"at least until step {found.rising_from}"
    assert 5 <= found.rising_from <= 10
