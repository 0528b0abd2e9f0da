"""Evidence for claims: the texts that the agent was given, without what it made them say."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from ale.protocols import ScoringContext
from ale.types import Turn

_TOKEN = re.compile(r"\.?\w+(?:\.\d+\w*)*|[^\w\s]")
"""A word, a whole number, or one other character; `42.5` is one, so that `42` isn't in it."""
_MOST_WORK = 200_000_000
_TOKENISING = 50
"""Cost of splitting one character, where that of finding a text of several tokens in it is 1."""


@frozen
class _Piece:
    """A text that the agent was given, and the words of the call that it came from, as tokens."""

    given: str
    called: str = ""


class Evidence:
    """The task, what the model was told, and what its calls gave.

    The output of a call supports nothing that stands in the call's own arguments, as ``echo`` can
    say anything.
    """

    def __init__(self, context: ScoringContext) -> None:
        turns = context.episode.trajectory.turns
        seen = [each for turn in turns for each in _seen(turn)]
        # What a call gave may be told once more, in a conversation that begins anew.
        again = {text for text, _ in seen}
        told = [m.content for turn in turns for m in turn.prompt if m.role != "assistant"]
        texts = [context.task.goal, *(text for text in told if text not in again)]
        self._texts = [(text, "") for text in texts] + seen

    @property
    def text(self) -> str:
        """The whole of it."""
        return "\n".join(text for text, _ in self._texts)

    def problem(self, quotes: Sequence[str]) -> str | None:
        """Why these can't be looked up; None if they can."""
        size = sum(len(text) + len(call) for text, call in self._texts)
        long = sum(len(_TOKEN.findall(quote)) > 1 for quote in quotes)
        if size * (_TOKENISING + long) <= _MOST_WORK:
            return None
        return f"{len(quotes)} claims and {size} characters of evidence are too many to look up"

    def supported(self, quotes: Sequence[str]) -> list[bool]:
        """Whether each stands in one of the texts, white space and whole words aside."""
        pieces, words = [], set[str]()
        for text, call in self._texts:
            given, called = _TOKEN.findall(text), _words(_TOKEN.findall(call))
            words |= {*given} - {*called}
            pieces.append(_Piece(_joined(given), _joined(called)))
        return [self._stands(_TOKEN.findall(quote), words, pieces) for quote in quotes]

    def _stands(self, quote: Sequence[str], words: set[str], pieces: Sequence[_Piece]) -> bool:
        if len(quote) < 2:
            return bool(quote) and quote[0] in words
        whole, said = _joined(quote), _joined(_words(quote))
        return any(
            whole in each.given and not (said.strip() and said in each.called) for each in pieces
        )


def _joined(tokens: Sequence[str]) -> str:
    return f" {' '.join(tokens)} "


def _words(tokens: Sequence[str]) -> list[str]:
    return [each for each in tokens if each[-1].isalnum() or each[-1] == "_"]


def _seen(turn: Turn) -> Iterator[tuple[str, str]]:
    """The observations of a turn, each with the arguments of its call."""
    calls = turn.completion.message.tool_calls
    for number, each in enumerate(turn.observations):
        call = calls[number].arguments if number < len(calls) else ""
        yield each.content, _plain(call)


def _plain(arguments: str) -> str:
    """The texts in a call's JSON; if it is none, the call as it stands."""
    try:
        return "\n".join(_leaves(json.loads(arguments)))
    except (ValueError, RecursionError):
        return arguments


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield str(value)
