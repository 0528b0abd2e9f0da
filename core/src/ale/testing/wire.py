"""How an API writes requests and answers, so that `ale.testing.openai_server` can play a script
to a client of an API other than OpenAI's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Step = Mapping[str, Any]
"""One step of a script; see `ale.testing.openai_server`."""


class Wire:
    """An API that takes a POST with JSON and answers with JSON. Override all but `events`.

    The kit's server runs in its own process, which imports the wire by name: define it in a module
    that can be imported, and give the kit ``scripted_server(script, wire="module:Name")``.
    """

    path: str
    """The end of the path to which requests are sent, such as ``/chat/completions``."""

    def messages(self, body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The conversation of a request: objects with `role` and `content`, as OpenAI has them."""
        raise NotImplementedError

    def answer(self, step: Step, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body of an answer with the step's ``text``, ``calls``, ``usage`` and so on."""
        raise NotImplementedError

    def error(self, step: Step) -> Mapping[str, Any]:
        """The body of an answer to a request that fails with an HTTP status.

        The step's ``fault`` is that status, or ``context_length``, which is sent with status 400
        and must become a `ContextLengthError`. If the step has a ``message``, the body must
        contain it.
        """
        raise NotImplementedError

    def events(self, step: Step, body: Mapping[str, Any]) -> Iterable[Mapping[str, Any]] | None:
        """The events of a streamed answer; None if the request asks for a whole answer."""
        return None
