"""A request in the engine."""

from collections.abc import Callable
from random import Random

from attrs import Factory, define, field

from ale_llm_policy.sampling import Draw
from ale_servers.records import SampleReason, SampleRequest
from ale_training.chat.stops import first_stop


@define(eq=False)
class Job:
    """A request in the engine. Only the engine's thread touches it after `Engine.submit`."""

    request: SampleRequest
    """Its `max_tokens` are at most what the context leaves."""
    done: Callable[["Job", SampleReason | Exception], None]
    """Called once in the engine's thread."""
    cancelled: bool = False
    """Set by anyone: the row is freed before the next step, and `done` is not called."""
    ids: list[int] = field(init=False)
    """Prompt and answer so far."""
    begin: int = field(init=False)
    """Number of ids before this job's part of the answer."""
    cached: int = field(default=0, init=False)
    """Number of tokens in the KV cache."""
    logprobs: list[float] = field(default=Factory(list), init=False)
    versions: list[int] = field(default=Factory(list), init=False)
    _random: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        asked = self.request
        self.ids = [*asked.prompt_ids, *asked.answer_ids, *asked.forced_ids]
        self.begin = len(self.ids) - len(asked.forced_ids)
        self._random = Random(asked.seed)  # noqa: S311
        for _ in asked.answer_ids:
            self._random.random()  # drawn when these ids were sampled

    @property
    def output(self) -> tuple[int, ...]:
        """The ids so far of this job's part of the answer."""
        return tuple(self.ids[self.begin :])

    def draw(self) -> Draw:
        """Sampling parameters of the next token; called once per token."""
        return Draw(
            temperature=self.request.temperature,
            top_p=self.request.top_p,
            uniform=self._random.random(),
        )

    def add(self, token: int, logprob: float, version: int) -> None:
        """Append a sampled token."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)

    def reason(self, text: Callable[[list[int]], str]) -> SampleReason | None:
        """Why the job has ended; None while it is running.

        Args:
            text: decodes ids.
        """
        if self.ids[-1] in self.request.stop_ids:
            return "stop"
        if self.request.stop and self._is_stopped(text):
            return "stop"
        return "length" if len(self.logprobs) >= self.request.max_tokens else None

    def _is_stopped(self, text: Callable[[list[int]], str]) -> bool:
        # A stop string may start and end inside tokens. Decode only the last tokens that it can
        # span, at one byte or more per token, and four more for a character that starts earlier.
        stop, start = self.request.stop, len(self.request.prompt_ids)
        reach = max(len(each.encode()) for each in stop) + 4
        recent = text(self.ids[max(start, len(self.ids) - reach) :])
        if not any(each in recent for each in stop):
            return False
        return first_stop(stop, text(self.ids[start:])) is not None
