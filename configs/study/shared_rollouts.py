"""Rollouts that share what they have in common: for `measured_credit.py`.

Values are success rates of rollouts, and most rollouts of a small policy repeat another one, answer
by answer. Here each is sampled as always, with a seed of its own. But where an earlier rollout of
the task has given the same answers so far, its next prompt is that one's; and where it has given
the same answers to the end, so is its outcome. A rollout with an answer that none has given before
is run: a real sandbox, the agent's own loop, the task's own check.

That is exact where a task begins alike each time and its commands print and do the same whenever
they are run, as those of `sort_tasks.py` do. docs/study/credit.md compares the values with those of
rollouts that were all run.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from attrs import define, field

from ale.plugin import BuildContext, Component, hookimpl
from ale.protocols import LLM, Executor, RunningRun, Start, StartScheme, Workers
from ale.types import Completion, CompletionRequest, Episode, Job, Message, Task, Trajectory
from ale_figures.forks import Place, place_named
from ale_llm_policy.build import build as build_policy
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.options import PolicyOptions
from ale_servers.records import Sampled, SampleRequest
from ale_starts.options import PrefixOptions
from ale_starts.prefixes import Prefixes

NAME = "shared"
"""Of the executor, the model and the start scheme, which need one another."""
RUN_AT_ONCE = 64
"""Most rollouts that are run at the same time, each with a sandbox."""
Answer = tuple[int, ...]
"""The tokens of an answer."""


@define(eq=False)
class Node:
    """What a task has come to after certain answers."""

    turn: int
    """Number of these answers."""
    asked: SampleRequest | None = None
    """How the next answer is asked for, by the first rollout that came here."""
    end: Episode | None = None
    """An episode that ended here."""
    children: dict[Answer, "Node"] = field(factory=dict)
    known: asyncio.Event = field(factory=asyncio.Event)
    """Set when the first rollout that came here has asked for an answer, or ended."""

    def child(self, answer: Answer) -> "Node":
        """What comes of an answer."""
        return self.children.setdefault(answer, Node(self.turn + 1))


class SharingPolicy(PolicyLLM):
    """The model, which notes what it is asked and what it answers, task by task.

    What is replayed is not scored: nobody reads its log-probabilities.
    """

    roots: dict[str, Node]
    """By task."""
    paths: dict[str, list[Node]]
    """By the id of an episode that is run, or was."""
    drawn: dict[str, Sampled]
    """Answers that were sampled before their rollout is run, by seed."""
    _asked_last: dict[str, SampleRequest]
    """By the id of an episode."""
    _tokenised: dict[Any, tuple[tuple[int, ...], int | None]]

    @classmethod
    def of(cls, real: PolicyLLM) -> "SharingPolicy":
        """One that samples as the `real` one does, and in its place."""
        made = cls(
            real.policy,
            real.engine,
            defaults=real.sampling,
            context=real._context,
            copied=real._copied,
        )
        made.roots, made.paths, made.drawn = {}, {}, {}
        made._asked_last, made._tokenised = {}, {}
        return made

    async def draw(self, node: Node, job: Job) -> Answer:
        """The next answer of a job that has come to a node."""
        assert node.asked is not None
        seed = f"{job.seed}/{node.turn}"
        asked = msgspec.structs.replace(node.asked, id=f"{job.id} {seed}", seed=seed, forced_ids=())
        self.drawn[seed] = await super()._sample(asked, job.id)
        return self.drawn[seed].ids

    async def complete(self, request: CompletionRequest) -> Completion:
        """As of any policy."""
        return self._noted(request, await super().complete(request))

    async def force(self, request: CompletionRequest, answer: Message) -> Completion:
        """As of any policy, but with log-probabilities of 0."""
        return self._noted(request, await super().force(request, answer))

    def _noted(self, request: CompletionRequest, completion: Completion) -> Completion:
        about, turn = request.conversation, request.turn
        if turn == 0:
            self.paths[about.episode_id] = [self.roots.setdefault(about.task_id, Node(0))]
        path = self.paths[about.episode_id]
        del path[turn + 1 :]
        path[turn].asked = self._asked_last.pop(about.episode_id)
        path[turn].known.set()
        assert completion.tokens is not None
        path.append(path[turn].child(completion.tokens.output_ids))
        return completion

    async def _sample(self, asked: SampleRequest, session: str) -> Sampled:
        self._asked_last[session] = asked
        ids = asked.forced_ids
        if ids:
            n = len(ids)
            versions = (self.policy_version,) * n
            return Sampled(
                ids=ids, logprobs=(0.0,) * n, versions=versions, reason="forced", digests={}
            )
        known = self.drawn.pop(asked.seed, None)
        return await super()._sample(asked, session) if known is None else known

    def _as_sampled(
        self, answer: Message, stop: tuple[str, ...]
    ) -> tuple[tuple[int, ...], int | None]:
        key = (answer.content, *((call.name, call.arguments) for call in answer.tool_calls), stop)
        if key not in self._tokenised:
            self._tokenised[key] = super()._as_sampled(answer, stop)
        return self._tokenised[key]


class WholeFirst(Prefixes):
    """The prefixes of episodes, whole episodes first: these pass every state of the others."""

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """As `Prefixes.plan`, in another order."""
        return sorted(super().plan(step, tasks, rollouts), key=lambda start: not _is_whole(start))


def _is_whole(start: Start) -> bool:
    place = place_named(start.name)
    return place is not None and place.p == place.turns


_policies: dict[str, SharingPolicy] = {}
"""By the id of the run whose executor needs it."""


class Sharing:
    """An executor that runs those rollouts alone that repeat no other."""

    remote = False

    def __init__(self, context: BuildContext) -> None:
        self._run_id = context.run_id

    @asynccontextmanager
    async def open(self, run: RunningRun) -> AsyncIterator[Workers]:
        """Workers in this process."""
        yield SharingWorkers(run, _policies.pop(self._run_id))


class SharingWorkers:
    """This process."""

    def __init__(self, run: RunningRun, llm: SharingPolicy) -> None:
        self._run_here, self._llm = run.run_here, llm
        self._slots = asyncio.Semaphore(RUN_AT_ONCE)
        self._whole: dict[tuple[str, int, str], asyncio.Event] = {}
        """By task and episode: set when its whole rollout has ended."""
        self._states: dict[tuple[str, int, str, int], Node] = {}
        """By task, episode and turn."""

    async def run(self, job: Job) -> Episode:
        """The job's episode, without its turns if it repeats another one."""
        place = place_named(job.start)
        if place is None or place.p < place.turns:
            return await self._from(job, await self._state(job, place))
        episode = (job.task.id, place.turns, place.tag)
        passed = self._whole[episode] = asyncio.Event()
        try:
            return await self._run(job)
        finally:
            for node in self._llm.paths.get(job.id, ()):
                self._states[*episode, node.turn] = node
            passed.set()

    async def _state(self, job: Job, place: Place | None) -> Node | None:
        """Where a job begins, once the rollout of a whole episode has come there; None: none has.

        Every episode of a task passes its beginning.
        """
        task = job.task.id
        for episode, passed in self._whole.items():
            if episode == (task, place.turns, place.tag) if place else episode[0] == task:
                await passed.wait()
                break
        if place is None:
            return self._llm.roots.get(task)
        return self._states.get((task, place.turns, place.tag, place.p))

    async def _from(self, job: Job, node: Node | None) -> Episode:
        """Sample from a node, until an episode ends or there is an answer that is new there."""
        while node is not None and node.end is None and node.asked is not None:
            answer = await self._llm.draw(node, job)
            first, node = answer not in node.children, node.child(answer)
            if first:
                break
            await node.known.wait()
        if node is not None and node.end is not None:
            return _repeating(job, node.end)
        try:
            return await self._run(job)
        finally:
            if node is not None:
                node.known.set()

    async def _run(self, job: Job) -> Episode:
        async with self._slots:
            episode = await self._run_here(job)
        path = self._llm.paths.get(job.id, [])
        if episode.failure is None and path:
            path[-1].end = episode
        for node in path:
            node.known.set()
        return episode

    async def stored(self, job: Job) -> None:
        """Nothing was kept."""

    def drain(self) -> None:
        """Whatever was asked for has begun, and is finished."""


