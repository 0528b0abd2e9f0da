"""Parts of a run that learns, in a second: a policy of one number, its trainer and an expert."""

import importlib.util
import random
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from attrs import field, frozen

from ale.plugin import BuildContext, Component, doc, ge, hookimpl
from ale.protocols import AgentContext, Start
from ale.testing.fakes import FakeCreditScheme, FakePolicy, FakeTrainer
from ale.types import (
    Batch,
    CompletionRequest,
    Credit,
    Episode,
    Group,
    Limits,
    Message,
    StepReport,
    Stop,
    Task,
    Turn,
)

RIGHT = "42"
SHOWN, REWARDED = 1, 2
"""The policy's version: it has seen demonstrations, and it has learned from rewards."""


@frozen(kw_only=True)
class PupilOptions:
    temperature: float = field(default=1.0, validator=ge(0), metadata=doc("Of sampling."))


class Pupil(FakePolicy):
    """Right half of the time once it was shown how, and never greedily until it was rewarded."""

    def __init__(self, options: PupilOptions) -> None:
        super().__init__(self._say)
        self.temperature = options.temperature

    def _say(self, request: CompletionRequest) -> Message:
        given = request.sampling.temperature
        temperature = self.temperature if given is None else given
        lucky = random.Random(request.conversation.seed).random() < 0.5 and temperature > 0
        right = self.policy_version >= REWARDED or (self.policy_version == SHOWN and lucky)
        return Message(role="assistant", content=RIGHT if right else "no idea")


class Asking:
    """One turn: what the policy says is the answer."""

    limits = Limits(max_turns=5, time_limit_s=600)

    async def run(self, context: AgentContext) -> Stop:
        messages = (Message(role="user", content=context.task.goal),)
        request = CompletionRequest(
            messages=messages, conversation=context.conversation, turn=0, fresh_context=True
        )
        completion = await context.llm.complete(request)
        context.recorder.append(Turn(prompt=messages, fresh_context=True, completion=completion))
        await context.sandbox.write("answer", completion.message.content.encode())
        return Stop(reason="finished")


class Says:
    def answer(self, request: CompletionRequest) -> Message | None:
        return Message(role="assistant", content=RIGHT) if request.turn == 0 else None


@frozen(kw_only=True)
class ShownOptions:
    demonstrations: int = field(default=1, validator=ge(0), metadata=doc("Steps."))
    after: Literal["rollouts", "same-demonstrations"] = field(
        default="rollouts", metadata=doc("What follows.")
    )


class Shown:
    def __init__(self, options: ShownOptions) -> None:
        self.options = options

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        if step >= self.options.demonstrations and self.options.after == "rollouts":
            return [Start(task_id=task.id, rollouts=rollouts) for task in tasks]
        return [
            Start(task_id=task.id, rollouts=1, name="demo", expert=Says, demonstration=True)
            for task in tasks
        ]

    def learn(self, step: int, episodes: Iterable[Episode]) -> None: ...


@frozen(kw_only=True)
class Imitation:
    when: Literal["off", "always"] = field(default="always", metadata=doc("Whether."))


@frozen(kw_only=True)
class TeacherOptions:
    imitation: Imitation = field(factory=Imitation, metadata=doc("What is shown."))


class Teacher(FakeTrainer):
    """Learns from demonstrations once, and from rewards where they tell episodes apart."""

    async def step(self, batch: Batch) -> StepReport:
        shown = any(
            turn.completion.forced
            for credited in batch.groups
            for rollout in credited.group.rollouts
            for turn in rollout.episode.trajectory.turns
        )
        weights = {
            weight
            for credited in batch.groups
            for credit in credited.credits
            for weight in credit.weights
        }
        self.version = max(self.version, SHOWN if shown else REWARDED if len(weights) > 1 else 0)
        return StepReport(step=batch.step, policy_version=self.version)


class Blind(FakeCreditScheme):
    def assign(self, group: Group) -> Sequence[Credit]:
        ones = [(1.0,) * len(rollout.chunks) for rollout in group.rollouts]
        return [
            Credit(episode_id=rollout.episode.id, scheme="blind", rewards=w, returns=w, weights=w)
            for rollout, w in zip(group.rollouts, ones, strict=True)
        ]


def _part(name: str, options: type | None, make: Any) -> Component[Any, Any]:
    def build(given: Any, context: BuildContext) -> Any:
        return make(given)

    return Component(name, options, build, summary="Of a test.", priority=2)


@hookimpl
def ale_llms() -> Sequence[Component[Any, Any]]:
    return [_part("pupil", PupilOptions, Pupil)]


@hookimpl
def ale_agents() -> Sequence[Component[Any, Any]]:
    return [_part("asking", None, lambda _: Asking())]


@hookimpl
def ale_starts() -> Sequence[Component[Any, Any]]:
    return [_part("shown", ShownOptions, Shown)]


@hookimpl
def ale_trainers() -> Sequence[Component[Any, Any]]:
    return [_part("teacher", TeacherOptions, lambda _: Teacher())]


@hookimpl
def ale_credit_schemes() -> Sequence[Component[Any, Any]]:
    # Beside ale-credit, which has one, it would be ambiguous.
    if importlib.util.find_spec("ale_credit") is not None:
        return []
    return [_part("weight-one", None, lambda _: Blind())]
