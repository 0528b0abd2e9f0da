"""Who owns a container, an image or a pipe folder, so that a killed run can be cleaned up.

Containers and images carry the record as a label; a pipe folder has it as a file next to it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from attrs import asdict, field, frozen

from ale.errors import SandboxError
from ale_sandbox_container.pipes import remove
from ale_sandbox_process.claims import claim, private, sweep
from ale_sandbox_shell.owner import Owner

LABEL = "ale.record"
Kind = Literal["sandbox", "fork", "snapshot"]


@frozen(kw_only=True)
class Record:
    """One sandbox, or an image made from one."""

    id: str
    kind: Kind
    owner: Owner
    created: float
    """Seconds since the epoch."""
    tags: Mapping[str, str] = field(factory=dict)
    shell: str = ""
    """Id of the image whose own shell the supervisor runs; a fork keeps that of its origin."""
    workdir: str = ""
    root: str = ""
    """Folder that holds its record and pipe folder."""
    stack: bool = False
    """Its container is one of several that docker compose has made."""

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
        data: dict[str, Any] = json.loads(unquote(text))
        return Record(**{**data, "owner": Owner(**data["owner"])})
    except (ValueError, TypeError, KeyError) as error:
        raise SandboxError(f"{where} is not a record of a sandbox: {error}") from error


class Folders:
    """A pipe folder and a record for each sandbox; closed to other users."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def pipes(self, id: str) -> Path:
        """Folder of a sandbox's pipes."""
        return self.root / id

    def _file(self, id: str) -> Path:
        return self.root / f"{id}.json"

    def claim(self, record: Record) -> bool:
        """Write a record; False when its id is taken."""
        private(self.root.parent)
        private(self.root)
        return claim(self._file(record.id), record.text.encode())

    def sweep(self) -> None:
        """Remove what a process has left that was killed while it wrote its record."""
        sweep(self.root)

    def drop(self, id: str) -> None:
        """Remove folder and record. Fine when they are gone already."""
        remove(self.pipes(id))
        self._file(id).unlink(missing_ok=True)

    def all(self) -> list[Record]:
        """Every record."""
        found = []
        for path in sorted(self.root.glob("*.json")):
            try:
                text = path.read_text(encoding="utf-8")
            except FileNotFoundError:
                continue  # closed meanwhile
            if text:  # else it is being written, or its owner was killed before (`sweep`)
                found.append(parse(text, str(path)))
        return found
