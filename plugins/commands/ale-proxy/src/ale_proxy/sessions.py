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
from operator import itemgetter
from typing import Any

from attrs import frozen

from ale.errors import AleError, StoreError
from ale.middleware import Rewriting
from ale.protocols import Middleware, MiddlewareContext
from ale.recording import Recording
from ale.types import Conversation, Message, Task, ToolSpec
from ale_proxy.assignment import Assignment, Done
from ale_proxy.episodes import episode_id_of, episode_of, scores_of
from ale_proxy.exchange import UNFINISHED, Asker, Ending, Exchange, Session
from ale_proxy.journal import (
    Entry,
    Feedback,
    Journal,
    assignment_of,
    since_taken,
    started,
    turns_of,
)
from ale_proxy.matching import Sought, tools_key
from ale_proxy.tasks import task_of

_log = logging.getLogger(__name__)
MOST_OPEN = 10_000
"""Sessions that are open at once: anyone who reaches the proxy opens one by naming it."""
BROKE_OFF = "the server broke off its answer"
CLIENT_LEFT = "the client left before the answer was complete"
_FORMS = ("response_format", "text", "output_format", "output_config")
"""Fields with the form that an answer must have, which is a part of the task."""


class SeveralError(Exception):
    """Which session is meant is not known: several were asked at the same time."""


