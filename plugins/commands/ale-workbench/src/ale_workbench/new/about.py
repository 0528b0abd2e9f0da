"""Metadata of a package that its author chooses: author, licence and address."""

import json
import re
from collections.abc import Mapping
from datetime import date
from importlib.resources import files
from string import Template
from typing import Literal

from attrs import frozen

License = Literal["Apache-2.0", "MIT"]
_AUTHOR = re.compile(r"\s*(?P<name>[^<>]*[^<>\s])\s*(<(?P<email>[^<>\s@]+@[^<>\s@]+)>\s*)?")


@frozen(kw_only=True)
class About:
    """What the options of ``ale new`` give."""

    author: str | None = None
    """``Name`` or ``Name <address>``; None: "The authors of" the package."""
    license: License = "Apache-2.0"
    """SPDX identifier."""
    url: str | None = None
    """Homepage of the package; None: none is written."""

    def values(self, distribution: str) -> Mapping[str, str]:
        """Placeholders of ``pyproject.toml``.

        Raises:
            ValueError: the author or the URL can't be used.
        """
        name, email = self._author(distribution)
        author = f"name = {_quoted(name)}" + (f", email = {_quoted(email)}" if email else "")
        urls = "" if self.url is None else f"\n[project.urls]\nHomepage = {_homepage(self.url)}\n"
        return {"author": author, "license": _quoted(self.license), "urls": urls}

    def license_text(self, distribution: str) -> str:
        """The text of the licence, with the copyright line filled in where it has one."""
        text = (
            files("ale_workbench.new")
            .joinpath("templates", "license", f"{self.license}.txt")
            .read_text()
        )
        if self.license == "Apache-2.0":
            return text
        holder = self._author(distribution)[0]
        return Template(text).substitute(year=date.today().year, holder=holder)

    def _author(self, distribution: str) -> tuple[str, str]:
        if self.author is None:
            return f"The authors of {distribution}", ""
        found = _AUTHOR.fullmatch(self.author)
        if found is None:
            raise ValueError(f"'{self.author}' is not NAME or 'NAME <ADDRESS>'")
        return found["name"], found["email"] or ""


def _homepage(url: str) -> str:
    if not url.startswith(("https://", "http://")) or any(map(str.isspace, url)):
        raise ValueError(f"'{url}' is not a URL: expected https://...")
    return _quoted(url)


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
