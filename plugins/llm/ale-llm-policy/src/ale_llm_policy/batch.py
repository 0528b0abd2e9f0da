"""The running rows: prefill of new rows, and decoding of one token for all."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from ale_llm_policy.attention import MIN_QUERIES
from ale_llm_policy.jobs import Job
from ale_llm_policy.kv_cache import CacheStep, KVCache
from ale_llm_policy.sampling import draw

CHUNK = 512
"""Most new tokens of a row in one pass."""
PASS = 1024
"""Most new tokens in one pass, padding included: intermediate results fit the CPU's cache."""


class Forward(Protocol):
    """A model over a KV cache; see `Packed` and `Modules`."""

    def refresh(self) -> None:
        """Use the model's current weights."""
        ...

    def forward(self, ids: Tensor, starts: Tensor, cache: KVCache, step: CacheStep) -> Tensor:
        """Last hidden states of the new tokens."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of some hidden states, float32."""
        ...


class Batch:
    """Jobs in rows 0 to n - 1 of a KV cache.

    On a CPU the results of a row must not depend on the other rows. So every attention product has
    at least four rows, and every pass a multiple of four queries, dummies included. Products with
    weights need more rows: see `packed`.

    Args:
        model: computes over the KV cache.
        device: the weights' device.
    """

    def __init__(self, model: Forward, device: torch.device) -> None:
        self._model = model
        self._device = device
        self.cache = KVCache(device)
        self.jobs: list[Job] = []
        """By row; who appends one also copies its `cached` tokens into the cache."""

    def remove(self, job: Job) -> None:
        """Free a job's row; the last row moves into it."""
        row, last = self.jobs.index(job), self.jobs.pop()
        if last is not job:
            self.cache.move(len(self.jobs), row, last.cached)
            self.jobs[row] = last

    @torch.inference_mode()
    def prefill(self, first: int) -> Tensor:
        """Compute the rows from `first` on up to their last token.

        Returns:
            Logits after the last token of each of them, ``[rows, vocabulary]``.
        """
        found: dict[int, Tensor] = {}
        waiting = list(range(first, len(self.jobs)))
        while waiting:
            for rows in _similar_lengths(waiting, [self._n_missing(row) for row in waiting]):
                hidden = self._chunk(rows)
                ended = [(i, row) for i, row in enumerate(rows) if self._n_missing(row) == 0]
                for i, row in ended:
                    found[row] = hidden[i]
            waiting = [row for row in waiting if self._n_missing(row) > 0]
        ordered = torch.stack([found[row] for row in sorted(found)])
        return self._logits(ordered)

    @torch.inference_mode()
    def score(self, row: int) -> list[float]:
        """Compute the log-probability of each token of the last row's forced answer."""
        job = self.jobs[row]
        found: list[float] = []
        while self._n_missing(row) > 0:
            start = job.cached
            hidden = self._pass([row], min(CHUNK, self._n_missing(row)))[0]
            stop = job.cached
            # The state at p - 1 predicts the token at p.
            first = max(job.begin, start + 1)
            if stop + 1 > first and first < len(job.ids):
                last = min(stop + 1, len(job.ids))
                states = hidden[first - 1 - start : last - 1 - start]
                logp = self._logits(states).log_softmax(-1)
                ids = torch.tensor(job.ids[first:last], device=self._device)
                found += logp.gather(1, ids[:, None])[:, 0].tolist()
        return found

    @torch.inference_mode()
    def decode(self) -> Tensor:
        """Compute the last token of every row; returns the logits after it."""
        return self._logits(self._pass(list(range(len(self.jobs))), 1, width=1)[:, 0])

    @torch.inference_mode()
    def sample(self, first: int, logits: Tensor, version: int) -> None:
        """Sample a token for each row from `first` on."""
        jobs = self.jobs[first:]
        ids, logprobs = draw(logits, [job.draw() for job in jobs])
        for job, token, logprob in zip(jobs, ids, logprobs, strict=True):
            job.add(token, logprob, version)

    def _n_missing(self, row: int) -> int:
        job = self.jobs[row]
        return len(job.ids) - job.cached

    def _chunk(self, rows: list[int]) -> list[Tensor]:
        """Advance rows by one chunk; returns each row's state after its last new token."""
        tokens = min(CHUNK, max(self._n_missing(row) for row in rows))
        ends = [min(tokens, self._n_missing(row)) - 1 for row in rows]
        hidden = self._pass(rows, tokens)
        return [hidden[i, end] for i, end in enumerate(ends)]

    def _pass(self, rows: list[int], tokens: int, width: int | None = None) -> Tensor:
        """Compute up to `tokens` more tokens of adjacent rows: hidden states, ``[rows, >=tokens]``.

        Padding is written after a row's end, where it is masked until it is overwritten.

        Args:
            width: tokens including padding; 1 for all rows at once, else the next multiple of four.
        """
        width = width or -(-tokens // MIN_QUERIES) * MIN_QUERIES
        starts, ids = [], []
        for row in rows:
            job = self.jobs[row]
            new = job.ids[job.cached : job.cached + tokens]
            starts.append(job.cached)
            ids.append(new + [0] * (width - len(new)))
            job.cached += len(new)
        # Rows after the last job's are free for dummies.
        dummies = max(0, MIN_QUERIES - len(rows)) if width == 1 else 0
        starts += [0] * dummies
        ids += [[0]] * dummies
        begin = torch.tensor(starts, device=self._device)
        step = self.cache.step(rows[0], begin, max(starts), width)
        new_ids = torch.tensor(ids, device=self._device)
        return self._model.forward(new_ids, begin, self.cache, step)[: len(rows)]

    def _logits(self, hidden: Tensor) -> Tensor:
        n = len(hidden)
        if n < MIN_QUERIES:
            padded = torch.nn.functional.pad(hidden, (0, 0, 0, MIN_QUERIES - n))
            return self._model.logits(padded)[:n]
        return self._model.logits(hidden)


def _similar_lengths(rows: list[int], lacking: list[int]) -> Iterator[list[int]]:
    """Runs of adjacent rows to compute in one pass, with little padding and bounded size."""
    run: list[int] = []
    most = least = 0
    for row, n in zip(rows, lacking, strict=True):
        n = min(n, CHUNK)
        new_most, new_least = max(most, n), min(least, n) if run else n
        joins = run and row == run[-1] + 1 and new_most * (len(run) + 1) <= PASS
        if joins and new_most <= 2 * new_least + 32:
            run.append(row)
            most, least = new_most, new_least
            continue
        if run:
            yield run
        run, most, least = [row], n, n
    if run:
        yield run
