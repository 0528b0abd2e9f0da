"""Finds the skills for a task by the vectors of their texts, which a server computes."""

import asyncio
import json
import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

import msgspec
from attrs import frozen

from ale.errors import LLMError
from ale_middleware.skills.options import EmbeddingOptions
from ale_middleware.skills.store import Skill

_AT_ONCE = 128
"""Texts of one request."""
Vector = tuple[float, ...]


class _Embedding(msgspec.Struct):
    index: int
    embedding: Vector


class _Answer(msgspec.Struct):
    data: list[_Embedding]


@frozen
class Embedder:
    """Asks ``/v1/embeddings``; vectors have length 1.

    Args:
        key: sent as a bearer token.
    """

    options: EmbeddingOptions
    key: str | None = None

    async def vectors(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of texts, in their order.

        Raises:
            LLMError: the server gave none.
        """
        found: list[Vector] = []
        for at in range(0, len(texts), _AT_ONCE):
            part = [*texts[at : at + _AT_ONCE]]
            answer = await asyncio.to_thread(
                self._ask, {"model": self.options.model, "input": part}
            )
            found += _vectors(answer, len(part))
        return found

    def _ask(self, body: dict[str, Any]) -> bytes:
        url = f"{self.options.base_url.rstrip('/')}/embeddings"
        head = {"Content-Type": "application/json"}
        if self.key is not None:
            head["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=head)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=self.options.timeout_s) as answer:  # noqa: S310
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as error:
            text = error.read(300).decode("utf-8", "replace")
            raise LLMError(f"{url} answered with status {error.code}: {text}") from error
        except OSError as error:
            raise LLMError(
                f"{url} can't be asked for embeddings: {error}", transient=True
            ) from error


def _vectors(answer: bytes, n: int) -> list[Vector]:
    try:
        data = msgspec.json.decode(answer, type=_Answer).data
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LLMError(f"the server of embeddings answered in another form: {error}") from error
    ordered = sorted(data, key=lambda each: each.index)
    if [each.index for each in ordered] != [*range(n)]:
        raise LLMError(f"the server of embeddings gave {len(ordered)} vectors for {n} texts")
    return [_of_length_1(each.embedding) for each in ordered]


def _of_length_1(vector: Vector) -> Vector:
    length = math.hypot(*vector)
    if not math.isfinite(length):
        raise LLMError("the server of embeddings gave a number that is not finite")
    return tuple(value / length for value in vector) if length else vector


class Nearest:
    """The skills whose vectors are near that of a task's goal.

    The vector of each skill is asked for once in a process.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Vector] = {}

    async def fitting(self, skills: Sequence[Skill], goal: str, top_k: int) -> list[Skill]:
        """Those for a task, nearest first.

        Raises:
            LLMError: the server gave no vectors.
        """
        new = [skill for skill in skills if skill.id not in self._known]
        asked = [goal, *(f"{skill.goal}\n{skill.text}" for skill in new)]
        of_goal, *of_skills = await self._embedder.vectors(asked)
        self._known |= {skill.id: found for skill, found in zip(new, of_skills, strict=True)}
        near = [(self._cosine(skill, of_goal), skill) for skill in skills]
        least = self._embedder.options.threshold
        ranked = sorted(((c, s) for c, s in near if c >= least), key=lambda p: (-p[0], p[1].id))
        return [skill for _, skill in ranked[:top_k]]

    def _cosine(self, skill: Skill, goal: Vector) -> float:
        vector = self._known[skill.id]
        if len(vector) != len(goal):
            raise LLMError("the server of embeddings gave vectors of different lengths")
        return math.fsum(a * b for a, b in zip(vector, goal, strict=True))
