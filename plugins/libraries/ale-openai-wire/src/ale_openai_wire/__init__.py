"""Chat completions on the wire: what plugins for OpenAI-like models share.

A library, not a plugin: it offers nothing through a door. Its rooms:

- `request`: a conversation as the messages, tools and sampling fields of a request;
- `response`: an answer, as JSON or as an object, into a `Completion`;
- `options`: those that such models share, and the key that one of them names;
- `status` and `retry`: what kind of failure it was, whether and when to ask again, and what to say
  in the end.
"""

from ale_openai_wire.options import ChatOptions, key_from
from ale_openai_wire.request import (
    ReasoningField,
    effective,
    messages,
    sampling_fields,
    tools,
    turn_seed,
)
from ale_openai_wire.response import Answer, completion, from_mapping, read_answer
from ale_openai_wire.retry import Fault, Redactor, RetryPolicy, persist
from ale_openai_wire.status import error_fault, status_fault

__all__ = [
    "Answer",
    "ChatOptions",
    "Fault",
    "ReasoningField",
    "Redactor",
    "RetryPolicy",
    "completion",
    "effective",
    "error_fault",
    "from_mapping",
    "key_from",
    "messages",
    "persist",
    "read_answer",
    "sampling_fields",
    "status_fault",
    "tools",
    "turn_seed",
]
