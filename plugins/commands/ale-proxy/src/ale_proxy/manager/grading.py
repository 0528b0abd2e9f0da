"""Score and text for a result: by the task's criteria, by a model, or by both."""

import math
import re
from collections.abc import Mapping, Sequence

from attrs import frozen

from ale.errors import GradingError
from ale.protocols import LLM, Criterion, SandboxBackend
from ale.types import (
    CompletionRequest,
    Conversation,
    Message,
    SandboxSpec,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    replace,
)
from ale_proxy.assignment import Assignment, Result

_LONGEST = 4000
"""Characters of a goal or a result that the model is shown."""
_TRIES = 2
_FEEDBACK = re.compile(r"^\s*FEEDBACK:\s*(.+)", re.MULTILINE | re.DOTALL)
_SCORE = re.compile(r"^\s*SCORE:\s*([0-9.]+)\s*$", re.MULTILINE)
_PROMPT = """\
You are the manager of a worker who was given this task:
{goal}

The worker's result:
{result}
{graded}
Write feedback of one to three sentences that would help with this task and others like it: what \
was good or bad, and what to do next time. Do not give away the answer.

Answer in this form:
{form}FEEDBACK: your text"""


@frozen(kw_only=True)
class Grade:
    """What is said of a result."""

    score: float
    text: str


@frozen(kw_only=True)
class Grader:
    """Grades results.

    Args:
        criteria: those of each task, by its id, with their weights.
        backend: opens the sandboxes that criteria run in.
        llm: grades tasks without criteria, and writes the text for all.
        details: without `llm`, what the criteria say is the text, though it may give answers away.
    """

    criteria: Mapping[str, Sequence[tuple[float, Criterion]]]
    backend: SandboxBackend | None
    llm: LLM | None
    details: bool = False

    async def grade(self, task: Task, result: Result, rollout: int) -> Grade:
        """One result.

        Raises:
            GradingError: it could not be graded; no score is made up.
            SandboxError: likewise.
            LLMError: likewise.
        """
        scores = await self._by_criteria(task, result)
        reward = _mean(scores)
        if self.llm is None:
            assert reward is not None, "a task without criteria is refused where no model grades"
            said = [score.detail for score in scores if score.detail and self.details]
            return Grade(score=reward, text="\n".join(said))
        return await self._asked(self.llm, task, result, rollout, scores, reward)

    async def _by_criteria(self, task: Task, result: Result) -> list[Score]:
        criteria = self.criteria.get(task.id, ())
        if not criteria:
            return []
        assert self.backend is not None
        turns: tuple[Turn, ...] = Assignment(result=_without_steps(result)).turns(task)
        trajectory = Trajectory(turns=turns, stop=Stop(reason="finished"))
        scores = []
        spec = SandboxSpec(image=task.environment.image)
        for weight, criterion in criteria:
            # One for each: code of the worker that a criterion runs may change what the next needs.
            async with self.backend.open(spec) as sandbox:
                score = await criterion.grade(task, trajectory, sandbox)
            if not math.isfinite(score.value) or not 0 <= score.value <= 1:
                raise GradingError(f"{score.criterion}: the score {score.value} is not in 0..1")
            scores.append(replace(score, weight=weight))
        return scores

    async def _asked(
        self,
        llm: LLM,
        task: Task,
        result: Result,
        rollout: int,
        scores: Sequence[Score],
        reward: float | None,
    ) -> Grade:
        prompt = _PROMPT.format(
            goal=task.goal[:_LONGEST],
            result=result.written[:_LONGEST],
            graded=_graded(scores, reward),
            form="" if reward is not None else "SCORE: a number from 0 (useless) to 1 (perfect)\n",
        )
        for turn in range(_TRIES):
            request = CompletionRequest(
                messages=(Message(role="user", content=prompt),),
                conversation=Conversation(
                    episode_id=f"manager-{task.id}-{rollout}",
                    task_id=task.id,
                    rollout=rollout,
                    seed=rollout,
                ),
                turn=turn,
            )
            found = _read((await llm.complete(request)).message.content, reward)
            if found is not None:
                return found
        raise GradingError(f"the model's answers about task {task.id} have another form")


def _without_steps(result: Result) -> Result:
    """For criteria, which read an answer and not how it was found."""
    return Result(worker=result.worker, text=result.text)


def _mean(scores: Sequence[Score]) -> float | None:
    total = math.fsum(score.weight for score in scores)
    return math.fsum(s.weight * s.value for s in scores) / total if total else None


def _graded(scores: Sequence[Score], reward: float | None) -> str:
    if reward is None:
        return ""
    said = "\n".join(f"- {score.criterion}: {score.value:g} {score.detail}" for score in scores)
    return f"\nIt was graded by tests, from 0 to 1, with {reward:g}:\n{said}\n"


def _read(answer: str, reward: float | None) -> Grade | None:
    """Score and text of the model's answer; None where it has another form."""
    # In either order: a score after the text is no part of it.
    text, score = _FEEDBACK.search(_SCORE.sub("", answer)), _SCORE.search(answer)
    if text is None:
        return None
    if reward is None:
        try:
            reward = float(score[1]) if score else math.nan
        except ValueError:
            return None
    return Grade(score=reward, text=text[1].strip()) if 0 <= reward <= 1 else None
