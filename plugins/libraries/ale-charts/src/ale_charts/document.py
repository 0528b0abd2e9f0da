"""The frame of a page that needs no network, no server and no other file."""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files

_ICON = "data:,"
"""No icon: a browser would ask for one."""


def document(
    *,
    title: str,
    body: Iterable[str],
    skip: tuple[str, str] | None = None,
    style: str = "",
    script: str = "",
) -> Iterator[str]:
    """A whole page, piece by piece.

    Args:
        title: plain text, also its first heading is left to `body`.
        body: markup, already escaped by who made it.
        skip: an element's id and words for the link to it that comes first for a keyboard.
        style: rules after the shared ones.
        script: statements after the shared ones; it can use their `make` and `all`.
    """
    script = f"{_static('charts.js')}\n{script}"
    # Nothing is loaded, and no script runs but this one: not even one that a model wrote.
    loaded = f"style-src 'unsafe-inline'; script-src '{_hash(script)}'; img-src data:"
    policy = f"default-src 'none'; {loaded}"
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f'<link rel="icon" href="{_ICON}"><title>{escape(title)}</title>'
    yield f"<style>{_static('charts.css')}{style}</style></head><body>"
    if skip is not None:
        yield f'<a class="skip" href="#{escape(skip[0])}">{escape(skip[1])}</a>'
    yield from body
    yield f"<script>{script}</script></body></html>\n"


def _static(name: str) -> str:
    return (files("ale_charts") / "static" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
