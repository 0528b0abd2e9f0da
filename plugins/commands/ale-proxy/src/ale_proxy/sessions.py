"""Sessions: the requests of one agent at one task, which become an episode when it ends."""

import asyncio
import hashlib
import hmac
import logging
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

from attrs import define, field, frozen

from ale.errors import AleError, StoreError
from ale.middleware import Rewriting
from ale.protocols import Middleware, MiddlewareContext
from ale.recording import Recording
from ale.types import Conversation, Message, Task
from ale_proxy.apis import UnreadableError
from ale_proxy.assignment import Assignment, Done
from ale_proxy.conversation import Turns
from ale_proxy.episodes import Feedback, episode_id_of, episode_of, task_of
from ale_proxy.exchange import Exchange
from ale_proxy.journal import (
    Entry,
    Journal,
    assignment_of,
    responses_of,
    since_taken,
    started,
    turns_of,
)

_log = logging.getLogger(__name__)
MOST_OPEN = 10_000
"""Sessions that are open at once: anyone who reaches the proxy opens one by naming it."""
Ending = Literal["feedback", "end", "timeout", "shutdown"]
BROKE_OFF = "the server broke off its answer"
CLIENT_LEFT = "the client left before the answer was complete"
UNFINISHED = "its session ended before the answer was complete"


class TooManyError(AleError):
    """Too many sessions are open."""


@define(eq=False)
class Session:
    """One open session."""

    name: str
    started: datetime = field(factory=lambda: datetime.now(UTC))
    began: float = field(factory=time.monotonic)
    """Of the monotonic clock, seconds."""
    last: float = field(factory=time.monotonic)
    """When something last happened, likewise."""
    task_id: str | None = None
    """As the agent names it."""
    task: Task | None = None
    rollout: int = 0
    rewriting: Rewriting | None = field(default=None, repr=False)
    n_heads: int = 0
    """Those that the journal has of what `rewriting` has rewritten."""
    conversation: Turns = field(factory=Turns)
    feedback: list[Feedback] = field(factory=list)
    left_out: Counter[str] = field(factory=Counter)
    """Requests that are not recorded, by reason."""
    apis: set[str] = field(factory=set)
    secrets: set[str] = field(factory=set, repr=False)
    """The keys of its requests: in memory alone, to be masked where a message has one."""
    running: dict[Exchange, None] = field(factory=dict, repr=False)
    unwritten: tuple[Entry, ...] = field(default=(), repr=False)
    """What is written to the journal with the next entry."""
    assignment: Assignment | None = None
    """Of a task that was assigned through the bridge: it does not end by itself."""

    def record(self, exchange: Exchange, *, processed: bool) -> Iterator[Entry]:
        """Make a turn of an answer; one that can't be recorded is counted.

        Yields:
            what has happened, for the journal.
        """
        exchange.recorded = True
        turns = self.conversation.turns
        n, last = len(turns), turns[-1] if turns else None
        answered = exchange.answered(turn=n, processed=processed)
        reason = exchange.left_out or UNFINISHED
        if answered is not None and exchange.asked is not None:
            try:
                spent = exchange.duration_s
                self.conversation.add(exchange.messages, exchange.asked, answered, spent)
            except UnreadableError as error:
                reason = f"the request can't be recorded: {error}"
        if len(turns) == n:
            self.left_out[reason] += 1
            yield Entry(left_out=reason)
            return
        self.apis.add(exchange.api.name)
        if n and turns[n - 1] is not last:
            yield Entry(number=n - 1, turn=turns[n - 1])
        facts = self.rewriting.facts if self.rewriting is not None and n == 0 else []
        heads = [] if self.rewriting is None else [*self.rewriting.heads.items()][self.n_heads :]
        self.n_heads += len(heads)
        yield Entry(
            number=n,
            turn=turns[n],
            api=exchange.api.name,
            response=None if answered is None else answered.id,
            facts=facts,
            heads=heads,
        )


@frozen(kw_only=True)
class Ended:
    """What became of a session."""

    session: str
    episode: str | None
    """None where nothing was asked and nothing said, so that there is nothing to store."""
    turns: int
    reward: float | None
    not_recorded: Mapping[str, int]


