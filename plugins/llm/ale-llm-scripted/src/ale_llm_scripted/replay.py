"""A recorded run as lines: its episodes are indexed by byte offset and read when asked for."""

import asyncio
import logging
import os
from pathlib import Path

import msgspec
from attrs import frozen

from ale.errors import InputError, LLMError, StoreError
from ale.types import Completion, CompletionRequest, Conversation, LLMCapabilities, Message

log = logging.getLogger(__name__)

EPISODES = "episodes.jsonl"


class _Tokens(msgspec.Struct):
    output_ids: list[int]
    logprobs: list[float]


class _Message(msgspec.Struct):
    tool_calls: list[msgspec.Raw] = []


class _Completion(msgspec.Struct):
    message: _Message
    tokens: _Tokens | None = None


class _Turn(msgspec.Struct):
    completion: _Completion


class _Trajectory(msgspec.Struct):
    turns: list[_Turn] = []


class _Heading(msgspec.Struct):
    """The fields of an episode that the index needs; the others are skipped."""

    id: str
    task_id: str
    schema: int = 1
    step: int = 0
    rollout: int = 0
    trajectory: _Trajectory = msgspec.field(default_factory=_Trajectory)


class _RawTurn(msgspec.Struct):
    completion: msgspec.Raw


class _RawTrajectory(msgspec.Struct):
    turns: list[_RawTurn] = []


class _Body(msgspec.Struct):
    trajectory: _RawTrajectory = msgspec.field(default_factory=_RawTrajectory)


@frozen
class _Place:
    """The position of an episode in the file."""

    step: int
    offset: int
    length: int


class Recording:
    """The answers that the model of a recorded run gave.

    An episode is found by its id, so that a run of several training steps replays each step;
    failing that, by task and rollout, in the earliest step that has it. If an id is recorded
    twice (a broken episode that was run again), the last line counts.
    """

    traced_end = False

    def __init__(self, run: Path, *, tools: bool = True) -> None:
        """Index a run directory. Memory grows with the number of episodes, not their size.

        Raises:
            InputError: it is not a run directory, or it has tool calls and `tools` is False.
            StoreError: a line of its episodes can't be read.
        """
        self._path = run / EPISODES
        self._by_id: dict[str, _Place] = {}
        self._by_rollout: dict[tuple[str, int], _Place] = {}
        self._calls = False
        self._tokens = True
        try:
            self._file: int | None = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            message = f"not a run directory: {EPISODES} can't be read: {error.strerror}"
            raise InputError.of(message, file=str(run)) from error
        try:
            self._index()
            self._check(tools)
        except BaseException:
            self.close()
            raise
        self._capabilities = LLMCapabilities(
            tools=tools, token_ids=self._tokens, logprobs=self._tokens, deterministic=True
        )

    @property
    def capabilities(self) -> LLMCapabilities:
        """Token ids and log-probabilities where every recorded answer has them."""
        return self._capabilities

    async def line(self, request: CompletionRequest) -> Completion | None:
        """The recorded answer, byte for byte; None after the last.

        Raises:
            LLMError: the run does not have this conversation, or the model is closed.
        """
        return await asyncio.to_thread(self._read, self._find(request.conversation), request.turn)

    def last(self, request: CompletionRequest) -> Completion:
        """An empty answer without tokens: none were recorded for it."""
        return Completion(message=Message(role="assistant"))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _index(self) -> None:
        decoder = msgspec.json.Decoder(_Heading)
        offset = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    self._add(decoder, line, number, offset)
                offset += len(line)

    def _add(
        self, decoder: "msgspec.json.Decoder[_Heading]", line: bytes, number: int, offset: int
    ) -> None:
        try:
            heading = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if not line.endswith(b"\n"):
                # Left by a run that was killed while writing: the run's reader skips it too.
                log.warning("%s:%d: half a line at the end, left out", self._path, number)
                return
            raise StoreError(f"{self._path}:{number}: not an episode: {error}") from error
        if heading.schema != 1:
            raise StoreError(
                f"{self._path}:{number}: schema {heading.schema}; only 1 can be replayed"
            )
        place = _Place(heading.step, offset, len(line))
        self._by_id[heading.id] = place
        key = (heading.task_id, heading.rollout)
        if key not in self._by_rollout or place.step <= self._by_rollout[key].step:
            self._by_rollout[key] = place
        for turn in heading.trajectory.turns:
            tokens = turn.completion.tokens
            self._calls |= bool(turn.completion.message.tool_calls)
            self._tokens &= tokens is not None and len(tokens.logprobs) == len(tokens.output_ids)

    def _check(self, tools: bool) -> None:
        if not self._by_id:
            raise InputError.of("no episode to replay", file=str(self._path))
        if self._calls and not tools:
            message = "the recorded model called tools, and the option 'tools' is off"
            raise InputError.of(message, file=str(self._path))

    def _find(self, who: Conversation) -> _Place:
        place = self._by_id.get(who.episode_id) or self._by_rollout.get((who.task_id, who.rollout))
        if place is None:
            rollouts = sorted(r for task, r in self._by_rollout if task == who.task_id)
            held = f"has its rollouts {rollouts}" if rollouts else "does not have the task"
            raise LLMError(
                f"{self._path} holds no rollout {who.rollout} of task {who.task_id!r}: it {held}"
            )
        return place

    def _read(self, place: _Place, turn: int) -> Completion | None:
        if self._file is None:
            raise LLMError("the model is closed")
        line = os.pread(self._file, place.length, place.offset)
        turns = msgspec.json.decode(line, type=_Body).trajectory.turns
        if turn >= len(turns):
            return None
        return msgspec.json.decode(turns[turn].completion, type=Completion)
