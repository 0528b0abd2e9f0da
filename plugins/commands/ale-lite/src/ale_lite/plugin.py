"""Registers the config format ``ale-lite``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ale.plugin import ConfigFormat, Converted, Probe, hookimpl

if TYPE_CHECKING:
    from ale.strict import Node

FORMAT = "ale-lite"


def _is_lite(root: Node) -> bool:
    from ale_lite.reader import is_lite

    return is_lite(root)


def _convert(root: Node, probe: Callable[[str, str], Probe | None]) -> Converted:
    from ale_lite.reader import convert

    return convert(root, probe)


def _keys() -> Sequence[str]:
    from ale_lite.schema import keys

    return keys()


@hookimpl
def ale_config_formats() -> Sequence[ConfigFormat]:
    """Read config files of ALE-lite: ``llm``, ``agent`` and ``sandbox``, without types."""
    return [ConfigFormat(name=FORMAT, reads=_is_lite, convert=_convert, keys=_keys)]
