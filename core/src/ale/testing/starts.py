"""Contract kit for start schemes: valid starts, and the same ones after a resume.

```python
class TestMine(StartSchemeContract):
    @pytest.fixture
    def make_scheme(self) -> Callable[[], StartScheme]:
        return lambda: Mine(MineOptions())
```
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence

import pytest

from ale.protocols import Start, StartScheme
from ale.testing import builders
from ale.types import (
    Completion,
    CompletionRequest,
    Episode,
    Message,
    Observation,
    Task,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
)

SHELL = ToolSpec(
    name="shell",
    description="Run a command.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
)
FINISH = ToolSpec(
    name="finish",
    description="End the episode.",
    parameters={
        "type": "object",
        "properties": {"summary": {"type": "string"}},
        "required": ["summary"],
    },
)
TOOLS = (FINISH, SHELL)
"""Tools of the agent in these tests. The one for commands is not the first."""
LONGEST = 200
"""Number of turns within which every expert must have finished."""


def output_of(call: ToolCall) -> str:
    """The output of a call: always the same."""
    return f"ran {call.name} {call.arguments}\n[exit code 0]"


def solved(n: int = 4) -> list[Task]:
    """Tasks ``t0``, ``t1``, ... whose reference solutions have 1, 2, ... commands."""
    return [
        builders.task(f"t{i}", solution=tuple(f"touch {i}.{k}" for k in range(i + 1)))
        for i in range(n)
    ]


def request(
    turns: Sequence[Turn], task_id: str = "demo", tools: Sequence[ToolSpec] = TOOLS
) -> CompletionRequest:
    """The request to a model after these turns."""
    messages = [Message(role="user", content=f"Do {task_id}.")]
    for turn in turns:
        messages += [turn.completion.message, *(seen.as_message() for seen in turn.observations)]
    return CompletionRequest(
        messages=tuple(messages),
        tools=tuple(tools),
        conversation=builders.conversation(task_id=task_id),
        turn=len(turns),
        fresh_context=not turns,
    )


def answered(answer: Message, *, forced: bool) -> Turn:
    """A turn with this answer, and the observations of its calls."""
    return Turn(
        completion=Completion(message=answer, forced=forced),
        observations=tuple(
            Observation(call_id=call.id, tool=call.name, content=output_of(call))
            for call in answer.tool_calls
        ),
    )


def replayed(start: Start) -> tuple[Turn, ...]:
    """The turns of the start's expert."""
    turns: list[Turn] = []
    if start.expert is None:
        return ()
    expert = start.expert()
    while (answer := expert.answer(request(turns, start.task_id))) is not None:
        turns.append(answered(answer, forced=True))
        assert len(turns) <= LONGEST, "the expert never finishes"
    return tuple(turns)


def rolled_out(start: Start, *, step: int, rollout: int, reward: float, turns: int = 2) -> Episode:
    """A graded episode from this start: the expert's turns, then `turns` turns of the model."""
    begun = list(replayed(start))
    for _ in range(turns):
        text = f'{{"command": "own {len(begun)} of {rollout}"}}'
        call = ToolCall(id="call_0", name="shell", arguments=text)
        message = Message(role="assistant", content="I try.", tool_calls=(call,))
        begun.append(answered(message, forced=False))
    at = f"@{start.name}" if start.name else ""
    return Episode(
        id=f"{step}-{start.task_id}{at}-{rollout}",
        task_id=start.task_id,
        step=step,
        start=start.name,
        rollout=rollout,
        reward=reward,
        trajectory=Trajectory(turns=tuple(begun)),
    )


def graded(starts: Sequence[Start], step: int, seed: int) -> list[Episode]:
    """Every rollout of a step, in a run's order; which ones succeed depends on `seed`."""
    episodes = []
    for start in sorted(starts, key=lambda start: (start.task_id, start.name)):
        rng = random.Random(f"{seed}/{step}/{start.task_id}/{start.name}")
        for rollout in range(start.rollouts):
            reward = float(rng.random() < (seed % 5) / 4)
            turns = rng.randint(1, 3)
            args = {"step": step, "rollout": rollout, "reward": reward, "turns": turns}
            episodes.append(rolled_out(start, **args))  # type: ignore[arg-type]
    return episodes


def drawn(tasks: Sequence[Task], step: int) -> Sequence[Task]:
    """Two consecutive tasks: each task appears only in some steps."""
    return [tasks[(2 * step + i) % len(tasks)] for i in range(min(2, len(tasks)))]


def next_message(start: Start) -> Message | None:
    """The expert's next message where the start's rollouts begin; None if there is none."""
    if start.next_action is None:
        return None
    return start.next_action().answer(request(replayed(start), start.task_id))


def described(starts: Sequence[Start]) -> list[tuple[str, int, str, list[Message], Message | None]]:
    """A plan as plain values: what each start is, and what its expert says."""
    return [
        (
            s.task_id,
            s.rollouts,
            s.name,
            [turn.completion.message for turn in replayed(s)],
            next_message(s),
        )
        for s in starts
    ]


STEPS, ROLLOUTS = 12, 6


def trained(
    scheme: StartScheme, tasks: Sequence[Task], seed: int
) -> Iterator[tuple[int, Sequence[Start], list[Episode]]]:
    """Plan and learn step by step, as a run does: the step, its starts, its graded episodes."""
    for step in range(STEPS):
        starts = scheme.plan(step, drawn(tasks, step), ROLLOUTS)
        episodes = graded(starts, step, seed)
        yield step, starts, episodes
        scheme.learn(step, iter(episodes))


