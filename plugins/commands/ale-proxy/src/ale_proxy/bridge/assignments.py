"""Assignments from `assign` to a graded episode. What is answered is on disk before."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ale.runs import RunReader
from ale.types import Message, Task
from ale_proxy.assignment import Assignment, Done, Result
from ale_proxy.bridge.forms import (
    Assign,
    Assigned,
    ChatMessage,
    HandIn,
    Said,
    Status,
    Take,
    Taken,
    Worker,
)
from ale_proxy.exchange import Session
from ale_proxy.journal import Entry, Feedback
from ale_proxy.sessions import Sessions
from ale_proxy.tasks import task_id_of

T = TypeVar("T")
_LOOK_S = 1.0
"""How often a waiting worker looks whether somebody's time for a task is over."""


class RefusedError(Exception):
    """A request can't be answered; `status` is that of HTTP: 404 for what is not known, 409 for
    what contradicts what was said before."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Assignments:
    """The tasks that were assigned, in the sessions of a run directory.

    Args:
        lease_s: seconds after which a task that was taken and not handed in is given again,
            counted from the last of its requests to a model.
        rewrites: the worker gets what the middleware adds; else the proxy adds it on the way to
            the model.
    """

    def __init__(self, sessions: Sessions, *, lease_s: float, rewrites: bool) -> None:
        self._sessions = sessions
        self._lease_s = lease_s
        self._rewrites = rewrites
        self._seen: dict[str, float] = {}
        self._changed = asyncio.Event()
        reader = RunReader(sessions.recording.path)
        self._goals = {task.id: task.goal for task in reader.tasks}
        self._before: dict[str, Done] = {}
        for episode in reader.episodes:
            if "assignment" in episode.metadata:
                self._before[episode.metadata["session"]] = Done.of(episode)
        for session, _ in list(self._open()):
            assert session.task is not None
            self._goals[session.task.id] = session.task.goal
            if any(each.score is not None for each in session.feedback):
                sessions.end(session, "feedback")  # killed between the two

    def assign(self, form: Assign) -> Assigned:
        """Keep a task until a worker takes it.

        Raises:
            RefusedError: the id, or the task's, is that of something else.
            StoreError: the disk is full.
        """
        goal = form.prompt
        task_id = form.task_id or task_id_of(goal)
        if self._goals.get(task_id, goal) != goal:
            raise RefusedError(409, f"the task '{task_id}' has another prompt")
        if form.id is not None and self._known(form.id):
            found = self.shown(form.id)
            if found.task_id != task_id:
                raise RefusedError(
                    409, f"'{form.id}' is an assignment of the task '{found.task_id}'"
                )
            if found.state == "assigned" and not self._is_for(form.id, form):
                raise RefusedError(409, f"'{form.id}' is for another worker or environment")
            return found
        name = form.id or f"{task_id}.{secrets.token_hex(4)}"
        if self._sessions.get(name) is not None:
            raise RefusedError(409, f"'{name}' is a session that was not assigned")
        task = Task(
            id=task_id,
            goal=goal,
            origin="ale workers bridge",
            tags=tuple(form.tags),
            metadata={"environment": form.environment},
        )
        self._sessions.assign(name, task, form.worker or "")
        self._goals[task_id] = goal
        self._tell()
        return self.shown(name)

    async def take(self, form: Take) -> Taken | None:
        """The oldest task that this worker may do; None if none comes while it waits.

        Raises:
            StoreError: the disk is full.
            AleError: a middleware failed.
        """
        self._see(form.worker)
        end = time.monotonic() + form.wait_s
        while found := await self._until(lambda: self._free(form), end - time.monotonic()):
            taken = await self._give(*found, form.worker)
            if taken is not None:
                return taken
        return None

    def hand_in(self, form: HandIn) -> Assigned:
        """Keep a result. The same one again is no error.

        Raises:
            RefusedError: no such assignment is open, it is another worker's, or has another result.
            StoreError: the disk is full.
        """
        worker = form.worker or ""
        self._see(worker)
        result = Result(worker=worker, text=form.result, steps=tuple(form.steps))
        done = self._ended(form.id)
        if done is not None:
            if done.facts["result"] == form.result:
                return self.shown(form.id)
            raise RefusedError(409, f"'{form.id}' has ended")
        session, assignment = self._get(form.id)
        if assignment.worker not in ("", worker):
            raise RefusedError(409, f"'{form.id}' is for the worker '{assignment.worker}'")
        if worker and assignment.result is None and assignment.taken_by not in ("", worker):
            raise RefusedError(409, f"'{form.id}' was given to the worker '{assignment.taken_by}'")
        if assignment.result is None:
            self._sessions.settle(session)
            self._sessions.keep(session, Entry(result=result))
            assignment.result = result
            self._tell()
        elif assignment.result.text != result.text:
            raise RefusedError(409, f"'{form.id}' has another result already")
        return self.shown(form.id)

    def say(self, form: Said) -> Assigned:
        """Keep what a manager says; with a score, store the episode. The same again is no error.

        Raises:
            RefusedError: nothing is said; no such assignment; there is no result to be graded, or
                it was graded otherwise.
            StoreError: the disk is full.
        """
        if form.score is None and not form.text:
            raise RefusedError(422, "feedback needs a score, a text, or both")
        done = self._ended(form.id)
        if done is not None:
            if form.score is not None and done.reward == form.score:
                return self.shown(form.id)
            raise RefusedError(409, f"'{form.id}' has ended with the reward {done.reward}")
        session, assignment = self._get(form.id)
        if form.score is not None and assignment.result is None:
            raise RefusedError(409, f"'{form.id}' has no result yet, so there is nothing to grade")
        feedback = Feedback(score=form.score, text=form.text, author=form.author)
        if feedback not in session.feedback:
            self._sessions.say(session, feedback)
        if form.score is not None:
            self._sessions.end(session, "feedback")
            self._tell()
        return self.shown(form.id)

    def end(self, name: str) -> Assigned:
        """Store an assignment without a score; one that has ended stays as it is.

        Raises:
            RefusedError: no such assignment.
            StoreError: the disk is full; it stays open.
        """
        if self._ended(name) is None:
            self._sessions.end(self._get(name)[0], "end")
            self._tell()
        return self.shown(name)

    async def waited(self, name: str, wait_s: float) -> Assigned:
        """Where an assignment is, once it has a result or the time is over.

        Raises:
            RefusedError: no such assignment.
        """

        def with_result() -> Assigned | None:
            shown = self.shown(name)
            return shown if shown.state not in ("assigned", "taken") else None

        return await self._until(with_result, wait_s) or self.shown(name)

    def shown(self, name: str) -> Assigned:
        """Where an assignment is.

        Raises:
            RefusedError: no such assignment.
        """
        done = self._ended(name)
        if done is not None:
            return Assigned(
                id=name,
                task_id=done.task_id,
                state=done.state,
                worker=done.facts["worker"],
                result=done.facts["result"],
                steps=done.facts["steps"],
                episode=done.episode,
                reward=done.reward,
            )
        session, assignment = self._get(name)
        assert session.task is not None
        facts = assignment.facts()
        return Assigned(
            id=name,
            task_id=session.task.id,
            state=assignment.state,
            worker=facts["worker"] or assignment.worker,
            result=facts["result"],
            steps=facts["steps"],
        )

    def status(self) -> Status:
        """All that is open, and who works."""
        open_ = [self.shown(session.name) for session, _ in self._open()]
        counts: Counter[str] = Counter(each.state for each in open_)
        counts.update(done.state for done in self._sessions.done.values())
        now = time.monotonic()
        workers = [
            Worker(
                name=name,
                seen_s=round(now - at, 3),
                has=[each.id for each in open_ if (each.worker, each.state) == (name, "taken")],
            )
            for name, at in self._seen.items()
        ]
        run = str(self._sessions.recording.path)
        return Status(run=run, tasks=dict(counts), open=open_, workers=workers)

    def _free(self, form: Take) -> tuple[Session, Assignment] | None:
        before = time.monotonic() - self._lease_s
        for session, assignment in self._open():
            assert session.task is not None
            seen = max(assignment.taken_at, session.last)
            lost = assignment.state == "taken" and seen <= before and not session.running
            if (
                (assignment.state == "assigned" or lost)
                and not assignment.being_given
                and assignment.worker in ("", form.worker)
                and _has(form.environments, session.task)
            ):
                return session, assignment
        return None

    async def _give(self, session: Session, assignment: Assignment, worker: str) -> Taken | None:
        """Write down whose the task is; None if it was answered or ended meanwhile."""
        task = session.task
        assert task is not None
        messages = assignment.messages or (Message(role="user", content=task.goal),)
        assignment.being_given = True
        try:
            if self._rewrites and session.rewriting is not None and not assignment.messages:
                messages = await session.rewriting.head(messages)
            if assignment.result is not None or self._sessions.get(session.name) is not session:
                return None
            self._sessions.give(session, assignment, worker, messages, rewritten=self._rewrites)
        finally:
            assignment.being_given = False
            self._tell()
        return Taken(
            id=session.name,
            task_id=task.id,
            prompt=task.goal,
            environment=task.environment_kind or "chat",
            messages=[ChatMessage(role=each.role, content=each.content) for each in messages],
        )

    async def _until(self, ready: Callable[[], T | None], wait_s: float) -> T | None:
        end = time.monotonic() + wait_s
        while (found := ready()) is None and (left := end - time.monotonic()) > 0:
            waiting = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait([waiting], timeout=min(left, _LOOK_S))
            finally:
                waiting.cancel()
        return found

    def _tell(self) -> None:
        """Something has changed: whoever waits looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _see(self, worker: str) -> None:
        if worker:
            self._seen[worker] = time.monotonic()

    def _open(self) -> Iterator[tuple[Session, Assignment]]:
        for session in self._sessions:
            if session.assignment is not None:
                yield session, session.assignment

    def _known(self, name: str) -> bool:
        session = self._sessions.get(name)
        return self._ended(name) is not None or (
            session is not None and session.assignment is not None
        )

    def _is_for(self, name: str, form: Assign) -> bool:
        session, assignment = self._get(name)
        assert session.task is not None
        return assignment.worker == (form.worker or "") and _has([form.environment], session.task)

    def _ended(self, name: str) -> Done | None:
        return self._sessions.done.get(name) or self._before.get(name)

    def _get(self, name: str) -> tuple[Session, Assignment]:
        session = self._sessions.get(name)
        if session is None or session.assignment is None:
            raise RefusedError(404, f"no task was assigned as '{name}'")
        return session, session.assignment


def _has(environments: Sequence[str] | None, task: Task) -> bool:
    return environments is None or task.environment_kind in environments
