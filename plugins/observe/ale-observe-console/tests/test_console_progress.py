"""Counts, rates and the text that shows them."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ale.testing.observer import ended, evaluated, report, started, steered
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    Score,
    Stage,
    StepFinished,
    StepReport,
    replace,
)
from ale_observe_console import layout
from ale_observe_console.layout import duration, shorten, speed
from ale_observe_console.progress import Progress, Rate


def lines(progress: Progress, now: float, width: int = 79, height: int = 24) -> list[str]:
    """The frame as a terminal without colours shows it."""
    stream = io.StringIO()
    frame = layout.frame(progress, now, name_running=3, width=width)
    Console(file=stream, width=width, color_system=None).print(layout.stack(frame))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def enter(progress: Progress, number: int, stage: Stage, now: float) -> None:
    progress.enter(EpisodeStage(episode_id=f"0-demo-{number}", task_id="demo", stage=stage), now)


def half_way() -> Progress:
    """A resumed run: 2 of 8 done before, then one success, one failure, one broken in 60 s."""
    progress = Progress.start(started("x", n_done=2, n_graded=1, n_succeeded=1), now=0.0)
    for number, reward, now in ((0, 1.0, 20.0), (1, 0.0, 40.0), (2, None, 60.0)):
        enter(progress, number, "agent", now - 20)
        progress.finish(ended(number, reward), now)
    return progress


def test_a_broken_episode_is_done_but_not_graded() -> None:
    progress = half_way()
    assert (progress.n_done, progress.n_graded, progress.n_succeeded) == (5, 3, 2)
    assert progress.n_broken == 2


def test_what_ran_out_of_time_or_was_damaged_is_counted() -> None:
    progress = half_way()
    late = Score(criterion="tests", passed=False, value=0.0, timed_out=True)
    for number, more in ((3, {"scores": (late,)}), (4, {"metadata": {"damaged": "no shell"}})):
        event = ended(number, 0.0)
        progress.finish(replace(event, episode=replace(event.episode, **more)), 60.0)
    assert "broken 2  timed out 1  damaged 1" in lines(progress, 60.0)[1]
    assert "broken 2, timed out 1, damaged 1" in layout.update(progress, 60.0)
    assert "broken 2, timed out 1, damaged 1" in layout.closing(progress, 60.0)


def test_episodes_from_before_a_resume_do_not_count_towards_the_rate() -> None:
    assert half_way().rate.per_s(60.0) == 3 / 60


def test_time_left_is_estimated_from_the_current_rate() -> None:
    assert half_way().left_s(60.0) == 60.0


def test_time_left_is_unknown_before_the_first_episode_and_without_a_total() -> None:
    assert Progress.start(started("x"), now=0.0).left_s(10.0) is None
    progress = Progress.start(started("x", None), now=0.0)
    progress.finish(ended(0, 1.0), 1.0)
    assert progress.left_s(2.0) is None


def test_the_rate_forgets_what_was_more_than_a_minute_ago() -> None:
    rate = Rate(0.0, least=1)
    for second in range(1, 101):
        rate.add(float(second))
    for second in range(102, 182, 2):
        rate.add(float(second))
    assert rate.per_s(180.0) == pytest.approx(0.5, rel=0.05)


def test_the_window_grows_until_it_holds_enough_slow_episodes() -> None:
    rate = Rate(0.0, least=4)
    for number in range(1, 9):
        rate.add(600.0 * number)
    assert rate.per_s(4800.0) == pytest.approx(1 / 600)


def test_the_rate_falls_while_nothing_finishes() -> None:
    rate = Rate(0.0, least=1)
    rate.add(10.0)
    assert (rate.per_s(10.0), rate.per_s(100.0)) == (0.1, 0.01)


def test_the_rate_keeps_one_mark_per_second() -> None:
    rate = Rate(0.0, least=8)
    for number in range(100_000):
        rate.add(number / 1000)
    assert len(rate._marks) <= 62
    assert rate.per_s(100.0) == pytest.approx(1000, rel=0.02)


def test_an_episode_is_running_from_its_sandbox_to_its_end() -> None:
    progress = Progress.start(started("x"), now=0.0)
    enter(progress, 0, "queued", 0.0)
    assert progress.longest(9) == []
    enter(progress, 0, "sandbox", 5.0)
    enter(progress, 1, "sandbox", 7.0)
    enter(progress, 0, "agent", 9.0)
    assert [(e.episode_id, e.stage, e.since) for e in progress.longest(1)] == [
        ("0-demo-0", "agent", 5.0)
    ]
    progress.finish(ended(0, 1.0), 10.0)
    enter(progress, 0, "teardown", 10.0)
    assert [e.episode_id for e in progress.longest(9)] == ["0-demo-1"]


def test_durations_have_two_units() -> None:
    assert [duration(s) for s in (-1, 4.9, 192, 7500, 273600)] == [
        "0s",
        "4s",
        "3m12s",
        "2h05m",
        "3d04h",
    ]


def test_speeds_use_a_readable_unit() -> None:
    assert [speed(r) for r in (250.0, 2.5, 0.05, 0.0005, 0.0001)] == [
        "250/s",
        "2.5/s",
        "3.0/min",
        "1.8/h",
        "0.4/h",
    ]


@pytest.mark.parametrize("width", [0, 1, 2, 5, 11, 40])
@pytest.mark.parametrize("text", ["0-fix-the-build-12", "日本語のタスク-3", "a\x1b[2Jb\n", ""])
def test_a_shortened_text_fits_and_is_printable(text: str, width: int) -> None:
    short = shorten(text, width)
    assert cell_len(short) <= width
    assert short.isprintable()


def test_the_middle_of_a_long_name_is_left_out() -> None:
    assert shorten("0-fix-the-build-12", 11) == "0-fix~ld-12"


def test_a_frame_at_80_columns() -> None:
    progress = half_way()
    enter(progress, 3, "grading", 30.0)
    enter(progress, 4, "agent", 50.0)
    progress.finish_step(report(7), 0.0)
    assert lines(progress, 60.0) == [
        "5/8 62% ━━━━━━━━━━━━━━━━━━━━━━╸               1m00s left  3.0/min  1m00s so far",
        "success 67% of 3  broken 2  2 running",
        "step 7  loss 0.5  rows 8",
        "     30s grading  0-demo-3",
        "     10s agent    0-demo-4",
    ]


def test_evaluations_are_shown_separately_from_training_episodes() -> None:
    progress = half_way()
    for event in (*evaluated(0, 1), *evaluated(5, 2), *evaluated(10, 4)):
        if isinstance(event, EvaluationFinished):
            progress.finish_evaluation(event)
        elif isinstance(event, EpisodeFinished):
            progress.finish(event, 60.0)
    shown = lines(progress, 60.0)
    assert shown[1].startswith("success 67% of 3  broken 2")
    assert shown[2] == "evaluation  25% of 4 after 0 steps  100% of 4 after 10 steps"
    assert "evaluation, 25% of 4 after 0 steps, 100% of 4" in layout.closing(progress, 60.0)


def test_the_last_evaluation_of_several_samples_shows_pass_at_k_and_the_majority() -> None:
    progress = half_way()
    for step, passed in ((0, 0.25), (10, 0.75)):
        *_, event = evaluated(step, 4)
        assert isinstance(event, EvaluationFinished)
        several = replace(event, k=4, pass_at_k=passed, majority=0.5)
        progress.finish_evaluation(several)
    shown = layout.closing(progress, 60.0)
    assert shown.count("pass@") == 1
    assert shown.endswith("after 10 steps (pass@4 75%, majority 50%)")


def test_evaluations_at_several_temperatures_are_named() -> None:
    progress = half_way()
    for step, n in ((0, 1), (10, 4)):
        for temperature in (0.0, None):
            *_, event = evaluated(step, n)
            assert isinstance(event, EvaluationFinished)
            progress.finish_evaluation(replace(event, temperature=temperature))
    assert layout.closing(progress, 60.0).endswith(
        "evaluation, greedy 25% of 4 after 0 steps, 100% of 4 after 10 steps, "
        "sampled 25% of 4 after 0 steps, 100% of 4 after 10 steps"
    )
    assert lines(progress, 60.0, 130)[-1] == (
        "evaluation  greedy 25% of 4 after 0 steps  100% of 4 after 10 steps"
        "  sampled 25% of 4 after 0 steps  100% of 4 after 10 steps"
    )
    assert lines(progress, 60.0, 79)[-2:] == [
        "evaluation  greedy 25% of 4 after 0 steps  100% of 4 after 10 steps",
        "            sampled 25% of 4 after 0 steps  100% of 4 after 10 steps",
    ]
    assert lines(progress, 60.0, 50)[-2:] == [
        "evaluation  greedy 100% of 4 after 10 steps",
        "            sampled 100% of 4 after 10 steps",
    ]


@pytest.mark.parametrize("width", [20, 39, 79, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    progress = half_way()
    enter(progress, 33333333, "grading", 30.0)
    progress.finish_step(report(7), 0.0)
    assert [line for line in lines(progress, 60.0, width) if cell_len(line) > width] == []


def test_broken_episodes_are_red_where_colour_is_allowed() -> None:
    (_, facts, *_) = layout.frame(half_way(), 60.0, name_running=3, width=79)
    assert isinstance(facts, Text)
    assert [(facts.plain[s.start : s.end], s.style) for s in facts.spans if s.style == "red"] == [
        ("2", "red")
    ]


def test_an_ascii_terminal_is_given_ascii() -> None:
    progress = half_way()
    enter(progress, 3 * 10**40, "grading", 30.0)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    frame = layout.frame(progress, 60.0, name_running=3, width=39)
    Console(file=stream, width=39, color_system=None).print(layout.stack(frame))


def test_more_done_than_planned_fills_the_bar_and_no_more() -> None:
    progress = Progress.start(started("x", 1), now=0.0)
    for number in range(3):
        progress.finish(ended(number, 1.0), 1.0 + number)
    assert "3/1" in lines(progress, 4.0)[0]
    assert cell_len(lines(progress, 4.0)[0]) <= 79


def test_the_plain_lines() -> None:
    progress = half_way()
    enter(progress, 3, "grading", 30.0)
    assert layout.opening(progress) == "ale run run-1: 8 episodes, 4 concurrent, 2 done before"
    assert layout.update(progress, 60.0) == (
        "5/8 episodes done, success 67% of 3, broken 2, 1m00s left, 3.0/min, 1m00s so far, "
        "1 running, longest 30s in grading: 0-demo-3"
    )
    assert layout.closing(progress, 60.0) == (
        "ended after 1m00s: 5/8 episodes, success 67% of 3, broken 2"
    )


def training(n_episodes: int | None, *, steps: int = 14) -> Progress:
    begun = started("x", n_episodes)
    config = {**begun.config, "trainer": {"type": "policy"}, "run": {"steps": steps}}
    return Progress.start(replace(begun, config=config), now=0.0)


def stepped(number: int) -> StepFinished:
    metrics = {"success": 0.25, "mean_reward": 0.425, "seconds": 9.0, "tokens_trained": 32.0}
    metrics |= {"loss": -1.5, "broken": 1, "mean_return": 0.31, "kl_rollout": 0.0021}
    return StepFinished(report=StepReport(step=number, policy_version=number, metrics=metrics))


def test_a_training_run_shows_its_steps_with_their_total_and_the_time_left() -> None:
    progress = training(None)
    assert layout.opening(progress) == (
        "ale run run-1: as many episodes as it takes in 14 steps, 4 concurrent"
    )
    assert lines(progress, 1.0)[0].startswith("0 episodes, 0 steps of 14 0%")
    for number in range(3):
        progress.finish(ended(number, 1.0), 10.0 * number + 5)
        progress.finish_step(stepped(number), 10.0 * (number + 1))
    shown = lines(progress, 32.0)
    assert shown[0].startswith("3 episodes, 3 steps of 14 21%")
    assert "1m48s left" in shown[0]
    assert shown[2].startswith(
        "step 2 (3 of 14)  reward 0.425  success 25%  return 0.31  loss -1.5  kl 0.0021"
    )
    assert ", step 2 (3 of 14), " in layout.update(progress, 32.0)


def test_each_finished_step_has_a_plain_line_once() -> None:
    progress = training(None)
    progress.finish_step(stepped(0), 8.0)
    progress.finish_step(stepped(1), 20.0)
    made = [layout.step_line(progress, each, 20.0) for each in progress.take_steps()]
    facts = "reward 0.425, success 25%, return 0.31, loss -1.5, kl 0.0021, tokens 32, broken 1"
    assert made == [
        f"step 0 (1 of 14): {facts}, 8s, 2m00s left",
        f"step 1 (2 of 14): {facts}, 12s, 2m00s left",
    ]
    assert progress.take_steps() == []


def test_the_time_of_a_pause_is_no_time_per_episode() -> None:
    progress = half_way()
    enter(progress, 3, "agent", 60.0)
    progress.steer(steered("pause", paused=True), 70.0)
    assert lines(progress, 75.0)[0].split("  ")[-3:] == ["paused", "1m15s left", "1m15s so far"]
    progress.finish(ended(3, 1.0), 80.0)  # it ran until then, so that this is time of work
    assert progress.left_s(3600.0) == 2 * 80 / 4
    assert "paused, 40s left, 1h00m so far, 0 running" in layout.update(progress, 3600.0)
    progress.steer(steered("resume"), 3600.0)
    assert progress.left_s(3600.0) == 2 * 80 / 4
    assert "40s left, 3.0/min, 1h00m so far" in layout.update(progress, 3600.0)
    progress.finish(ended(4, 1.0), 3620.0)
    assert progress.left_s(3620.0) == 100 / 5


def test_the_time_of_a_pause_is_no_time_per_step() -> None:
    progress = training(None)
    progress.finish_step(stepped(0), 10.0)
    progress.steer(steered("pause", paused=True), 15.0)
    assert "2m05s left" in lines(progress, 1000.0, 120)[0]
    progress.steer(steered("resume"), 1015.0)
    progress.finish_step(stepped(1), 1020.0)
    made = [layout.step_line(progress, each, 1020.0) for each in progress.take_steps()]
    assert made[1].endswith("10s, 2m00s left")


def test_an_episode_in_the_place_of_a_broken_one_is_one_more() -> None:
    progress = training(2)
    config = {**progress.started.config, "run": {"steps": 14, "rollouts": 2}}
    progress.started = replace(progress.started, config=config)
    for number in (0, 1, 3):
        event = ended(number, 1.0)
        progress.finish(replace(event, episode=replace(event.episode, rollout=number)), 1.0)
    assert "3/3 episodes" in layout.closing(progress, 2.0)


def test_groups_that_lack_an_episode_are_in_the_line_of_their_step() -> None:
    progress = training(None)
    for number, short in enumerate((0.0, 2.0)):
        event = stepped(number)
        metrics = {**event.report.metrics, "groups_short": short}
        progress.finish_step(replace(event, report=replace(event.report, metrics=metrics)), 8.0)
    whole, lacking = (layout.step_line(progress, each, 8.0) for each in progress.take_steps())
    assert "short groups" not in whole
    assert "broken 1, short groups 2, " in lacking


def test_episodes_that_come_from_elsewhere_have_no_total_of_steps() -> None:
    progress = training(None, steps=1)
    progress.finish_step(stepped(0), 8.0)
    (step,) = progress.take_steps()
    assert layout.step_line(progress, step, 8.0).startswith("step 0: reward")
    assert progress.left_s(8.0) is None


def test_a_run_without_training_has_no_steps() -> None:
    assert half_way().steps is None
    assert training(8).steps == (0, 14)
    assert layout.opening(training(8)) == "ale run run-1: 8 episodes in 14 steps, 4 concurrent"
