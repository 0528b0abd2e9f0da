"""Vectors of a frozen model for places in an episode."""

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

from ale.types import Message, Span, Trajectory, replace
from ale_servers.protocol import WeightsError
from ale_servers.tensors import digest_of, stored_in
from ale_training.devices import resolve_device, resolve_dtype
from ale_training.hub import folder_of, only_local, unloadable
from ale_training.pretrained import LOAD_ERRORS, load_causal, no_progress_bars, why_not_loaded

Place = tuple[int, int, int]
"""A turn, and how many of its characters and calls are before the place."""
LONGEST = 8192
"""Tokens before a place that are read at most, whatever the model's context."""
_PROBE = "system: You act in a sandbox.\nuser: List the files, caf\u00e9!\n"


class FrozenModel:
    """A causal model that is read and never trained."""

    def __init__(self, model: Any, tokenizer: Any, *, digest: str) -> None:
        self.digest = digest
        """Digest of the weights in the model's files."""
        self._body, self._tokenizer = getattr(model, model.base_model_prefix), tokenizer
        self._device = next(model.parameters()).device
        context = getattr(model.config, "max_position_embeddings", None) or LONGEST
        self._limit = min(int(context), LONGEST)
        self._lock = threading.Lock()  # scorers of episodes that run at once share the model
        self._ids = lru_cache(maxsize=4096)(self._encoded)

    def probe(self) -> Tensor:
        """The vector of a fixed text: with another tokenizer, it is another one."""
        return self._vectors([self._ids(_PROBE)])[0]

    def vectors(self, trajectory: Trajectory, places: Sequence[Place]) -> Tensor:
        """Vectors of the conversation up to each place.

        The hidden state of the last token, and the mean of those of all tokens, both of the last
        layer.

        Args:
            places: in the order of the episode.

        Returns:
            float32, (number of places, 2 * width).
        """
        return self._vectors([self._read(trajectory, place) for place in places])

    def _vectors(self, read: Sequence[tuple[int, ...]]) -> Tensor:
        made: list[Tensor] = []
        for texts in _chains(read):
            with self._lock, torch.inference_mode():
                ids = torch.tensor([texts[-1]], device=self._device)
                hidden = self._body(input_ids=ids).last_hidden_state[0].float().cpu()
            for text in texts:
                n = len(text)
                made.append(torch.cat([hidden[n - 1], hidden[:n].mean(0)]))
        return torch.stack(made) if made else torch.zeros(0, 2 * self._body.config.hidden_size)

    def _read(self, trajectory: Trajectory, place: Place) -> tuple[int, ...]:
        """Token ids of the conversation up to a place; of one that is too long, the end."""
        ids = [i for each in conversation(trajectory, place) for i in self._ids(_written(each))]
        return tuple(ids[-self._limit :]) or self._ids(_PROBE[:1])

    def _encoded(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def _chains(texts: Sequence[tuple[int, ...]]) -> Iterator[Sequence[tuple[int, ...]]]:
    """Texts that follow each other and each begin with the one before: one reading is enough."""
    chain: list[tuple[int, ...]] = []
    for text in texts:
        if chain and text[: len(chain[-1])] != chain[-1]:
            yield chain
            chain = []
        chain.append(text)
    if chain:
        yield chain


def end_of(spans: Sequence[Span]) -> Place:
    """The place after a chunk's spans, of which there is one at least."""
    last = spans[-1]
    return last.turn, last.text[1], last.calls[1]


def conversation(trajectory: Trajectory, place: Place) -> Iterator[Message]:
    """The messages up to a place, with the observations of the calls before it."""
    number, n_text, n_calls = place
    turn = trajectory.turns[number]
    said = turn.completion.message
    yield from trajectory.messages(number)
    yield replace(said, content=said.content[:n_text], tool_calls=said.tool_calls[:n_calls])
    yield from (each.as_message() for each in turn.observations[:n_calls])


def _written(message: Message) -> str:
    calls = [f"[{call.name} {call.arguments}]" for call in message.tool_calls]
    parts = [part for part in (message.content, *calls) if part]
    return f"{message.role}: " + "\n".join(parts) + "\n"


def load_frozen(name: str, *, path: str) -> FrozenModel:
    """The model of a folder, or of the hub, with its tokenizer.

    Args:
        path: of the option that names it, for errors.

    Raises:
        InputError: it can't be loaded.
    """
    device = resolve_device("auto", path=path)
    try:
        local = only_local(name, path=path)
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
        dtype = resolve_dtype("auto", device)
        with no_progress_bars():
            model = load_causal(name, head=False, local_files_only=local, dtype=dtype)
    except LOAD_ERRORS as error:
        reason, hint = why_not_loaded(name, error)
        raise unloadable(name, reason, path=path, hint=hint) from error
    digest = _digest(name, path=path)
    return FrozenModel(model.to(device).requires_grad_(False).eval(), tokenizer, digest=digest)


def _digest(name: str, *, path: str) -> str:
    """The digest of weights as they are stored: the precision in which they are read may differ."""
    try:
        return digest_of(stored_in(sorted(folder_of(name).glob("*.safetensors"))))
    except WeightsError as error:
        raise unloadable(name, str(error), path=path) from error
