"""Start schemes in the run's real loop: real commands in real folders, a policy that learns."""

import shutil
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from ale._run.run import Run
from ale._run.start import resume
from ale.errors import InputError
from ale.types import Episode, Task, replace
from ale_starts.commands import forks

Finish = Callable[[Run], Any]
ROLLBACK = {"type": "rollback", "min_rollouts": 2}


def stored(run: Run) -> Mapping[str, Episode]:
    return {episode.id: episode for episode in run.store.reader.episodes}


def by_step(run: Run) -> list[list[tuple[str, float | None]]]:
    """Start and reward of every episode, step by step."""
    found: dict[int, list[tuple[str, float | None]]] = {}
    for episode in run.store.reader.episodes:
        found.setdefault(episode.step, []).append((episode.start, episode.reward))
    return [sorted(found[step], key=str) for step in sorted(found)]


def forced(episode: Episode) -> list[bool]:
    return [turn.completion.forced for turn in episode.trajectory.turns]


async def test_rollback_learns_from_the_end_what_starting_at_the_beginning_never_does(
    workplace: Any, finish: Finish
) -> None:
    run = workplace.prepared(ROLLBACK, steps=5, rollouts=2)
    await finish(run)
    assert by_step(run) == [
        [("p3of4", 1.0)] * 2,
        [("p2of4", 1.0)] * 2,
        [("p1of4", 1.0)] * 2,
        [("", 1.0)] * 2,
        [("", 1.0)] * 2,
    ]
    initial = workplace.prepared({"type": "initial"}, steps=5, rollouts=2)
    await finish(initial)
    assert by_step(initial) == [[("", 0.0)] * 2] * 5


async def test_the_experts_turns_are_forced_and_act_in_the_sandbox(
    workplace: Any, finish: Finish
) -> None:
    run = workplace.prepared(ROLLBACK, steps=2, rollouts=2)
    await finish(run)
    episode = stored(run)["1-upper@p2of4-1"]
    assert forced(episode) == [True, True, False, False]
    assert [turn.observations[0].content for turn in episode.trajectory.turns] == [
        "[exit code 0]",
        "[exit code 0]",
        "ONE\n[exit code 0]",
        "finished",
    ]


