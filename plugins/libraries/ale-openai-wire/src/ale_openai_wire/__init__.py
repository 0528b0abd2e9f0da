"""Chat completions on the wire: what plugins for OpenAI-like models share.

A library, not a plugin: it registers no component. Its modules:

- `request`: a conversation as the messages, tools and sampling fields of a request;
- `response`: an answer, as JSON or as an object, into a `Completion`;
- `stream`: an answer from server-sent events;
- `options`: those that such models share, and the key that one of them names;
- `status` and `retry`: what kind of failure it was, whether and when to retry;
- `models`: the list at ``/models``;
- `client`: the base of a component: one request at a time, retries, the check of a name;
- `listening`: a server's address, and which requests may come in;
- `hints`: what to do where no retry helps.
"""

from ale_openai_wire.client import ONE_TOKEN, ChatClient, missing_model
from ale_openai_wire.hints import TOO_LONG, unreachable
from ale_openai_wire.listening import Admission, cannot_listen, check_exposed
from ale_openai_wire.models import models_at, read_models
from ale_openai_wire.options import ChatOptions, key_from
from ale_openai_wire.request import (
    ReasoningField,
    effective,
    messages,
    reshaping,
    samples_as_model,
    sampling_fields,
    tools,
    turn_seed,
)
from ale_openai_wire.response import Answer, completion, from_mapping, read_answer
from ale_openai_wire.retry import AttemptError, Redactor
from ale_openai_wire.status import error_in, status_error, stream_error

__all__ = [
    "ONE_TOKEN",
    "TOO_LONG",
    "Admission",
    "Answer",
    "AttemptError",
    "ChatClient",
    "ChatOptions",
    "ReasoningField",
    "Redactor",
    "cannot_listen",
    "check_exposed",
    "completion",
    "effective",
    "error_in",
    "from_mapping",
    "key_from",
    "messages",
    "missing_model",
    "models_at",
    "read_answer",
    "read_models",
    "reshaping",
    "samples_as_model",
    "sampling_fields",
    "status_error",
    "stream_error",
    "tools",
    "turn_seed",
    "unreachable",
]
