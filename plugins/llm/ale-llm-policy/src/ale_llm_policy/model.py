"""The model component: turns requests into completions with exact tokens."""

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

from attrs import evolve

from ale.errors import ContextLengthError, LLMError
from ale.types import (
    Completion,
    CompletionRequest,
    FinishReason,
    LLMCapabilities,
    Message,
    PolicySnapshot,
    Sampling,
    TokenTrace,
    Usage,
)
from ale_llm_policy.engine import Engine
from ale_llm_policy.jobs import Job, Outcome, Rules, truncate_at_stop
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.sessions import Sessions


class PolicyLLM:
    """Samples from a policy in this process. A `Policy`.

    Args:
        policy: model, tokenizer and template; read by trainers.
        engine: samples from it.
        defaults: for options that a request leaves open; all set.
        context: most tokens of prompt and answer together.
    """

    def __init__(
        self, policy: TorchPolicy, engine: Engine, *, defaults: Sampling, context: int
    ) -> None:
        self.policy = policy
        self.engine = engine
        self._defaults = defaults
        self._context = min(context, policy.context)
        self._sessions = Sessions(policy.template)
        self._end_ids = policy.template.end_ids

    @property
    def capabilities(self) -> LLMCapabilities:
        """All of them."""
        return LLMCapabilities(tools=True, token_ids=True, logprobs=True, deterministic=True)

    @property
    def sampling(self) -> Sampling:
        """Sampling defaults of every request; read by trainers."""
        return self._defaults

    @property
    def policy_version(self) -> int:
        """Version of the weights that sample the next token."""
        return self.policy.version

    async def complete(self, request: CompletionRequest) -> Completion:
        """Sample one answer.

        Raises:
            ContextLengthError: the prompt fills the context.
            LLMError: the model failed, or is closed.
        """
        prompt = self._prompt(request)
        rules = self._rules(request.sampling, len(prompt))
        # Depends on seed and turn alone, not on time or other requests.
        numbers = Random(f"{request.conversation.seed}/{request.turn}")  # noqa: S311
        job, outcome = await self._run(lambda done: Job(prompt, rules, numbers, done))
        return self._completion(request, job, outcome)

    async def force(self, request: CompletionRequest, answer: Message) -> Completion:
        """The completion for a given answer, with log-probabilities from a forward pass.

        They are of the model at temperature 1 over all tokens, because a demonstration may be
        impossible under top-p. The answer ends where a sampled one would, with the token that
        completes a stop string: text after it can't be sampled and must not be imitated.

        Raises:
            ContextLengthError: prompt and answer together don't fit.
            LLMError: as `complete`; or the answer has text after a stop string.
        """
        prompt = self._prompt(request)
        rules = self._rules(request.sampling, len(prompt))
        ids, stop_at = self._as_sampled(answer, rules.stop)
        if len(prompt) + len(ids) > self._context:
            raise self._too_long(len(prompt) + len(ids))
        job, outcome = await self._run(
            lambda done: Job(prompt, rules, Random(0), done, forced=ids)  # noqa: S311
        )
        return self._completion(request, job, evolve(outcome, stop_at=stop_at))

    def _as_sampled(
        self, answer: Message, stop: tuple[str, ...]
    ) -> tuple[tuple[int, ...], int | None]:
        template = self.policy.template
        whole = template.answer(answer)
        ids, stop_at = truncate_at_stop(
            whole, stop, lambda part: template.token_bytes.text(part).text
        )
        if stop_at is not None:
            text = template.token_bytes.text(tuple(i for i in whole if i not in self._end_ids)).text
            found = max((each for each in stop if text.startswith(each, stop_at)), key=len)
            rest = text[stop_at + len(found) :].strip()
            if rest:
                raise LLMError(
                    f"a demonstrated answer has text after the stop string {found!r}, which "
                    f"can't be sampled: {rest[:80]!r}"
                )
        return ids, stop_at

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Sample from these weights, starting with the next decoding step.

        `snapshot.weights` is None or this policy if they are in the model already; else a mapping
        of names to tensors, copied in place. If it is None, `snapshot.path` is read.

        Raises:
            InputError: the weights do not fit this model.
        """

        def change() -> None:
            if snapshot.weights is not None and snapshot.weights is not self.policy:
                self.policy.load_weights(snapshot.weights)
            elif snapshot.weights is None and snapshot.path is not None:
                self.policy.load_weights(snapshot.path)
            self.policy.version = snapshot.version

        await asyncio.wrap_future(self.engine.call(lambda: self.engine.reload(change)))

    async def aclose(self) -> None:
        """End the thread. Idempotent."""
        await asyncio.to_thread(self.engine.close)

    def _prompt(self, request: CompletionRequest) -> tuple[int, ...]:
        prompt = self._sessions.prompt(request)
        if len(prompt) >= self._context:
            raise self._too_long(len(prompt))
        return prompt

    def _too_long(self, n: int) -> ContextLengthError:
        return ContextLengthError(f"{n} tokens, and the context holds {self._context}")

    def _rules(self, sampling: Sampling, n_prompt: int) -> Rules:
        defaults = self._defaults
        asked = _or(sampling.max_tokens, defaults.max_tokens)
        return Rules(
            temperature=_or(sampling.temperature, defaults.temperature),
            top_p=_or(sampling.top_p, defaults.top_p),
            max_tokens=int(min(asked, self._context - n_prompt)),
            ends=self._end_ids,
            stop=sampling.stop or defaults.stop,
        )

    async def _run(
        self, make: Callable[[Callable[[Job, Outcome | Exception], None]], Job]
    ) -> tuple[Job, Outcome]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Outcome | Exception) -> None:
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        def done(_: Job, outcome: Outcome | Exception) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits
                loop.call_soon_threadsafe(settle, outcome)

        job = make(done)
        self.engine.submit(job)
        try:
            return job, await future
        except asyncio.CancelledError:
            self.engine.cancel(job)
            raise

    def _completion(self, request: CompletionRequest, job: Job, outcome: Outcome) -> Completion:
        output = job.output
        answer = self.policy.template.read(
            output, turn=request.turn, tools=request.tools, limit=outcome.stop_at
        )
        message = answer.message
        self._sessions.remember_answer(request, job.ids, len(job.prompt), message)
        forced = outcome.reason == "forced"
        reason: FinishReason = "length" if outcome.reason == "length" else "stop"
        if message.tool_calls and reason == "stop":
            reason = "tool_calls"
        return Completion(
            message=message,
            finish_reason=reason,
            usage=Usage(prompt_tokens=len(job.prompt), completion_tokens=len(output)),
            model=self.policy.name,
            tokens=TokenTrace(
                prompt_ids=job.prompt,
                output_ids=output,
                logprobs=tuple(job.logprobs),
                policy_versions=tuple(job.versions),
                text_offsets=answer.text_offsets,
            ),
            forced=forced,
        )


def _or(value: float | None, default: float | None) -> float:
    chosen = default if value is None else value
    assert chosen is not None, "the options set every default"
    return chosen