@pytest.mark.parametrize("n_stored", [1, 2, 5, 7])
@pytest.mark.parametrize("type", ["rollback", "parallel"])
async def test_a_resumed_run_continues_with_the_same_starts(
    workplace: Any, finish: Finish, n_stored: int, type: str
) -> None:
    starts = {"type": type, "expert": "own", "demonstrations": 1}
    run = workplace.prepared(starts, steps=4, rollouts=4, concurrency=1, keep_checkpoints=None)
    await finish(run)
    before, path = stored(run), run.store.path
    lines = (path / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (path / "episodes.jsonl").write_bytes(b"".join(lines[:n_stored]))
    complete = (n_stored - 1) // 4  # step 0 is one demonstration
    for folder in sorted((path / "checkpoints").iterdir())[1 + complete :]:
        shutil.rmtree(folder)
    for credits in sorted((path / "credits").iterdir())[1 + complete :]:
        credits.unlink()
    again = resume(path, workplace.outside())
    await finish(again)
    after = stored(again)
    assert {*after} == {*before}
    assert all(after[name].trajectory == before[name].trajectory for name in before)
    assert all(after[name].reward == before[name].reward for name in before)
    for name in before:  # each attempt has a sandbox of its own
        metadata = [{**one[name].metadata, "workdir": None} for one in (before, after)]
        assert metadata[0] == metadata[1]
    assert len(list(again.store.reader.episodes)) == len(before)


async def test_demonstrations_say_the_solution_to_its_end_then_the_scheme_begins(
    workplace: Any, finish: Finish, another_task: Callable[..., Task]
) -> None:
    workplace.shop.tasks = [another_task(), replace(another_task("bare"), solution=None)]
    starts = {"type": "initial", "demonstrations": 2}
    run = workplace.prepared(starts, steps=3, rollouts=2)
    await finish(run)
    assert {*stored(run)} == {
        "0-upper@demo-0",
        "1-upper@demo-0",
        *(f"2-{name}-{rollout}" for name in ("upper", "bare") for rollout in (0, 1)),
    }
    demonstrated = stored(run)["0-upper@demo-0"]
    assert forced(demonstrated) == [True] * 4
    assert demonstrated.reward == 1.0
    assert demonstrated.trajectory.stop.reason == "finished"
    again = stored(run)["1-upper@demo-0"]
    messages = [turn.completion.message for turn in demonstrated.trajectory.turns]
    assert [turn.completion.message for turn in again.trajectory.turns] == messages


async def test_a_stored_runs_success_is_repeated_and_checked(
    workplace: Any, finish: Finish, another_task: Callable[..., Task]
) -> None:
    before = workplace.prepared({"type": "initial", "demonstrations": 1}, steps=1)
    await finish(before)
    starts = {**ROLLBACK, "expert": "episodes", "expert_run": str(before.store.path)}
    run = workplace.prepared(starts, steps=2, rollouts=2)
    await finish(run)
    assert by_step(run) == [[("p3of4", 1.0)] * 2, [("p2of4", 1.0)] * 2]

    # The same task in a world in which its first command fails.
    workplace.shop.tasks = [another_task(setup_steps=("mkdir w",))]
    astray = workplace.prepared(starts, steps=1, rollouts=2, retries=1)
    await finish(astray)
    lost = stored(astray)["0-upper@p3of4-0"]
    assert lost.reward is None
    assert lost.failure is not None
    assert lost.failure.kind == "ReplayError"
    assert "recorded  '[exit code 0]'" in lost.failure.message
    assert "found     '[exit code 1]'" in lost.failure.message
    assert len(lost.earlier_failures) == 1


async def test_what_the_expert_says_next_is_kept_from_every_start_and_never_done(
    workplace: Any, finish: Finish
) -> None:
    run = workplace.prepared({"type": "parallel", "anchors": 4}, steps=1, rollouts=4)
    await finish(run)
    found = stored(run)
    for p, name in enumerate(("", "@p1of4", "@p2of4", "@p3of4")):
        episode = found[f"0-upper{name}-0"]
        following = episode.metadata["expert_next"]
        assert (following["turn"], episode.metadata["expert_turns"]) == (p, 4)
        text = bytes(following["output_ids"]).decode()
        assert ("mkdir w", "echo one", "tr a-z", "finish")[p] in text
        # The policy does nothing where it knows nothing: the expert's command was not run.
        assert (episode.reward == 1.0) == (p == 3)


async def test_a_stored_runs_episodes_are_demonstrated_to_their_last_turn(
    workplace: Any, finish: Finish, another_task: Callable[..., Task]
) -> None:
    before = workplace.prepared({"type": "initial", "demonstrations": 1}, steps=1)
    await finish(before)
    # Nothing but the stored episode can be said: the task has no solution any more.
    workplace.shop.tasks = [replace(another_task(), solution=None), another_task("new")]
    starts = {
        **ROLLBACK,
        "expert": "episodes",
        "expert_run": str(before.store.path),
        "missing": "initial",
        "demonstrations": 1,
    }
    run = workplace.prepared(starts, steps=1, rollouts=2)
    await finish(run)
    (name,) = stored(run)
    assert name == "0-upper@demo-0", "a task that the stored run did not solve is left out"
    demonstrated = stored(run)[name]
    assert forced(demonstrated) == [True] * 4
    assert demonstrated.reward == 1.0
    assert demonstrated.trajectory.turns[-1].completion.message.tool_calls[0].name == "finish"
    assert "expert_next" not in demonstrated.metadata


async def test_a_stored_run_without_a_success_is_bad_input_before_anything_runs(
    workplace: Any, finish: Finish
) -> None:
    before = workplace.prepared({"type": "initial"}, steps=1)
    await finish(before)
    starts = {**ROLLBACK, "expert": "episodes", "expert_run": str(before.store.path)}
    with pytest.raises(InputError, match="no successful episode"):
        workplace.prepared(starts)


async def test_the_forks_of_a_run_are_shown(workplace: Any, finish: Finish) -> None:
    run = workplace.prepared({"type": "parallel", "anchors": 4}, steps=1, rollouts=32)
    await finish(run)
    shown = CliRunner().invoke(forks, [str(run.store.path)])
    assert shown.exit_code == 0, shown.output
    # The policy knows nothing yet: it succeeds only where all commands have been said.
    rows = [line.split() for line in shown.output.splitlines()[2:6]]
    assert [row[:4] for row in rows] == [
        ["0", "0", "of", "8"],
        ["1", "0", "of", "8"],
        ["2", "0", "of", "8"],
        ["3", "8", "of", "8"],
    ]
    assert ["crucial" in row for row in rows] == [False, False, True, False]
    assert '"tr a-z A-Z < w/a > w/b; cat w/b"' in shown.output
