"""Causes of broken episodes, and training steps that learned nothing."""

from typing import Any

import pytest
from attrs import evolve

from ale.runs import Causes, Index, adapted, learning
from ale.testing.builders import episode
from ale.text import counted, size
from ale.types import Episode, Failure


def broken(message: str, kind: str = "LLMError") -> Episode:
    failure = Failure(stage="agent", kind=kind, message=message)
    return evolve(episode(None), failure=failure)


def test_messages_that_differ_only_in_ids_and_ports_are_one_cause() -> None:
    causes = Causes()
    for port in (40001, 40002, 40003):
        causes.add(broken(f"connection refused at 127.0.0.1:{port}"))
    causes.add(broken("status 500"))
    causes.add(broken("status 404"))
    causes.add(episode(1.0))
    assert list(causes.lines(2)) == [
        "3 x agent: LLMError: connection refused at 127.0.0.1:40001",
        "1 x agent: LLMError: status 500",
        "1 x for other reasons",
    ]


def test_refusals_of_the_context_size_are_one_cause_for_tasks_of_any_length() -> None:
    causes = Causes()
    for n_tokens in (640, 1034):
        causes.add(broken(f"{n_tokens} tokens, and the context has 512", "ContextLengthError"))
    assert [cause.n for cause in causes.common(9)] == [2]


def test_the_end_of_a_long_message_is_shown_as_it_has_the_reason() -> None:
    causes = Causes()
    causes.add(broken(f"setup step '{'make all; ' * 60}': exit code 127: no such program"))
    (cause,) = causes.common(1)
    assert cause.message.startswith("agent: LLMError: setup step 'make all;")
    assert cause.message.endswith("exit code 127: no such program")
    assert len(cause.message) == 200


def step(number: int, **metrics: float) -> dict[str, Any]:
    return {"event": "step_finished", "step": number, "metrics": metrics}


def index(*rewards: tuple[int, float]) -> Index:
    made = Index()
    for number, (at, reward) in enumerate(rewards):
        made.add(evolve(episode(reward), step=at, rollout=number), number)
    return made


@pytest.mark.parametrize(
    ("updates", "rewards", "expected"),
    [
        ([4, 4], [(0, 1.0), (0, 0.0)], None),
        ([], [(0, 1.0)], None),
        (
            [0, 0],
            [(0, 1.0), (0, 1.0), (1, 0.0), (1, 0.0)],
            "no update in any step: nothing was learned (no group had two different rewards)",
        ),
        (
            [0, 4, 0],
            [(0, 1.0), (0, 1.0), (2, 0.0), (2, 1.0)],
            "no update in 2 of 3 steps (no group had two different rewards in 1 of them)",
        ),
        ([0], [], "no update in any step: nothing was learned"),
    ],
)
def test_steps_without_an_update_are_reported_with_the_reason(
    updates: list[float], rewards: list[tuple[int, float]], expected: str | None
) -> None:
    events = [step(number, updates=value) for number, value in enumerate(updates)]
    assert learning(events, index(*rewards)).warning() == expected


def test_a_step_whose_loss_was_not_finite_is_not_said_to_have_had_equal_rewards() -> None:
    skipped = step(0, updates=0, steps_skipped=1)
    equal = index((0, 1.0), (0, 1.0), (1, 1.0), (1, 1.0))
    assert learning([skipped], equal).warning() == (
        "no update in any step: nothing was learned (a loss or gradient was not finite)"
    )
    assert learning([skipped, step(1, updates=0), step(2, updates=1)], equal).warning() == (
        "no update in 2 of 3 steps (a loss or gradient was not finite in 1 of them, no group had "
        "two different rewards in 1 of them)"
    )


def test_a_step_whose_gradient_was_0_is_said_to_have_had_no_token_left() -> None:
    dropped = step(0, updates=0, updates_without_gradient=2)
    different = index((0, 1.0), (0, 0.0))
    assert learning([dropped], different).warning() == (
        "no update in any step: nothing was learned (every token was masked, clipped or dropped by "
        "the correction)"
    )
    undone = step(0, updates=0, updates_without_gradient=1, steps_skipped=1)
    assert "dropped" not in str(learning([undone], different).warning())
    partly = step(0, updates=1, updates_without_gradient=1)
    assert learning([partly], different).warning() is None


def test_a_trainer_that_reports_no_updates_gets_no_warning() -> None:
    assert learning([step(0, rows=8)], index((0, 1.0))).warning() is None


FOUND: dict[str, Any] = {
    "event": "concurrency",
    "before": 8,
    "limit": 16,
    "proved": 16,
    "why": "1.9 times the throughput",
}


def asked(to: int, *, auto: bool = False) -> dict[str, Any]:
    return {"event": "steered", "action": "concurrency", "concurrency": to, "auto": auto}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], None),
        ([FOUND], "16 at once  (8 to 16 were tried, in 1 change; 1.9 times the throughput)"),
        ([asked(3)], "3 at once, as was asked"),
        ([FOUND, asked(3)], "3 at once, as was asked  (auto had come to 16)"),
        ([FOUND, asked(3), {**asked(3), "action": "pause"}], "3 at once, as was asked"),
        ([FOUND, asked(3, auto=True)], "3 at once, with which auto begins"),
        ([asked(3, auto=True), FOUND], "16 at once  ("),
        ([FOUND, asked(3), {"event": "run_resumed"}], "16 at once  ("),
        ([asked(3), {"event": "run_resumed"}], None),
        (
            [FOUND, {"event": "config_changed", "changes": {"run.concurrency": {"now": 4}}}],
            None,
        ),
    ],
)
def test_the_number_of_episodes_at_once_that_holds(
    events: list[dict[str, Any]], said: str | None
) -> None:
    found = adapted(events)
    assert found is said is None or str(found).startswith(str(said))


def test_numbers_are_counted_in_words_and_bytes_have_a_unit() -> None:
    assert [counted(n, "episode") for n in (0, 1, 1200)] == [
        "0 episodes",
        "1 episode",
        "1,200 episodes",
    ]
    assert [size(n) for n in (812, 34_480, 1_240_000)] == ["812 B", "34.5 kB", "1.2 MB"]
