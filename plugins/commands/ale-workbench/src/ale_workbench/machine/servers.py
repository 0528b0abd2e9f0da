"""Model servers that answer on this machine, where installed models expect them."""

from collections.abc import Iterator

import attrs
from attrs import frozen

import ale_openai_wire as wire
from ale.runs import Registry

_LOCAL = ("http://127.0.0.1:", "http://localhost:")


@frozen(kw_only=True)
class Server:
    """A model server that answers."""

    llm: str
    """Name of the component that speaks to it."""
    base_url: str
    models: tuple[str, ...]


def local_addresses(registry: Registry) -> Iterator[tuple[str, str]]:
    """Component and default address of each model that expects a server on this machine."""
    for registration in registry.registrations("llm"):
        options = registration.component.options
        fields = () if options is None else attrs.fields(options)
        url = next((each.default for each in fields if each.name == "base_url"), None)
        if isinstance(url, str) and url.startswith(_LOCAL):
            yield registration.component.name, url


def answering(registry: Registry) -> list[Server]:
    """Those that list models."""
    found = ((llm, url, models_at(url)) for llm, url in local_addresses(registry))
    return [Server(llm=llm, base_url=url, models=models) for llm, url, models in found if models]


def models_at(base_url: str) -> tuple[str, ...]:
    """The models that a server lists; none where nothing answers."""
    return tuple(wire.models_at(base_url) or ())
