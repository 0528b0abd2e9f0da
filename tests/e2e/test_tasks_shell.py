"""The generated shell tasks through `ale run`, with the real criteria and the real sandbox."""

from typing import Any

import pytest

SPLITS = {"train": [1, 10], "held_out_parameters": [1, 10], "held_out_compositions": [2, 10]}


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("noop", 0.0)])
@pytest.mark.parametrize("split", SPLITS)
def test_generated_tasks_are_solved_by_their_solutions_and_by_nothing_else(
    workshop: Any, split: str, agent: str, reward: float
) -> None:
    tasks = {"type": "shell", "seed": 21, "count": 40, "split": split, "length": SPLITS[split]}
    config = workshop.config(tasks=tasks, agent={"type": agent})
    workshop.succeeds("run", str(config), "-n", "4")
    episodes = workshop.episodes()
    assert len(episodes) == 40
    assert {name for name, each in episodes.items() if each["reward"] != reward} == set()
    assert workshop.left_behind() == []


def test_wrong_options_are_reported_with_their_lines_before_anything_is_run(workshop: Any) -> None:
    text = (
        "tasks:\n  type: shell\n  kinds: [copy, sorrt]\n  length: [1, 20]\n"
        "sandbox: {type: local}\nagent: {type: noop}\n"
    )
    config = workshop.write("run.yaml", text)
    done = workshop.ale("check", str(config))
    assert done.code == 2
    assert "run.yaml:3: tasks.kinds: there is no kind of step 'sorrt'; did you mean" in done.text
    assert "run.yaml:4: tasks.length: expected a number from 1 to 10" in done.text


def test_a_length_that_the_kinds_can_not_make_is_reported_before_anything_is_run(
    workshop: Any,
) -> None:
    tasks = {"type": "shell", "kinds": ["copy"], "split": "held_out_compositions"}
    config = workshop.config(tasks=tasks, agent={"type": "noop"})
    done = workshop.ale("run", str(config))
    assert done.code == 2
    assert "no task of split 'held_out_compositions' takes 1 to 4 commands with copy" in done.text
    assert workshop.runs == []