class TooManyError(AleError):
    """Too many sessions are open."""


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
        self._begun: Counter[str] = Counter()
        """Sessions that nobody has named, by whose they are."""
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

    def opened(
        self, name: str, task_id: str | None, secrets: Collection[str], of: str = ""
    ) -> Session:
        """The session of this name; a new one where none is open.

        Args:
            of: whose it is, if nobody has named it.
        """
        session = self._open.get(name)
        if session is None:
            session = self._open[name] = Session(name=name, of=of)
        session.last = time.monotonic()
        session.task_id = session.task_id or task_id
        session.secrets.update(secrets)
        return session

    def check_room(self) -> None:
        """Raise `TooManyError` where so many sessions are open that no other may be."""
        if len(self._open) >= MOST_OPEN:
            raise TooManyError(f"{MOST_OPEN} sessions are open; end some, or wait until they end")

    def check_room_for(self, asker: Asker) -> None:
        """Raise `TooManyError` unless a request belongs to an open session or may open one.

        Without a name it may, since whether it continues one is known only once it is read.
        """
        if asker.name not in self._open:
            self.check_room()

    def current(self, asker: Asker) -> Session | None:
        """The session that was asked last; None if none is open.

        Raises:
            SeveralError: another one was asked since this one began.
        """
        if asker.name is not None:
            return self.get(asker.name)
        own = self._own(asker)
        if not own:
            return None
        last = max(own, key=lambda session: (bool(session.running), session.last))
        others = [each for each in own if each is not last]
        if any(each.running or each.last >= last.began for each in others):
            raise SeveralError(", ".join(session.name for session in own))
        return last

    def _own(self, asker: Asker) -> list[Session]:
        """The open sessions of this asker that nobody has named."""
        return [session for session in self if session.of == asker.of]

    def place(self, exchange: Exchange) -> Session:
        """The session of an exchange.

        Without a name, that is the one with the conversation that it continues; a request that
        continues none begins a new one.
        """
        if exchange.session is None:
            asker = exchange.asker
            assert asker is not None
            name = asker.name or self._continued(exchange, asker) or self._new_name(asker)
            of = "" if name == asker.name else asker.of
            session = self.opened(name, asker.task_id, asker.secrets, of)
            session.first = session.first or exchange.messages
            session.running[exchange] = None
            exchange.session = session
        return exchange.session

    def _new_name(self, asker: Asker) -> str:
        while True:
            self._begun[asker.of] += 1
            number = self._begun[asker.of]
            name = asker.of if number == 1 else f"{asker.of}.{number}"
            if name not in self._open:
                return name

    def _continued(self, exchange: Exchange, asker: Asker) -> str | None:
        own = sorted(self._own(asker), key=lambda session: session.last, reverse=True)
        if asker.task_id is not None:
            own = [session for session in own if session.task_id in (None, asker.task_id)]
        asked, messages = exchange.asked, exchange.messages
        if asked is None:
            found = own[:1]  # of which nothing is known
        elif asked.previous is not None:
            previous = asked.previous
            found = [s for s in own if s.conversation.knows(previous)] or own[:1]
        elif asked.alone:
            found = [s for s in own if s.conversation.continues_text(messages)]
        else:
            sought = Sought(messages, tools_key(asked.tools))
            matches = [(s.conversation.match(sought), s) for s in own]
            known = [
                (match.exact, match.kept, s.conversation.is_last(match), s)
                for match, s in matches
                if match is not None
            ]
            # Of two with equal beginnings, such as rollouts that got the same first answer, the one
            # that nothing continues yet.
            found = [each[-1] for each in sorted(known, key=itemgetter(0, 1, 2), reverse=True)[:1]]
        # A request that failed is sent again.
        found = found or [s for s in own if not s.running and s.first == messages and s.is_empty]
        return found[0].name if found else None

    @contextmanager
    def exchanging(self, asker: Asker, exchange: Exchange) -> Iterator[None]:
        """Record an exchange at the end of the block, unless its session has ended by then."""
        exchange.asker = asker
        if asker.name is not None or self.middleware:  # else it has to be read, which takes time
            self.place(exchange)
        if self.middleware:  # which needs the task before the request is sent on
            self._know_task(self.place(exchange))
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            if not exchange.complete:
                exchange.give_up(CLIENT_LEFT)
            raise
        finally:
            self.finish(exchange)
            session = self.place(exchange)
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
        session.again()

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
        named = [each for each in entries if each.task is not None]
        if not named:
            return
        first, last = named[0], named[-1]
        assert last.task is not None
        if self.recording.has(last.task.id, last.rollout):
            self._journal.remove(first.session)  # killed between storing it and this
            return
        own = since_taken(entries)
        began = datetime.fromisoformat(first.started)
        session = Session(
            name=first.session,
            of=first.of,
            started=began,
            began=time.monotonic() - (datetime.now(UTC) - began).total_seconds(),
            conversation=turns_of(own),
            sampling=[each.sampling for each in own if each.sampling is not None],
            broken=[each.broken for each in own if each.broken is not None],
            feedback=[each.feedback for each in entries if each.feedback is not None],
            left_out=Counter(each.left_out for each in own if each.left_out is not None),
            apis={each.api for each in own if each.api},
            assignment=assignment_of(entries, time.monotonic()),
        )
        session.sampling = session.sampling or [{}]  # of a journal that has none
        session.sampled = _sampled_of(own, len(session.conversation))
        self.recording.keep_rollout(last.task.id, last.rollout)
        self._know(session, last.task, last.rollout)
        if session.rewriting is not None:
            session.rewriting.facts = [fact for each in own for fact in each.facts]
            session.rewriting.heads = dict(head for each in entries for head in each.heads)
            session.n_heads = len(session.rewriting.heads)
        self._open[session.name] = session

    def _know_task(self, session: Session) -> None:
        """Begin a session with the first of its requests that can be read."""
        if session.task is None:
            first = next((each for each in session.running if each.asked is not None), None)
            if first is not None and first.asked is not None:
                self._begin(
                    session, self._task(session, first.messages, first.asked.tools, first.sampling)
                )

    def _task(
        self,
        session: Session,
        messages: Sequence[Message] = (),
        tools: Sequence[ToolSpec] = (),
        sampling: Mapping[str, Any] | None = None,
    ) -> Task:
        form = {name: sampling[name] for name in _FORMS if sampling and name in sampling}
        return task_of(session.task_id, messages, tools, form, session.started)

    def _begin(self, session: Session, task: Task) -> None:
        """The session's task is known, if it stays the same: see `_settle_task`."""
        self._know(session, task, self.recording.next_rollout(task.id))
        session.unwritten = (self._head(session, task), *session.unwritten)

    def _head(self, session: Session, task: Task) -> Entry:
        return Entry(
            session=session.name,
            of=session.of,
            started=session.started.isoformat(),
            task=task,
            rollout=session.rollout,
            assigned=None if session.assignment is None else session.assignment.worker,
        )

    def _settle_task(self, session: Session) -> Task:
        """The task at the end: that of the main conversation, and not of a side request that came
        first. What the episode is called is on disk before the episode is."""
        if session.task is None:
            self._begin(session, self._task(session))
        assert session.task is not None
        main = session.conversation.main()
        if main is None or self.middleware or session.assignment is not None:
            return session.task
        number, messages, tools = main
        sampling = session.sampling[session.sampled[number]]
        task = self._task(session, messages, tools, sampling)
        if task != session.task:
            if task.id != session.task.id:
                session.rollout = self.recording.next_rollout(task.id)
            session.task = task
            self.keep(session, self._head(session, task))
        return task

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

    def finish(self, exchange: Exchange) -> None:
        """Record an answer that has come to its end, unless its session has ended."""
        session = self.place(exchange)
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
        if session.assignment or not session.is_empty or session.left_out or session.feedback:
            task = self._settle_task(session)
            episode = episode_of(session, task, how, time.monotonic() - session.began)
            secrets = self._secrets | session.secrets
            scores = scores_of(session, episode)
            stored = self.recording.add(task, episode, secrets, scores)
            if session.assignment is not None:
                self.done[session.name] = Done.of(stored)
        self._journal.remove(session.name)
        del self._open[session.name]
        return Ended(
            session=session.name,
            episode=None if stored is None else stored.id,
            turns=len(session.conversation),
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


def _sampled_of(entries: Sequence[Entry], n_turns: int) -> list[int]:
    """For each turn, which of the journal's entries about sampling holds."""
    made = [0] * n_turns
    for each in entries:
        if each.turn is not None and each.api:  # one that is written again says nothing of it
            made[each.number] = each.sampled
    return made
