"""Evaluate the policy on the evaluation tasks between training steps."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

from attrs import asdict

from ale._run.dispatch import Dispatcher, refuse_lost
from ale._run.plan import evaluation_jobs, key_of
from ale._run.session import Session
from ale._store.index import SUCCESS
from ale.attempts import mean, repeats
from ale.protocols import Policy
from ale.types import EvaluationFinished, Job

_OF_SEVERAL = ("k", "pass_at_k", "majority")
END_OF_DEMONSTRATIONS = "end_of_demonstrations"
_RECORDED = ("step", "policy_version", "temperature", "n_graded", "n_succeeded", "mean_reward")


class Evaluator:
    """Runs the evaluations of one run, each once.

    Args:
        before: called before each evaluation, so that the training that led to it is reported
            first.
    """

    def __init__(
        self, session: Session, dispatcher: Dispatcher, before: Callable[[], Awaitable[None]]
    ) -> None:
        self.config, self.store, self.times = session.config, session.store, session.times
        self._session, self._dispatcher, self._before = session, dispatcher, before
        self._reported = {
            (event["step"], event.get("temperature"))
            for event in self.store.reader.events()
            if event["event"] == "evaluation_finished"
        }
        """Steps and temperatures in ``events.jsonl``: the run may be killed before one is
        written."""

    async def evaluate(self, step: int, *, due: bool, shown: bool = False) -> bool:
        """Evaluate the policy after `step` training steps, at every temperature.

        Returns False after a Ctrl-C.

        Args:
            due: evaluate regardless of ``evaluation.every``, as after the last step.
            shown: the demonstrations ended with this step; this is noted in the event log.
        """
        evaluation = self.config.evaluation
        if evaluation is None or not (due or self._is_due(step)):
            return True
        temperatures = [
            one for one in self.config.evaluation_temperatures if self._lacks(step, one)
        ]
        if not temperatures:
            return True
        await self._before()
        refuse_lost(self._session, step, self._jobs(step, *temperatures))
        started = self._session.context.monotonic()
        with self.times.on("evaluation"):
            complete = await self._dispatcher.run(lambda: self._jobs(step, *temperatures))
        if not complete:
            return False
        seconds = self._session.context.monotonic() - started
        for temperature in temperatures:
            event = self._result(step, temperature)
            facts = {name: getattr(event, name) for name in _RECORDED}
            facts |= {name: getattr(event, name) for name in _OF_SEVERAL if event.k > 1}
            facts |= {END_OF_DEMONSTRATIONS: True} if shown else {}
            self._session.record_event("evaluation_finished", **facts, seconds=seconds)
            self._reported.add((step, temperature))
            self._session.observers.notify("ale_evaluation_finished", event)
        return True

    def _is_due(self, step: int) -> bool:
        """As the config says, or since an earlier process was asked for it and has begun."""
        assert self.config.evaluation is not None
        begun = ((step, one) not in self._reported for one in self.store.index.evaluated(step))
        return step % self.config.evaluation.options.every == 0 or any(begun)

    async def again(self, step: int, tasks: Collection[str] | None = None) -> bool:
        """Evaluate tasks again, as further rollouts of the same policy.

        Returns False after a Ctrl-C.

        Args:
            tasks: ids of the tasks; default: the tasks that have no reward.
        """
        found = self.store.index.evaluated(step)
        await self._before()
        with self.times.on("evaluation"):
            return await self._dispatcher.run(
                lambda: (
                    job
                    for temperature in self.config.evaluation_temperatures
                    for job in self._further(step, temperature, found.get(temperature, {}), tasks)
                )
            )

    def _further(
        self,
        step: int,
        temperature: float | None,
        found: Mapping[tuple[str, int], float | None],
        tasks: Collection[str] | None,
    ) -> Iterator[Job]:
        """Jobs of further rollouts of these tasks, or of the tasks without a reward."""
        graded = {task for (task, _), reward in found.items() if reward is not None}
        last = max((rollout for _, rollout in found), default=-1)
        for job in self._jobs(step, temperature, first=last + 1):
            task = job.task.id
            if job.rollout > last and (task not in graded if tasks is None else task in tasks):
                yield job

    def _lacks(self, step: int, temperature: float | None) -> bool:
        """Is there something to sample or to report?"""
        stored = [key_of(job) in self.store.index for job in self._jobs(step, temperature)]
        if (step, temperature) in self._reported:
            return not all(stored)
        # A run by version 0.1 has only one temperature, and its policy of that step is gone.
        earlier = not any(stored) and any(reported == step for reported, _ in self._reported)
        return not earlier

    def _jobs(self, step: int, *temperatures: float | None, first: int = 0) -> Iterator[Job]:
        evaluation = self.config.evaluation
        rollouts = first + (0 if evaluation is None else evaluation.options.rollouts)
        tasks, seed = self._session.tasks["evaluation"], self.config.run.seed
        for temperature in temperatures:
            yield from evaluation_jobs(tasks, seed, rollouts, step, temperature)

    def _result(self, step: int, temperature: float | None) -> EvaluationFinished:
        every = self.store.index.evaluation(step).get(temperature, [])
        rewards = [reward for reward in every if reward is not None]
        several = repeats(self.store.index.attempts(step).get(temperature, {}).values())
        llm = self._session.parts.llm
        return EvaluationFinished(
            step=step,
            policy_version=llm.policy_version if isinstance(llm, Policy) else None,
            temperature=temperature,
            n_graded=len(rewards),
            n_broken=len(every) - len(rewards),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            mean_reward=mean(rewards) if rewards else None,
            at=self._session.context.clock(),
            **({} if several is None else asdict(several)),
        )
