"""The agent's own messages: the system prompt, reminders and hints."""

from ale.errors import InputError
from ale.strict import read_text
from ale.types import Completion
from ale_agent_iflow.options import IflowOptions

SYSTEM = """\
You complete a task on a Unix machine by calling tools.

The shell starts in the task's working directory, and relative paths of files start there.

- The shell lasts: cd, variables and background jobs carry over from one call to the next.
- Nobody answers questions. Decide for yourself and act.
- Hidden tests judge the state of the machine afterwards. What you only write in an answer does \
not count.
- Test your work before you rely on it.
- When the task is done, call finish with a short summary."""

NO_CALL = "Your answer had no tool call, so nothing was done. "
EMPTY = "Your answer was empty. "
CUT_OFF = (
    "Your answer was cut off at the token limit before it had a complete tool call. Be brief. "
)
FILTERED = "Your answer was withheld by the provider's content filter. Try another approach. "
CUT_CALL = (
    "Your answer was cut off at the token limit. Do less in one call: write a long file in parts."
)
CONTINUE = "Call a tool to continue, or finish if the task is done."


def system_prompt(options: IflowOptions) -> str:
    """The prompt that the options ask for.

    Raises:
        InputError: both are given, or the file can't be read as UTF-8.
    """
    if options.system_prompt_file is None:
        return SYSTEM if options.system_prompt is None else options.system_prompt
    path = "agent.system_prompt_file"
    if options.system_prompt is not None:
        raise InputError.of("give this or agent.system_prompt, not both", path=path)
    return read_text(options.system_prompt_file, option=path)


def reminder(completion: Completion, format_hint: str) -> str:
    """The message that follows an answer without a tool call."""
    if completion.finish_reason == "length":
        why = CUT_OFF
    elif completion.finish_reason == "content_filter":
        why = FILTERED
    elif not completion.message.content.strip():
        why = EMPTY
    else:
        why = NO_CALL
    return why + CONTINUE + (f"\n\n{format_hint}" if format_hint else "")


def bad_call_hint(completion: Completion, format_hint: str) -> str:
    """What is added to the error of a call that could not be read."""
    hint = CUT_CALL if completion.finish_reason == "length" else format_hint
    return f"\n{hint}" if hint else ""
