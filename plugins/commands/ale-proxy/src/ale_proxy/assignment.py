"""A task that a manager has assigned through the bridge: the part of a session that is its own."""

from typing import Any, Literal

from attrs import define, frozen

from ale.types import Completion, Episode, Message, Task, Turn

State = Literal["assigned", "taken", "answered", "graded", "ended"]
"""``ended`` is without a score."""


@frozen(kw_only=True)
class Result:
    """What a worker has handed in."""

    worker: str = ""
    text: str
    steps: tuple[str, ...] = ()
    """How it came to it, where the worker says so."""

    @property
    def written(self) -> str:
        """With its steps in the tags that the chunker ``step-tags`` reads."""
        if not self.steps:
            return self.text
        steps = "".join(f"<step>{step}</step>\n" for step in self.steps)
        return f"{steps}<answer>{self.text}</answer>"


@define(kw_only=True)
class Assignment:
    """Whose a task is, and what came of it so far."""

    worker: str = ""
    """For whom it is; empty: for any worker."""
    taken_by: str = ""
    taken_at: float = 0.0
    """Of the monotonic clock, seconds; a restart of the bridge counts as taken again."""
    being_given: bool = False
    """To a worker, whose messages are being made: no other may take it."""
    messages: tuple[Message, ...] = ()
    """What the worker was given to read."""
    result: Result | None = None

    @property
    def state(self) -> State:
        """Of an assignment that has not ended."""
        if self.result is not None:
            return "answered"
        return "taken" if self.taken_by else "assigned"

    def turns(self, task: Task) -> tuple[Turn, ...]:
        """The result as the one turn of an episode whose model was not asked through the proxy."""
        if self.result is None:
            return ()
        message = Message(role="assistant", content=self.result.written)
        prompt = self.messages or (Message(role="user", content=task.goal),)
        return (Turn(prompt=prompt, fresh_context=True, completion=Completion(message=message)),)

    def facts(self) -> dict[str, Any]:
        """For the episode's metadata."""
        result = self.result
        return {
            "worker": self.taken_by if result is None else result.worker or self.taken_by,
            "result": None if result is None else result.text,
            "steps": [] if result is None else list(result.steps),
        }


@frozen(kw_only=True)
class Done:
    """An assignment that has ended."""

    task_id: str
    episode: str
    reward: float | None
    facts: dict[str, Any]

    @classmethod
    def of(cls, episode: Episode) -> "Done":
        """As its episode says."""
        facts = episode.metadata["assignment"]
        return cls(task_id=episode.task_id, episode=episode.id, reward=episode.reward, facts=facts)

    @property
    def state(self) -> State:
        """Whether it was graded."""
        return "ended" if self.reward is None else "graded"
