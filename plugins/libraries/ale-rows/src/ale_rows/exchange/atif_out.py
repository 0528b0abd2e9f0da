"""Episodes as ATIF, Harbor's agent trajectory interchange format, version 1.8.

Fields unknown to the format go into its ``extra`` objects, so that reading it again gives the same
episode.

Source: harbor.models.trajectories of harbor 0.24.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from ale.types import Message, Observation, TokenTrace, ToolCall, Turn
from ale_rows.chattools import tools_of
from ale_rows.rows import EpisodeRow, ScoredRow

VERSION = "ATIF-v1.8"
EXTRA = "ale"
"""Our key in every ``extra``."""
OVERRIDE = "tools_override"
"""Whether the agent's ``tool_definitions`` override those of the steps."""


def write_episode(row: EpisodeRow | ScoredRow) -> dict[str, Any]:
    """An episode as an ATIF trajectory."""
    episode = row.episode
    facts: dict[str, Any] = msgspec.to_builtins(episode)
    trajectory = facts.pop("trajectory")
    turns = episode.trajectory.turns
    steps = [step for turn in turns for step in _steps(turn)]
    usage = [turn.completion.usage for turn in turns]
    made = {
        "schema_version": VERSION,
        "session_id": row.run,
        "trajectory_id": f"{row.run}/{episode.id}",
        "agent": {
            "name": "ale",
            "version": version("ale-core"),
            "tool_definitions": msgspec.to_builtins(tools_of(row, 0)),
        },
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(each.prompt_tokens for each in usage),
            "total_completion_tokens": sum(each.completion_tokens for each in usage),
            "total_steps": len(steps),
        },
        "extra": {EXTRA: {**facts, "stop": trajectory["stop"], OVERRIDE: row.tools is not None}},
    }
    whole: dict[str, Any] = _filled(made)
    return whole


def _steps(turn: Turn) -> Iterator[dict[str, Any]]:
    """The prompt's messages, then the answer with the observations of its calls."""
    for number, message in enumerate(turn.prompt):
        begins = number == 0 and turn.fresh_context
        yield _prompt_step(message, begins=begins)
    yield _agent_step(turn)


def _prompt_step(message: Message, *, begins: bool) -> dict[str, Any]:
    extra: dict[str, Any] = {"role": message.role, "fresh_context": begins or None}
    if message.role == "assistant":
        return {
            "source": "agent",
            "message": message.content,
            "reasoning_content": message.reasoning,
            "tool_calls": [_call(call) for call in message.tool_calls] or None,
            "is_copied_context": True,
            "extra": {EXTRA: _filled(extra)},
        }
    if message.role == "tool":
        extra["tool_call_id"] = message.tool_call_id
        result = {"content": message.content}
        return {
            "source": "system",
            "message": "",
            "observation": {"results": [result]},
            "extra": {EXTRA: _filled(extra)},
        }
    return {"source": message.role, "message": message.content, "extra": {EXTRA: _filled(extra)}}


def _agent_step(turn: Turn) -> dict[str, Any]:
    completion = turn.completion
    message = completion.message
    asked = {call.id for call in message.tool_calls}
    results = [_result(observation, asked) for observation in turn.observations]
    ours: dict[str, Any] = {
        "finish_reason": completion.finish_reason,
        "forced": completion.forced,
        "fresh_context": (turn.fresh_context and not turn.prompt) or None,
        "duration_s": turn.duration_s,
        "tools": msgspec.to_builtins(turn.tools) or None,
        "credited": None if turn.credited else False,
        "replaced": msgspec.to_builtins(turn.replaced) or None,
    }
    return {
        "source": "agent",
        "model_name": completion.model or None,
        "message": message.content,
        "reasoning_content": message.reasoning,
        "tool_calls": [_call(call) for call in message.tool_calls] or None,
        "observation": {"results": results} if results else None,
        "metrics": {
            "prompt_tokens": completion.usage.prompt_tokens,
            "completion_tokens": completion.usage.completion_tokens,
            **_token_metrics(completion.tokens),
        },
        "llm_call_count": None if completion.forced else 1,
        "extra": {EXTRA: _filled(ours)},
    }


def _call(call: ToolCall) -> dict[str, Any]:
    """A call; arguments that are not an object, or not in our format, are stored as text too."""
    try:
        arguments = msgspec.json.decode(call.arguments)
    except msgspec.MsgspecError:
        arguments = None
    whole = arguments if isinstance(arguments, dict) else {}
    made: dict[str, Any] = {
        "tool_call_id": call.id,
        "function_name": call.name,
        "arguments": whole,
    }
    if msgspec.json.encode(whole).decode() != call.arguments:
        made["extra"] = {EXTRA: {"arguments": call.arguments}}
    return made


def _result(observation: Observation, asked: set[str]) -> dict[str, Any]:
    ours = msgspec.to_builtins(observation)
    del ours["content"]
    known = observation.call_id in asked
    return {
        "source_call_id": observation.call_id if known else None,
        "content": observation.content,
        "extra": {EXTRA: _filled(ours)},
    }


def _token_metrics(trace: TokenTrace | None) -> dict[str, Any]:
    if trace is None:
        return {}
    ours = {"policy_versions": trace.policy_versions, "text_offsets": trace.text_offsets}
    return {
        "prompt_token_ids": list(trace.prompt_ids),
        "completion_token_ids": list(trace.output_ids),
        "logprobs": list(trace.logprobs),
        "extra": {EXTRA: _filled(ours)},
    }


def _filled(value: Any) -> Any:
    """Without null values, except in our own part and in what a model wrote."""
    if isinstance(value, Mapping):
        return {
            key: child if key in (EXTRA, "arguments", "parameters") else _filled(child)
            for key, child in value.items()
            if child is not None
        }
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_filled(child) for child in value]
    return value
