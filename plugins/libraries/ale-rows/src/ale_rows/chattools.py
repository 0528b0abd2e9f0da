"""Tool definitions: records, chat completions, and files of them."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ale.strict import read_text
from ale.types import ToolSpec
from ale_rows.reading import damaged
from ale_rows.rows import ChatTool, ChatToolFunction, ChatTools, EpisodeRow, ScoredRow


def chat_tools(tools: Sequence[ToolSpec] | None) -> ChatTools:
    """Recorded tools as those of chat completions."""
    if tools is None:
        return None
    return tuple(
        ChatTool(
            function=ChatToolFunction(
                name=tool.name, description=tool.description, parameters=tool.parameters
            )
        )
        for tool in tools
    )


def tools_of(row: EpisodeRow | ScoredRow, turn: int) -> ChatTools:
    """The tools that were sent with the request of a turn, unless the row overrides them.

    Returns:
        None where none were sent, or where they are unknown: in runs that did not record them.
    """
    recorded = row.episode.trajectory.tools(upto=turn)
    return chat_tools(recorded if row.tools is None else row.tools) or None


def recorded_tools(tools: ChatTools) -> tuple[ToolSpec, ...] | None:
    """Tools of chat completions as records."""
    if tools is None:
        return None
    return tuple(
        ToolSpec(
            name=tool.function.name,
            description=tool.function.description,
            parameters=tool.function.parameters,
        )
        for tool in tools
    )


def read_tools(path: Path) -> tuple[ToolSpec, ...]:
    """The tools of a JSON file: a list as the ``tools`` of chat completions.

    Raises:
        InputError: the file does not exist, or is not such a list.
    """
    try:
        listed = msgspec.json.decode(read_text(path), type=tuple[ChatTool, ...])
    except msgspec.MsgspecError as error:
        raise damaged(error, path, None) from None
    return recorded_tools(listed) or ()
