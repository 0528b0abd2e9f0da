"""The kit for start schemes passes a right one and fails wrong ones, each for its own reason."""

import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from ale.protocols import Start
from ale.testing.starts import StartSchemeContract, solved
from ale.types import CompletionRequest, Episode, Message, Task, ToolCall, replace

SEED = 2
"""A seed of the kit under which about half of the episodes succeed."""


class Commands:
    """Says so many commands."""

    def __init__(self, n: int) -> None:
        self.n = n

    def call_id(self, turn: int) -> str:
        return f"call_{turn}"

    def answer(self, request: CompletionRequest) -> Message | None:
        if request.turn >= self.n:
            return None
        text = f'{{"command": "step {request.turn}"}}'
        call = ToolCall(id=self.call_id(request.turn), name="shell", arguments=text)
        return Message(role="assistant", tool_calls=(call,))


class Deeper:
    """Half of the rollouts at the beginning; the others further in with every success so far."""

    def __init__(self) -> None:
        self.won: dict[str, int] = {}

    def expert(self, n: int) -> Callable[[], Any]:
        return lambda: Commands(n)

    def starts(self, task: Task, rollouts: int) -> list[Start]:
        n = 1 + self.won.get(task.id, 0) % 5
        inside = Start(task_id=task.id, rollouts=rollouts // 2, name=f"p{n}", expert=self.expert(n))
        beginning = Start(task_id=task.id, rollouts=rollouts - rollouts // 2)
        return [beginning, inside] if rollouts > 1 else [beginning]

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        known = {task.id: task for task in tasks}
        return [start for task in known.values() for start in self.starts(task, rollouts)]

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        for episode in episodes:
            won = self.won.get(episode.task_id, 0)
            self.won[episode.task_id] = won + (episode.reward == 1.0)


class TestARightScheme(StartSchemeContract):
    @pytest.fixture
    def make_scheme(self) -> Callable[[], Deeper]:
        return Deeper


kit = StartSchemeContract()
tasks = solved()


def changed(**changes: Any) -> type[Deeper]:
    """Every start spoiled in the same way."""

    class Spoiled(Deeper):
        def starts(self, task: Task, rollouts: int) -> list[Start]:
            found = super().starts(task, rollouts)
            made = [{"name": s.name, "expert": s.expert, "rollouts": s.rollouts} for s in found]
            return [Start(task_id=task.id, **{**one, **changes}) for one in made]

    return Spoiled


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        (changed(rollouts=0), "has no rollouts"),
        (changed(rollouts=5), "10 rollouts of 't0', 6 were wanted"),
        (changed(name="p-1"), "can't stand in an id"),
        (changed(name="both"), "every other start has both"),
        (changed(expert=lambda: Commands(1)), "every other start has both"),
        (changed(name="one", expert=lambda: Commands(1)), "a start is duplicated"),
    ],
)
def test_the_kit_fails_starts_that_no_run_can_make(scheme: type[Deeper], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        kit.test_every_start_can_be_rolled_out(scheme, tasks, SEED)


def test_the_kit_fails_a_start_of_a_task_that_was_not_drawn() -> None:
    class Everywhere(Deeper):
        def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
            return super().plan(step, solved(), rollouts)

    with pytest.raises(AssertionError, match="was not drawn"):
        kit.test_every_start_can_be_rolled_out(Everywhere, tasks, SEED)


def test_the_kit_fails_a_scheme_that_starts_a_task_as_often_as_it_is_drawn() -> None:
    class Twice(Deeper):
        def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
            return [start for task in tasks for start in self.starts(task, rollouts)]

    with pytest.raises(AssertionError, match="a start is duplicated"):
        kit.test_a_task_that_is_drawn_twice_in_a_step_is_started_once(Twice, tasks)


def test_the_kit_fails_a_scheme_that_wants_several_rollouts() -> None:
    class Halves(Deeper):
        def starts(self, task: Task, rollouts: int) -> list[Start]:
            return [Start(task_id=task.id, rollouts=rollouts // 2)]

    with pytest.raises(AssertionError, match="has no rollouts"):
        kit.test_one_rollout_is_enough(Halves, tasks)


def test_the_kit_fails_a_scheme_that_moves_on_when_it_is_asked() -> None:
    class Counting(Deeper):
        def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
            for task in tasks:
                self.won[task.id] = self.won.get(task.id, 0) + 1
            return super().plan(step, tasks, rollouts)

    with pytest.raises(AssertionError):
        kit.test_asking_again_gives_the_same_starts(Counting, tasks, SEED)


def test_the_kit_fails_a_scheme_that_learns_only_of_what_it_has_planned_itself() -> None:
    class Forgetful(Deeper):
        def __init__(self) -> None:
            super().__init__()
            self.planned: set[tuple[int, str]] = set()

        def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
            self.planned |= {(step, task.id) for task in tasks}
            return super().plan(step, tasks, rollouts)

        def learn(self, step: int, episodes: Iterable[Episode]) -> None:
            super().learn(step, (e for e in episodes if (step, e.task_id) in self.planned))

    with pytest.raises(AssertionError, match="resumed at step"):
        kit.test_a_resumed_run_gets_the_same_plan_whatever_is_on_disk(Forgetful, tasks, SEED)


def test_the_kit_fails_a_scheme_with_its_own_random_generator() -> None:
    thrown = itertools.count()

    class Dice(Deeper):
        def __init__(self) -> None:
            super().__init__()
            self.number = next(thrown)

        def starts(self, task: Task, rollouts: int) -> list[Start]:
            n = 1 + self.number % 100
            return [Start(task_id=task.id, rollouts=rollouts, name=f"p{n}", expert=self.expert(n))]

    with pytest.raises(AssertionError):
        kit.test_a_resumed_run_may_plan_the_past_again(Dice, tasks, SEED)


def test_the_kit_fails_a_scheme_that_reads_a_step_twice() -> None:
    class Twice(Deeper):
        def learn(self, step: int, episodes: Iterable[Episode]) -> None:
            assert len(episodes) > 0  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="len"):
        kit.test_every_start_can_be_rolled_out(Twice, tasks, SEED)


def test_the_kit_fails_a_scheme_that_divides_by_the_episodes_of_a_step() -> None:
    class Mean(Deeper):
        def learn(self, step: int, episodes: Iterable[Episode]) -> None:
            found = list(episodes)
            self.won["mean"] = sum(e.reward == 1.0 for e in found) // len(found)

    with pytest.raises(ZeroDivisionError):
        kit.test_a_step_without_graded_episodes_is_a_step_like_any_other(Mean, tasks)


class Queue(Commands):
    """Says the next command whenever it is asked."""

    def answer(self, request: CompletionRequest) -> Message | None:
        self.n -= 1
        return None if self.n < 0 else super().answer(replace(request, turn=0))


class Random(Commands):
    def call_id(self, turn: int) -> str:
        return uuid.uuid4().hex


class Nameless(Commands):
    def call_id(self, turn: int) -> str:
        return ""


class User(Commands):
    def answer(self, request: CompletionRequest) -> Message | None:
        answer = super().answer(request)
        return None if answer is None else replace(answer, role="user")


def led_by(make: Callable[[int], Any]) -> type[Deeper]:
    """The right scheme with another expert."""

    class Led(Deeper):
        def expert(self, n: int) -> Callable[[], Any]:
            return lambda: make(n)

    return Led


def test_the_kit_fails_an_expert_that_is_shared_by_rollouts() -> None:
    class Shared(Deeper):
        def expert(self, n: int) -> Callable[[], Any]:
            one = Queue(n)
            return lambda: one

    with pytest.raises(AssertionError):
        kit.test_every_rollout_has_an_expert_of_its_own(Shared, tasks, SEED)


def test_the_kit_fails_an_expert_that_moves_on_when_it_is_asked_again() -> None:
    with pytest.raises(AssertionError):
        kit.test_an_expert_says_the_same_when_its_turn_is_asked_again(led_by(Queue), tasks, SEED)


def test_the_kit_fails_an_expert_with_random_call_ids() -> None:
    with pytest.raises(AssertionError):
        kit.test_asking_again_gives_the_same_starts(led_by(Random), tasks, SEED)


def test_the_kit_fails_an_expert_that_never_finishes() -> None:
    with pytest.raises(AssertionError, match="never finishes"):
        kit.test_every_start_can_be_rolled_out(led_by(lambda n: Commands(10**6)), tasks, SEED)


def test_the_kit_fails_an_expert_that_says_nothing() -> None:
    with pytest.raises(AssertionError, match="says nothing"):
        kit.test_every_rollout_has_an_expert_of_its_own(led_by(lambda n: Commands(0)), tasks, SEED)


def test_the_kit_fails_a_scheme_that_has_no_next_action() -> None:
    class Silent(Deeper):
        def starts(self, task: Task, rollouts: int) -> list[Start]:
            return [replace(s, next_action=self.expert(0)) for s in super().starts(task, rollouts)]

    with pytest.raises(AssertionError, match="there is no next action"):
        kit.test_experts_answer_as_the_assistant_with_calls_that_can_be_answered(
            Silent, tasks, SEED
        )


@pytest.mark.parametrize(("expert", "reason"), [(Nameless, "without an id"), (User, "assistant")])
def test_the_kit_fails_an_answer_that_no_agent_can_use(expert: Any, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        kit.test_experts_answer_as_the_assistant_with_calls_that_can_be_answered(
            led_by(expert), tasks, SEED
        )
