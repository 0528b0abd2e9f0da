"""The owner of a sandbox: a host process, distinguishable from any other."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from attrs import field, frozen

from ale.errors import SandboxError
from ale.types import KEPT, SandboxInfo


@frozen(kw_only=True)
class Owner:
    """A host process, distinguishable from earlier and later ones with its process id."""

    pid: int
    start: int
    """Clock ticks after boot."""
    boot: str
    namespace: int
    """Inode of its pid namespace."""
    machine: str = ""
    """What ``/etc/machine-id`` says, or the host's name."""

    @classmethod
    def me(cls) -> "Owner":
        """This process."""
        pid = os.getpid()
        start = _start_of(pid)
        if start is None:
            raise SandboxError("this process is not visible in /proc")
        return cls(
            pid=pid, start=start, boot=_boot(), namespace=_namespace(), machine=machine_name()
        )

    @property
    def alive(self) -> bool:
        """Also True where it is unknown: on another machine, in another pid namespace."""
        if self.machine != machine_name():
            return True
        if self.boot != _boot():
            return False
        return self.namespace != _namespace() or _start_of(self.pid) == self.start


@frozen(kw_only=True)
class OwnedRecord:
    """A sandbox, or what was made from one or for one, so that a killed run can be cleaned up."""

    id: str
    kind: str
    owner: Owner
    created: float
    """Seconds since the epoch."""
    tags: Mapping[str, str] = field(factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The record of which `attrs.asdict` has made this. Raises TypeError, KeyError: of none."""
        return cls(**{**data, "owner": Owner(**data["owner"])})

    @property
    def needed(self) -> bool:
        """Does its owner live, or is it a snapshot that a run keeps? See `ale.types.KEPT`."""
        return self.owner.alive or (self.kind == "snapshot" and self._is_kept)

    @property
    def _is_kept(self) -> bool:
        try:
            return Path(self.tags[KEPT]).read_text().strip() == self.id
        except (KeyError, OSError, ValueError):
            return False

    def info(self, backend: str, now: float, detail: str) -> SandboxInfo:
        """What ``ale sandbox list`` shows of it.

        Args:
            backend: its name.
            now: seconds since the epoch.
        """
        return SandboxInfo(
            id=self.id,
            backend=backend,
            tags=self.tags,
            owner_alive=self.owner.alive,
            age_s=max(0.0, now - self.created),
            detail=f"{detail}{self._kept_by}",
            kept=self.kind == "snapshot" and self._is_kept,
        )

    @property
    def _kept_by(self) -> str:
        if self.kind != "snapshot" or KEPT not in self.tags:
            return ""
        run = Path(self.tags[KEPT]).parent.parent
        if self._is_kept:
            return f", kept by {run}"
        return ", not kept any more" if run.exists() else f", kept by a run that is gone: {run}"


_PROC = Path("/proc")
"""Missing outside Linux, where a process id is all that is known of an owner."""


def _start_of(pid: int) -> int | None:
    if not _PROC.exists():
        return 0 if _answers(pid) else None
    try:
        fields = (_PROC / f"{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        # Other errors, such as too many open files, do not mean that it is gone.
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot() -> str:
    path = _PROC / "sys/kernel/random/boot_id"
    return path.read_text().strip() if _PROC.exists() else ""


def _namespace() -> int:
    return (_PROC / "self/ns/pid").stat().st_ino if _PROC.exists() else 0


def machine_name() -> str:
    """The same for every process of this machine, and different on others."""
    try:
        return Path("/etc/machine-id").read_text().strip() or os.uname().nodename
    except OSError:
        return os.uname().nodename
