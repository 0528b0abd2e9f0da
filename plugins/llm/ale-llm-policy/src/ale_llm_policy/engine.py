"""The sampling thread: continuous batching with admission and release between steps."""

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import torch
from attrs import define, field

from ale.errors import LLMError
from ale_llm_policy.batch import Batch, Forward
from ale_llm_policy.jobs import Job
from ale_llm_policy.prefix_cache import BLOCK, PrefixCache, block_keys, pack
from ale_llm_policy.pretrained import TorchPolicy
from ale_training.memory import lacks_memory

log = logging.getLogger(__name__)

_LESS_MEMORY = (
    "`ale plan CONFIG` says what takes the memory, and which options take less, such as a smaller "
    "llm.max_batch or llm.context."
)


@define(eq=False, slots=False)
class Engine:
    """Continuous batching over one policy."""

    _policy: TorchPolicy
    """The policy to sample from; its lock is held during each step."""
    _model: Forward
    """The policy's model over a KV cache."""
    max_batch: int = field(kw_only=True)
    """Maximum number of rows; further jobs wait in order."""
    _cache_bytes: int = field(kw_only=True)
    """Size of the prefix cache."""
    _threads: int | None = field(kw_only=True)
    """Torch threads of this process; None does not set them."""

    def __attrs_post_init__(self) -> None:
        self._batch = Batch(self._model, self._policy.device)
        self.prefix_cache = PrefixCache(self._cache_bytes)
        self.n_prefilled = 0
        """Tokens computed in prefills; shows how much the prefix cache saves."""
        self.n_steps = 0
        self._changed = threading.Condition()
        self._inbox: deque[Job] = deque()
        self._tasks: deque[Callable[[], None]] = deque()
        self._pending: deque[Job] = deque()
        self._admitting: list[Job] = []
        self._closed = False
        self.paused = False
        """Nothing is sampled until `resume`."""
        self._thread: threading.Thread | None = None

    def submit(self, job: Job) -> None:
        """Queue a job.

        Raises:
            LLMError: the engine is closed.
        """
        with self._asking():
            self._inbox.append(job)

    def call(self, work: Callable[[], Any]) -> "Future[Any]":
        """Run `work` in the engine's thread between two steps.

        Raises:
            LLMError: the engine is closed.
        """
        future: Future[Any] = Future()

        def task() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        with self._asking():
            self._tasks.append(task)
        return future

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Inside, something is queued, which the thread then takes."""
        with self._changed:
            if self._closed:
                raise LLMError("the policy is closed")
            yield
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ale-llm-policy", daemon=True
                )
                self._thread.start()
                # A thread inside torch at interpreter exit would abort the process.
                atexit.register(self.close)
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread; running jobs fail. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
            atexit.unregister(self.close)

    @property
    def n_running(self) -> int:
        """Jobs in the batch."""
        return sum(not job.cancelled for job in (*self._batch.jobs, *self._admitting))

    @property
    def n_waiting(self) -> int:
        """Jobs that wait for a row."""
        return sum(not job.cancelled for job in (*self._pending, *self._inbox))

    def pause(self) -> None:
        """Sample nothing until `resume`; jobs stay. Once a call has run, no step is in progress."""
        with self._changed:
            self.paused = True

    def resume(self) -> None:
        """End a pause."""
        with self._changed:
            self.paused = False
            self._changed.notify_all()

    @torch.inference_mode()
    def interrupt(self, concerns: Callable[[Job], bool]) -> None:
        """End jobs with what they have so far; must run through `call`."""
        for job in [job for job in self._batch.jobs if concerns(job)]:
            self._store_prefix(self._batch.jobs.index(job))
            self._batch.remove(job)
            job.done(job, "abort")
        for job in [job for job in self._pending if concerns(job)]:
            self._pending.remove(job)
            job.done(job, "abort")

    def reload(self, change: Callable[[], None]) -> None:
        """Change the weights; must run through `call`.

        Nothing computed with the old weights is used again: running rows are prefilled again up to
        their last token.
        """
        with self._policy.lock:
            change()
            self._model.refresh()
        self.prefix_cache.clear()
        under_way = self._batch.jobs
        self._batch.jobs = []
        for job in reversed(under_way):
            job.cached = 0
            self._pending.appendleft(job)

    def _run(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        while self._take_requests():
            if self.paused:
                continue
            try:
                with self._policy.lock, torch.inference_mode():
                    self._work()
            except Exception as error:
                if lacks_memory(error):
                    text = f"sampling needs more memory than there is: {error}\n{_LESS_MEMORY}"
                else:
                    log.exception("the policy failed while sampling")
                    text = f"the policy failed while sampling: {error!r}"
                self._fail(LLMError(text))
        self._fail(LLMError("the policy was closed while it was sampling"))

    def _take_requests(self) -> bool:
        """Wait for requests and run queued calls; False once closed."""
        with self._changed:
            while not (self._closed or self._tasks or self._can_work):
                self._changed.wait()
            self._pending += self._inbox
            self._inbox.clear()
            tasks, self._tasks = self._tasks, deque()
            closed = self._closed
        for task in tasks:
            task()
        return not closed

    @property
    def _can_work(self) -> bool:
        return not self.paused and bool(self._inbox or self._pending or self._batch.jobs)

    def _work(self) -> None:
        """Free cancelled rows, sample one token for every row, then admit new jobs."""
        for job in [job for job in self._batch.jobs if job.cancelled]:
            self._batch.remove(job)
        n_decoding = len(self._batch.jobs)
        if n_decoding:
            logits = self._batch.decode()
            self.n_steps += 1
            self._batch.sample(0, logits, self._policy.version)
            self._finish_ended(0)
        while admitted := self._admit():
            self._admitting = admitted
            self._prefill(admitted)
            self._admitting = []

    def _admit(self) -> list[Job]:
        """Take the pending jobs to prefill together now.

        A job that shares an uncomputed prefix with a chosen job waits for the next pass, when the
        prefix is in the cache.
        """
        chosen: list[Job] = []
        later: list[Job] = []
        coming: set[int] = set()
        while self._pending and len(self._batch.jobs) + len(chosen) < self.max_batch:
            job = self._pending.popleft()
            if job.cancelled:
                continue
            keys = list(block_keys(pack(job.ids)))
            shared = min(BLOCK * sum(key in coming for key in keys), len(job.ids) - 1)
            if shared > self.prefix_cache.find(job.ids)[1]:
                later.append(job)
                continue
            coming.update(keys)
            chosen.append(job)
        self._pending.extendleft(reversed(later))
        return chosen

    def _prefill(self, jobs: list[Job]) -> None:
        first = len(self._batch.jobs)
        # Sorted by number of missing tokens, so that a pass has little padding.
        found = {id(job): self.prefix_cache.find(job.ids) for job in jobs}
        jobs.sort(key=lambda job: len(job.ids) - found[id(job)][1])
        for job in jobs:
            entry, job.cached = found[id(job)]
            if job.request.forced_ids:
                # The prompt's last token is recomputed: its state scores the answer's first.
                job.cached = min(job.cached, job.begin - 1)
            if entry is not None:
                row = len(self._batch.jobs)
                self._batch.cache.copy_in(row, entry.tensors, job.cached)
            self.n_prefilled += len(job.ids) - job.cached
            self._batch.jobs.append(job)
            if job.request.forced_ids:
                self._score(job)
        if len(self._batch.jobs) > first:
            logits = self._batch.prefill(first)
            for row, job in enumerate(self._batch.jobs[first:], first):
                # A mostly new prompt may be a prefix of others, such as a group's prompt.
                if found[id(job)][1] <= len(job.ids) // 2:
                    self._store_prefix(row)
            self._batch.sample(first, logits, self._policy.version)
            self._finish_ended(first)

    def _store_prefix(self, row: int) -> None:
        job = self._batch.jobs[row]
        self.prefix_cache.add(job.ids[: job.cached], self._batch.cache.copy_out(row, job.cached))

    def _score(self, job: Job) -> None:
        row = len(self._batch.jobs) - 1
        job.logprobs = [min(0.0, value) for value in self._batch.score(row)]
        job.versions = [self._policy.version] * len(job.logprobs)
        self._store_prefix(row)
        self._batch.remove(job)
        job.done(job, "forced")

    def _finish_ended(self, first: int) -> None:
        """From row `first` on, free the rows of jobs that have ended, and report these jobs."""
        text = self._policy.template.token_bytes.text
        for job in self._batch.jobs[first:]:
            reason = job.reason(lambda ids: text(ids).text)
            if reason is not None:
                self._store_prefix(self._batch.jobs.index(job))
                self._batch.remove(job)
                job.done(job, reason)

    def _fail(self, error: LLMError) -> None:
        """End every job with an error, and reset."""
        with self._changed:
            entering = [job for job in self._admitting if job not in self._batch.jobs]
            jobs = [*self._batch.jobs, *entering, *self._pending, *self._inbox]
            self._admitting = []
            self._pending.clear()
            self._inbox.clear()
        self._batch = Batch(self._model, self._policy.device)
        self.prefix_cache.clear()
        for job in jobs:
            if not job.cancelled:
                job.done(job, error)