def _repeating(job: Job, other: Episode) -> Episode:
    return job.episode(
        reward=other.reward,
        scores=other.scores,
        trajectory=Trajectory(turns=(), stop=other.trajectory.stop),
        failure=None,
        metadata={"repeats": other.id},
        sandbox=other.sandbox,
        started_at=other.started_at,
        seconds={},
    )


def _build_policy(options: PolicyOptions, context: BuildContext) -> LLM:
    made = _policies[context.run_id] = SharingPolicy.of(build_policy(options, context))
    return made


def _build_executor(options: None, context: BuildContext) -> Executor:
    return Sharing(context)


def _build_starts(options: PrefixOptions, context: BuildContext) -> StartScheme:
    return WholeFirst(options)


@hookimpl
def ale_llms() -> Sequence[Component[PolicyOptions, LLM]]:
    """Register the model."""
    return [Component(NAME, PolicyOptions, _build_policy, summary="A policy of shared rollouts.")]


@hookimpl
def ale_executors() -> Sequence[Component[None, Executor]]:
    """Register the executor."""
    return [Component(NAME, None, _build_executor, summary="Runs what repeats no other rollout.")]


@hookimpl
def ale_starts() -> Sequence[Component[PrefixOptions, StartScheme]]:
    """Register the start scheme."""
    return [Component(NAME, PrefixOptions, _build_starts, summary="Prefixes, the longest first.")]
