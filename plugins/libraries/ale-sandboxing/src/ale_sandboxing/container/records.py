"""Who owns a container, an image or a volume, so that a killed run can be cleaned up.

Each carries its record as a label.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import quote, unquote

from attrs import asdict, frozen

from ale.errors import SandboxError
from ale_sandboxing.shell.owner import OwnedRecord

LABEL = "ale.record"
Kind = Literal["sandbox", "fork", "snapshot", "shell"]


@frozen(kw_only=True)
class Record(OwnedRecord):
    """One sandbox, an image made from one, or the volume of a supervisor's shell."""

    kind: Kind
    shell: str = ""
    """Id of the image whose own shell the supervisor runs; a fork keeps that of its origin."""
    workdir: str = ""
    stack: bool = False
    """Its container is one of several that docker compose has made."""
    cut: bool = False
    """A snapshot of a sandbox that had no network then."""
    hosts: Sequence[str] = ()
    """The hosts that it reached then in spite of that."""

    @property
    def labels(self) -> Mapping[str, str]:
        """For a container or image."""
        return {LABEL: self.text, "ale.id": self.id, "ale.kind": self.kind}

    @property
    def text(self) -> str:
        """As JSON, quoted as in a URL: engines differ in what a label makes of quotes."""
        return quote(json.dumps(asdict(self), separators=(",", ":")), safe=",:{}[]/")


def parse(text: str, where: str) -> Record:
    """Read a record or label back.

    Raises:
        SandboxError: it is none; `where` is named, and left for a person to look at.
    """
    try:
        return Record.of(json.loads(unquote(text)))
    except (ValueError, TypeError, KeyError) as error:
        raise SandboxError(f"{where} is not a record of a sandbox: {error}") from error
