"""Which episodes are held whole, and how curves are scaled."""

import re

import pytest

from ale_inspect.report.choosing import order, spread
from ale_inspect.report.curves import Chart, Series
from ale_inspect.report.drawing import draw, sparkline
from ale_inspect.report.gathering import Head


def heads(steps: int, tasks: int = 2, rollouts: int = 4) -> list[Head]:
    """Each first rollout a success, each last one broken."""
    made = []
    for step in range(steps):
        for task in range(tasks):
            for rollout in range(rollouts):
                reward = None if rollout == rollouts - 1 else float(rollout == 0)
                made.append(
                    Head(
                        offset=len(made),
                        id=f"{step}-t{task}-{rollout}",
                        task_id=f"t{task}",
                        kind="train",
                        step=step,
                        rollout=rollout,
                        reward=reward,
                        turns=1,
                        seconds=1.0,
                    )
                )
    return made


def test_every_episode_comes_once() -> None:
    given = heads(7)
    assert sorted(order(given)) == sorted(given)


def test_the_last_success_and_failure_of_each_task_come_first() -> None:
    first = [head.id for head in list(order(heads(10)))[:4]]
    assert first == ["9-t0-0", "9-t0-2", "9-t1-0", "9-t1-2"]


def test_any_beginning_lies_evenly_over_the_steps() -> None:
    chosen = [head.step for head in list(order(heads(64)))[4:24]]
    gaps = [b - a for a, b in zip(sorted(chosen), sorted(chosen)[1:], strict=False)]
    assert min(chosen) == 0
    assert max(chosen) >= 59
    assert max(gaps) <= 8


def test_a_step_gives_its_best_its_worst_and_a_broken_one_in_turn() -> None:
    alone = [head.reward for head in list(order(heads(1, tasks=1, rollouts=6)))]
    assert alone[:3] == [1.0, 0.0, None]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 17])
def test_a_spread_order_holds_everything(n: int) -> None:
    assert sorted(spread(range(n))) == list(range(n))


def chart(*ys: float, xs: tuple[float, ...] = (), **fields: object) -> str:
    made = Series(name="a", xs=xs or tuple(range(len(ys))), ys=ys)
    return draw(Chart(title="a", series=(made,), **fields))  # type: ignore[arg-type]


def test_axes_enclose_what_they_show() -> None:
    for ys in (
        (0.0, 0.0),
        (-3.0, 5.0),
        (1e-9, 2e-9),
        (7.0,),
        (1e20, 1.0),
        (-2.0, -1.0),
        (1e-30, 1e-30),
    ):
        drawn = chart(*ys)
        numbers = [float(n) for n in _points(drawn)]
        assert all(-1 <= n <= 1001 for n in numbers), (ys, numbers)


def _points(drawn: str) -> list[str]:
    (points,) = re.findall(r'class="line c0" points="([^"]*)"', drawn)
    return [number for pair in points.split() for number in pair.split(",")]


def test_rounding_noise_is_a_flat_line_with_ticks_that_differ() -> None:
    drawn = chart(1.0, 1.0000001, 1.0)
    heights = [float(n) for n in _points(drawn)[1::2]]
    assert max(heights) - min(heights) < 1
    ticks = re.findall(r'class="y"[^>]*>([^<]*)<', drawn)
    assert len({*ticks}) == len(ticks) >= 3


def test_values_over_many_orders_of_magnitude_have_an_axis_of_powers() -> None:
    ys = [float(n) for n in _points(chart(1.0, 100.0, 10_000.0))[1::2]]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)


def test_shares_are_percent_and_steps_are_whole() -> None:
    drawn = chart(0.0, 0.5, 1.0, xs=(0, 20, 40), share=True)
    for said in (">0%<", ">100%<", ">0<", ">40<"):
        assert said in drawn
    assert ">0.5<" not in drawn


def test_a_small_curve_needs_two_points() -> None:
    assert sparkline([0.5]) == ""
    assert "polyline" in sparkline([0.0, 1.0])
