"""ATIF trajectories, ours and those of other agents, as episodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from attrs import define, field

from ale.types import (
    Completion,
    Episode,
    Message,
    Observation,
    Replaced,
    TokenTrace,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    Usage,
)
from ale_rows.exchange.atif_out import EXTRA, OVERRIDE
from ale_rows.exchange.conversations import chat_tools_of, task_of
from ale_rows.exchange.items import Item, LeftOutError, listed, plain_text
from ale_rows.rows import ChatTools


def read_episode(item: Item, episode_id: str, reward: float | None) -> tuple[Episode, ChatTools]:
    """The episode of a trajectory, and its agent's tools unless the turns have them.

    Copied context, and steps without a model call, become part of the next prompt. The format has
    no reward: files that we wrote have a field of our own; for others it is `reward`.

    Raises:
        LeftOutError: it is not an ATIF trajectory, or has content that an episode can't hold.
    """
    if not str(item.get("schema_version", "")).startswith("ATIF-v1."):
        found = item.get("schema_version", "none")
        raise LeftOutError(f"expected the schema_version ATIF-v1.x, found {found}")
    facts = _ours(item)
    reader = _Reader(fresh="task_id" not in facts)
    try:
        for step in listed(item, "steps"):
            reader.add(step)
        tools = chat_tools_of(_mapping(item.get("agent")).get("tool_definitions"))
        if not reader.turns:
            raise LeftOutError("no step of an agent in it")
        if "task_id" in facts:
            return _rebuilt(facts, reader), tools if facts.get(OVERRIDE, True) else None
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise LeftOutError(f"not an ATIF trajectory: {error}") from error
    episode = Episode(
        id=str(item.get("trajectory_id") or item.get("session_id") or episode_id),
        task_id=task_of(reader.turns[0].prompt),
        reward=reward,
        trajectory=Trajectory(turns=tuple(reader.turns)),
    )
    return episode, tools


def _rebuilt(facts: Mapping[str, Any], reader: "_Reader") -> Episode:
    rest = {key: value for key, value in facts.items() if key not in ("stop", OVERRIDE)}
    turns = msgspec.to_builtins(reader.turns)
    trajectory = {"turns": turns, "stop": facts["stop"]}
    return msgspec.convert({**rest, "trajectory": trajectory}, Episode)


@define
class _Reader:
    """Converts steps to turns."""

    _fresh: bool
    """Whether the next turn starts a new context."""
    turns: list[Turn] = field(factory=list)
    _prompt: list[Message] = field(factory=list)

    def add(self, step: Item) -> None:
        """Add a step."""
        ours = _ours(step)
        self._fresh = bool(ours.get("fresh_context")) or self._fresh
        asked_no_model = step.get("llm_call_count") == 0
        if step["source"] != "agent":
            self._prompt += _prompt_messages(step, ours)
        elif step.get("is_copied_context") or asked_no_model:
            self._prompt.append(_answer(step))
            self._prompt += (each.as_message() for each in _observations(step))
        else:
            self.turns.append(_turn(step, ours, self._prompt, fresh=self._fresh))
            self._prompt, self._fresh = [], False


def _ours(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(item.get("extra")).get(EXTRA))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _prompt_messages(step: Item, ours: Mapping[str, Any]) -> Iterator[Message]:
    results = _mapping(step.get("observation")).get("results") or ()
    if ours.get("role") == "tool":
        for result in results:
            content = plain_text(result.get("content"))
            yield Message(role="tool", content=content, tool_call_id=ours.get("tool_call_id"))
        return
    text = plain_text(step["message"])
    if text or not results:
        yield Message(role="system" if step["source"] == "system" else "user", content=text)
    for result in results:
        yield Message(role="user", content=plain_text(result.get("content")))


def _answer(step: Item) -> Message:
    return Message(
        role="assistant",
        content=plain_text(step["message"]),
        reasoning=step.get("reasoning_content"),
        tool_calls=tuple(_call(call) for call in step.get("tool_calls") or ()),
    )


def _call(call: Item) -> ToolCall:
    written = _ours(call).get("arguments")
    if written is None:
        written = msgspec.json.encode(call["arguments"]).decode()
    return ToolCall(id=call["tool_call_id"], name=call["function_name"], arguments=written)


def _turn(step: Item, ours: Mapping[str, Any], prompt: Sequence[Message], *, fresh: bool) -> Turn:
    metrics = _mapping(step.get("metrics"))
    message = _answer(step)
    ended = "tool_calls" if message.tool_calls else "stop"
    return Turn(
        prompt=tuple(prompt),
        fresh_context=fresh,
        completion=Completion(
            message=message,
            finish_reason=ours.get("finish_reason", ended),
            usage=Usage(
                prompt_tokens=metrics.get("prompt_tokens") or 0,
                completion_tokens=metrics.get("completion_tokens") or 0,
            ),
            model=step.get("model_name") or "",
            tokens=_trace(metrics),
            forced=bool(ours.get("forced")),
        ),
        observations=tuple(_observations(step)),
        duration_s=ours.get("duration_s", 0.0),
        tools=msgspec.convert(ours.get("tools", ()), tuple[ToolSpec, ...]),
        credited=ours.get("credited", True),
        replaced=msgspec.convert(ours.get("replaced", ()), tuple[Replaced, ...]),
    )


def _trace(metrics: Mapping[str, Any]) -> TokenTrace | None:
    """The token trace, if all of its fields are recorded; nothing is made up."""
    ours = _ours(metrics)
    ids = metrics.get("completion_token_ids")
    if ids is None or "policy_versions" not in ours or metrics.get("logprobs") is None:
        return None
    offsets = ours.get("text_offsets")
    return TokenTrace(
        prompt_ids=tuple(metrics.get("prompt_token_ids") or ()),
        output_ids=tuple(ids),
        logprobs=tuple(metrics["logprobs"]),
        policy_versions=tuple(ours["policy_versions"]),
        text_offsets=None if offsets is None else tuple(offsets),
    )


def _observations(step: Item) -> Iterator[Observation]:
    """The results of the calls in their order; then results without a call."""
    results = list(_mapping(step.get("observation")).get("results") or ())
    if all("tool" in _ours(result) for result in results):
        for result in results:
            yield msgspec.convert(
                {**_ours(result), "content": result.get("content") or ""}, Observation
            )
        return
    calls = step.get("tool_calls") or ()
    for call in calls:
        for result in results:
            if result.get("source_call_id") == call["tool_call_id"]:
                yield _observation(result, call["tool_call_id"], call["function_name"], "tool")
    for result in results:
        if result.get("source_call_id") is None:
            yield _observation(result, "", "", "user")


def _observation(result: Item, call_id: str, tool: str, role: Any) -> Observation:
    content = plain_text(result.get("content"))
    return Observation(call_id=call_id, tool=tool, content=content, role=role)