def assert_starts(starts: Sequence[Start], tasks: Sequence[Task], rollouts: int) -> None:
    """Check that starts can be rolled out: known tasks, rollouts, and valid, unique names."""
    known = {task.id for task in tasks}
    assert all(type(start) is Start for start in starts)
    for start in starts:
        shown_again = start.demonstration  # its task may be one of an earlier step
        assert start.task_id in known or shown_again, (
            f"'{start.task_id}' was not drawn for this step"
        )
        assert start.rollouts >= 1, f"{start} has no rollouts"
        assert re.fullmatch(r"[A-Za-z0-9.+]*", start.name), f"{start.name!r} can't stand in an id"
        assert (start.name == "") == (start.expert is None), (
            "the task's own beginning has no name and no expert; every other start has both"
        )
    named = [(start.task_id, start.name) for start in starts]
    assert len(set(named)) == len(named), "a start is duplicated"
    for task_id in sorted(known):
        wanted = sum(start.rollouts for start in starts if start.task_id == task_id)
        assert wanted <= rollouts, f"{wanted} rollouts of '{task_id}', {rollouts} were wanted"


each_seed = pytest.mark.parametrize("seed", range(5))


class StartSchemeContract:
    """The contract of every start scheme. Override `make_scheme`, and `tasks` if it needs others.

    The episodes that it learns from are played in this process: experts are asked turn by turn,
    commands return `output_of`, and chance decides which episodes succeed.
    """

    @pytest.fixture
    def make_scheme(self) -> Callable[[], StartScheme]:
        """Makes a new instance of the scheme to test each time, as a resumed run does."""
        raise NotImplementedError("override the fixture 'make_scheme'")

    @pytest.fixture
    def tasks(self) -> Sequence[Task]:
        """Tasks that the scheme can start; default: with reference solutions of 1 to 4 commands."""
        return solved()

    @each_seed
    def test_every_start_can_be_rolled_out(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task], seed: int
    ) -> None:
        for step, starts, _ in trained(make_scheme(), tasks, seed):
            assert_starts(starts, drawn(tasks, step), ROLLOUTS)

    def test_one_rollout_is_enough(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task]
    ) -> None:
        assert_starts(make_scheme().plan(0, tasks, 1), tasks, 1)

    def test_a_task_that_is_drawn_twice_in_a_step_is_started_once(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task]
    ) -> None:
        twice = [*tasks, *tasks]
        assert_starts(make_scheme().plan(0, twice, ROLLOUTS), tasks, ROLLOUTS)

    @each_seed
    def test_asking_again_gives_the_same_starts(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task], seed: int
    ) -> None:
        scheme = make_scheme()
        for step, starts, _ in trained(scheme, tasks, seed):
            again = scheme.plan(step, drawn(tasks, step), ROLLOUTS)
            assert described(again) == described(starts)

    @each_seed
    def test_a_resumed_run_gets_the_same_plan_whatever_is_on_disk(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task], seed: int
    ) -> None:
        plans, learned = [], []
        for _, starts, episodes in trained(make_scheme(), tasks, seed):
            plans.append(described(starts))
            learned.append(episodes)
        for stopped in range(STEPS):
            resumed = make_scheme()
            for step, episodes in enumerate(learned[:stopped]):
                resumed.learn(step, iter(episodes))
            following = described(resumed.plan(stopped, drawn(tasks, stopped), ROLLOUTS))
            assert following == plans[stopped], f"resumed at step {stopped}"

    @each_seed
    def test_a_resumed_run_may_plan_the_past_again(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task], seed: int
    ) -> None:
        first = [described(starts) for _, starts, _ in trained(make_scheme(), tasks, seed)]
        again = [described(starts) for _, starts, _ in trained(make_scheme(), tasks, seed)]
        assert again == first

    def test_a_step_without_graded_episodes_is_a_step_like_any_other(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task]
    ) -> None:
        scheme = make_scheme()
        for step in range(3):
            assert_starts(scheme.plan(step, tasks, ROLLOUTS), tasks, ROLLOUTS)
            scheme.learn(step, iter(()))

    @each_seed
    def test_every_rollout_has_an_expert_of_its_own(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task], seed: int
    ) -> None:
        for _, starts, _ in trained(make_scheme(), tasks, seed):
            for start in starts:
                if start.expert is None:
                    continue
                expected = [turn.completion.message for turn in replayed(start)]
                assert len(expected) > 0, f"the expert of {start.name} says nothing"
                # Two experts at once, turn by turn: they must be independent.
                one, other = start.expert(), start.expert()
                for turns in itertools.accumulate(
                    ([answered(message, forced=True)] for message in expected), initial=[]
                ):
                    ask = request(turns, start.task_id)
                    assert one.answer(ask) == other.answer(ask)

    @each_seed
    def test_an_expert_says_the_same_when_its_turn_is_asked_again(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task], seed: int
    ) -> None:
        """If a conversation was too long, an agent asks again with a shorter one."""
        for _, starts, _ in trained(make_scheme(), tasks, seed):
            for start in starts:
                if start.expert is not None:
                    expert, first = start.expert(), request([], start.task_id)
                    assert expert.answer(first) == expert.answer(first)

    @each_seed
    def test_experts_answer_as_the_assistant_with_calls_that_can_be_answered(
        self, make_scheme: Callable[[], StartScheme], tasks: Sequence[Task], seed: int
    ) -> None:
        for _, starts, _ in trained(make_scheme(), tasks, seed):
            for start in starts:
                answers = [turn.completion.message for turn in replayed(start)]
                if start.next_action is not None:
                    following = next_message(start)
                    assert following is not None, f"there is no next action for {start.name!r}"
                    answers.append(following)
                for message in answers:
                    assert message.role == "assistant"
                    ids = [call.id for call in message.tool_calls]
                    assert all(ids), "a call without an id can't be answered"
                    assert len(set(ids)) == len(ids), "two calls with one id"
