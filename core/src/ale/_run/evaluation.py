"""Evaluate the policy on the evaluation tasks between training steps."""

from collections.abc import Callable, Iterator

from attrs import field, frozen

from ale._config import RunConfig
from ale._run.dispatch import Dispatcher
from ale._run.hooks import Observers
from ale._run.parts import Parts, Tasks
from ale._run.plan import EpisodePlan, evaluation_plans
from ale._run.times import Times
from ale._store import RunDirectory
from ale._store.index import SUCCESS
from ale.plugin import BuildContext
from ale.protocols import Policy
from ale.types import EvaluationFinished

_RECORDED = ("step", "policy_version", "n_graded", "n_succeeded", "mean_reward")


@frozen(kw_only=True)
class Evaluator:
    """Runs the evaluations of one run, each once."""

    config: RunConfig
    parts: Parts
    tasks: Tasks
    store: RunDirectory
    context: BuildContext
    observers: Observers
    dispatcher: Dispatcher
    times: Times
    record_event: Callable[..., None]
    reported: set[int] = field(factory=set)
    """Steps whose evaluation is in ``events.jsonl``: the run may be killed before that."""

    def restore(self) -> None:
        """Find out what an earlier session of the run has reported."""
        for event in self.store.reader.events():
            if event["event"] == "evaluation_finished":
                self.reported.add(event["step"])

    async def evaluate(self, step: int, *, due: bool) -> bool:
        """Evaluate the policy after `step` training steps; False after a Ctrl-C.

        Args:
            due: evaluate whatever ``evaluation.every`` says, as after the last step.
        """
        evaluation = self.config.evaluation
        if evaluation is None or not (due or step % evaluation.options.every == 0):
            return True
        if step in self.reported and all(p.key in self.store.index for p in self._plans(step)):
            return True
        started = self.context.monotonic()
        with self.times.on("evaluation"):
            complete = await self.dispatcher.run(lambda: self._plans(step))
        if not complete:
            return False
        event, seconds = self._result(step), self.context.monotonic() - started
        facts = {name: getattr(event, name) for name in _RECORDED}
        self.record_event("evaluation_finished", **facts, seconds=seconds)
        self.reported.add(step)
        self.observers.notify("ale_evaluation_finished", event)
        return True

    def _plans(self, step: int) -> Iterator[EpisodePlan]:
        evaluation = self.config.evaluation
        rollouts = 0 if evaluation is None else evaluation.options.rollouts
        return evaluation_plans(self.tasks["evaluation"], self.config.run.seed, rollouts, step)

    def _result(self, step: int) -> EvaluationFinished:
        rewards = list(self.store.index.rewards(step, "evaluation"))
        llm = self.parts.llm
        return EvaluationFinished(
            step=step,
            policy_version=llm.policy_version if isinstance(llm, Policy) else None,
            n_graded=len(rewards),
            n_broken=self.store.index.broken(step, "evaluation"),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            mean_reward=sum(rewards) / len(rewards) if rewards else None,
            at=self.context.clock(),
        )