class Sessions:
    """The open sessions.

    Args:
        idle_s: seconds after the last request's end until a session ends by itself.
        processed: the server's log-probabilities are those that it samples from.
        middleware: what is added to each conversation, with the names of the components.
        secrets: masked in all that is stored, beside the keys of each session's requests.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        idle_s: float,
        processed: bool = False,
        middleware: Sequence[tuple[str, Middleware]] = (),
        secrets: Collection[str] = (),
    ) -> None:
        self.recording = recording
        self._secrets = frozenset(secrets)
        self.middleware = middleware
        self._idle_s = idle_s
        self._processed = processed
        self._open: dict[str, Session] = {}
        self.done: dict[str, Done] = {}
        """Assignments that have ended in this process."""
        self._journal = Journal(recording.path)
        # The oldest first, as they were before: files are named by digests.
        for entries in sorted(self._journal.read(), key=started):
            self._restore(entries)
        # Of this process: names that are made of keys can't be searched for by trying keys.
        self._salt = os.urandom(32)

    def name_for(self, key: str) -> str:
        """The name of the session of a key's requests; the key can't be found from it."""
        return f"key-{hmac.digest(self._salt, key.encode(), hashlib.sha256).hex()[:12]}"

    def __iter__(self) -> Iterator[Session]:
        return iter(self._open.values())

    def get(self, name: str) -> Session | None:
        """The open session of this name."""
        return self._open.get(name)

    def opened(self, name: str, task_id: str | None, secrets: Collection[str]) -> Session:
        """The session of this name; a new one where none is open.

        Raises:
            TooManyError: too many are open for a new one.
        """
        session = self._open.get(name)
        if session is None:
            self.check_room()
            session = self._open[name] = Session(name=name)
        session.last = time.monotonic()
        session.task_id = session.task_id or task_id
        session.secrets.update(secrets)
        return session

    def check_room(self) -> None:
        """Raise `TooManyError` where so many sessions are open that no other may be."""
        if len(self._open) >= MOST_OPEN:
            raise TooManyError(f"{MOST_OPEN} sessions are open; end some, or wait until they end")

    @contextmanager
    def exchanging(self, session: Session, exchange: Exchange) -> Iterator[None]:
        """Record an exchange at the end of the block, unless its session has ended by then."""
        session.running[exchange] = None
        if self.middleware:  # which needs the task before the request is sent on
            self._know_task(session)
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            if not exchange.complete:
                exchange.give_up(CLIENT_LEFT)
            raise
        finally:
            self.finish(session, exchange)
            if session.running.pop(exchange, exchange) is None:
                session.last = time.monotonic()

    def say(self, session: Session, feedback: Feedback) -> None:
        """Keep what was said of a session.

        Raises:
            StoreError: the disk is full; it is not kept.
        """
        self._know_task(session)
        self.keep(session, Entry(feedback=feedback))
        session.feedback.append(feedback)

    def assign(self, name: str, task: Task, worker: str) -> Session:
        """Open the session of a task that was assigned.

        Raises:
            StoreError: the disk is full; it is not open.
            TooManyError: too many are.
        """
        self.check_room()
        session = Session(name=name, assignment=Assignment(worker=worker))
        self._begin(session, task)
        self.keep(session)
        self._open[name] = session
        return session

    def give(
        self,
        session: Session,
        assignment: Assignment,
        worker: str,
        messages: tuple[Message, ...],
        *,
        rewritten: bool,
    ) -> None:
        """Give a task to a worker: what was asked before, by one that was lost, is not its own.

        Args:
            messages: what the worker is given to read.
            rewritten: by the middleware of the session.

        Raises:
            StoreError: the disk is full; it is not given.
        """
        facts = session.rewriting.facts if rewritten and session.rewriting is not None else []
        self.keep(session, Entry(taken=worker, messages=messages, facts=facts))
        assignment.taken_by, assignment.taken_at = worker, time.monotonic()
        assignment.messages = messages
        session.conversation, session.apis, session.left_out = Turns(), set(), Counter()

    def keep(self, session: Session, *entries: Entry) -> None:
        """Write to the journal what must not be lost.

        Raises:
            StoreError: the disk is full.
        """
        secrets = self._secrets | session.secrets
        self._journal.write(session.name, *session.unwritten, *entries, secrets=secrets)
        session.unwritten = ()

    def _record(self, session: Session, exchange: Exchange) -> None:
        """Write an answer to the journal. Where that fails, requests pass and the session is in
        memory."""
        if exchange.recorded:
            return
        self._know_task(session)
        entries = tuple(session.record(exchange, processed=self._processed))
        try:
            self.keep(session, *entries)
        except StoreError as error:
            session.unwritten += entries
            _log.error("session %s is not on disk: %s", session.name, error)

    def _restore(self, entries: list[Entry]) -> None:
        """Open a session again that was open when the proxy was killed."""
        first = next((each for each in entries if each.task is not None), None)
        if first is None or first.task is None:
            return
        if self.recording.has(first.task.id, first.rollout):
            self._journal.remove(first.session)  # killed between storing it and this
            return
        own = since_taken(entries)
        began = datetime.fromisoformat(first.started)
        session = Session(
            name=first.session,
            started=began,
            began=time.monotonic() - (datetime.now(UTC) - began).total_seconds(),
            conversation=Turns(turns_of(own), responses_of(own)),
            feedback=[each.feedback for each in entries if each.feedback is not None],
            left_out=Counter(each.left_out for each in own if each.left_out is not None),
            apis={each.api for each in own if each.api},
            assignment=assignment_of(entries, time.monotonic()),
        )
        self.recording.keep_rollout(first.task.id, first.rollout)
        self._know(session, first.task, first.rollout)
        if session.rewriting is not None:
            session.rewriting.facts = [fact for each in own for fact in each.facts]
            session.rewriting.heads = dict(head for each in entries for head in each.heads)
            session.n_heads = len(session.rewriting.heads)
        self._open[session.name] = session

    def _know_task(self, session: Session) -> None:
        """Begin a session with the first of its requests that can be read."""
        if session.task is None:
            first = next((each for each in session.running if each.asked is not None), None)
            if first is not None:
                self._begin(session, task_of(session.task_id, first.messages))

    def _begin(self, session: Session, task: Task) -> None:
        """The session's task is known, and with it what its episode is called."""
        rollout = self.recording.next_rollout(task.id)
        self._know(session, task, rollout)
        started = session.started.isoformat()
        assigned = None if session.assignment is None else session.assignment.worker
        entry = Entry(
            session=session.name, started=started, task=task, rollout=rollout, assigned=assigned
        )
        session.unwritten = (entry, *session.unwritten)

    def _know(self, session: Session, task: Task, rollout: int) -> None:
        session.task, session.rollout = task, rollout
        if not self.middleware:
            return
        episode_id = episode_id_of(task, rollout)
        digest = hashlib.sha256(f"{self.recording.run_id}/{episode_id}".encode()).digest()
        conversation = Conversation(
            episode_id=episode_id,
            task_id=task.id,
            rollout=rollout,
            seed=int.from_bytes(digest[:4]),
        )
        context = MiddlewareContext(task=task, conversation=conversation)
        session.rewriting = Rewriting(self.middleware, context)

    def settle(self, session: Session) -> None:
        """Record the answers that are complete, though their connections are still open."""
        for exchange in session.running:
            if exchange.complete:
                self._record(session, exchange)

    def finish(self, session: Session, exchange: Exchange) -> None:
        """Record an answer that has come to its end, unless its session has ended."""
        if exchange in session.running:
            self._record(session, exchange)

    def end(self, session: Session, how: Ending) -> Ended:
        """End a session and store it.

        Raises:
            StoreError: the disk is full; the session stays open.
        """
        self.settle(session)
        for exchange in session.running:
            if not exchange.recorded:
                exchange.give_up(UNFINISHED)
            self._record(session, exchange)
        session.running.clear()
        stored = None
        if session.assignment or session.conversation.turns or session.left_out or session.feedback:
            if session.task is None:
                self._begin(session, task_of(session.task_id, ()))
            assert session.task is not None
            episode = episode_of(session, session.task, how, time.monotonic() - session.began)
            secrets = self._secrets | session.secrets
            stored = self.recording.add(session.task, episode, secrets)
            if session.assignment is not None:
                self.done[session.name] = Done.of(stored)
        self._journal.remove(session.name)
        del self._open[session.name]
        return Ended(
            session=session.name,
            episode=None if stored is None else stored.id,
            turns=len(session.conversation.turns),
            reward=None if stored is None else stored.reward,
            not_recorded=dict(session.left_out),
        )

    async def end_idle(self) -> None:
        """End sessions that have been idle for too long, until cancelled."""
        while True:
            await asyncio.sleep(min(self._idle_s / 4, 5.0))
            now = time.monotonic()
            for session in self._ending_by_themselves():
                if not session.running and now - session.last >= self._idle_s:
                    self._try_to_end(session, "timeout")

    def end_all(self) -> None:
        """End every session, at the end of the process.

        Raises:
            StoreError: some can't be stored.
        """
        failed = [self._try_to_end(each, "shutdown") for each in self._ending_by_themselves()]
        for error in filter(None, failed):
            raise error

    def _ending_by_themselves(self) -> list[Session]:
        """Those that are no assignments, which stay open until they are graded."""
        return [session for session in self if session.assignment is None]

    def _try_to_end(self, session: Session, how: Ending) -> StoreError | None:
        """End a session; one that can't be stored stays open, and the others are not affected."""
        try:
            self.end(session, how)
        except StoreError as error:
            _log.error("session %s can't be stored: %s", session.name, error)
            return error
        return None
