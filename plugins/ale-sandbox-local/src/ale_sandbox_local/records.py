"""What is known on disk about every open sandbox, so that a killed run can be cleaned up."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from ale.errors import SandboxError
from ale_sandbox_local.processes import Mark


@frozen(kw_only=True)
class Owner:
    """A host process, told apart from any other that had or will have its id."""

    pid: int
    start: int
    """Clock ticks after boot."""
    boot: str
    namespace: int
    """Inode of its pid namespace."""

    @classmethod
    def me(cls) -> "Owner":
        """This process."""
        pid = os.getpid()
        start = _start_of(pid)
        if start is None:
            raise SandboxError("this process can't be seen in /proc")
        return cls(pid=pid, start=start, boot=_boot(), namespace=_namespace())

    @property
    def alive(self) -> bool:
        """True also where it can't be told: the process of another pid namespace."""
        if self.boot != _boot():
            return False
        return self.namespace != _namespace() or _start_of(self.pid) == self.start


def _start_of(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


@frozen(kw_only=True)
class Folders:
    """What stands in the folder of a sandbox."""

    top: Path

    @property
    def work(self) -> Path:
        """The workspace."""
        return self.top / "work"

    @property
    def tmp(self) -> Path:
        """TMPDIR of the commands."""
        return self.top / "tmp"

    def script(self, number: int) -> Path:
        """A command too long for an argument, out of the commands' way."""
        return self.top / f"command-{number}"

    def make(self) -> None:
        """Make them. The top folder must not be there yet.

        Raises:
            FileExistsError: it is.
        """
        for folder in (self.top, self.work, self.tmp):
            folder.mkdir(mode=0o700)


@frozen(kw_only=True)
class Record:
    """One sandbox or snapshot."""

    id: str
    kind: str
    """``sandbox`` or ``snapshot``."""
    folder: str
    owner: Owner
    created: float
    """Seconds since the epoch."""
    tags: Mapping[str, str] = field(factory=dict)

    @property
    def folders(self) -> Folders:
        """Its folders."""
        return Folders(top=Path(self.folder))

    @property
    def mark(self) -> Mark:
        """What its processes carry."""
        return Mark.of(self.folder, self.id)


class Records:
    """The state folder: a file per record."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.folder = base / "local"

    def _path(self, record: Record) -> Path:
        return self.folder / f"{record.mark.token:08x}.json"

    def add(self, record: Record) -> bool:
        """Write a record; False when its mark is taken."""
        private(self._base)
        private(self.folder)
        try:
            descriptor = os.open(self._path(record), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(json.dumps(asdict(record)).encode())  # one write: whole or not at all
        return True

    def drop(self, record: Record) -> None:
        """Forget it."""
        self._path(record).unlink(missing_ok=True)

    def all(self) -> list[Record]:
        """Every record, by id.

        Raises:
            SandboxError: a record can't be read; it is named, and left for a person to look at.
        """
        if not self.folder.exists():
            return []
        found = []
        for path in self.folder.glob("*.json"):
            try:
                text = path.read_text(encoding="utf-8")
                if text:  # else its owner was killed, or is, between two system calls
                    found.append(_parse(json.loads(text)))
            except FileNotFoundError:
                continue  # closed meanwhile
            except (ValueError, TypeError, KeyError) as error:
                raise SandboxError(f"{path} is not a record of a sandbox: {error}") from error
        return sorted(found, key=lambda record: record.id)


def _parse(data: dict[str, Any]) -> Record:
    return Record(**{**data, "owner": Owner(**data["owner"])})


def private(folder: Path) -> None:
    """Make sure that the folder is there, is ours, and is closed to everybody else.

    Raises:
        SandboxError: somebody else was there first.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    else:
        return
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise SandboxError(f"{folder} is not a folder of this user; remove it or set another root")
    if stat.S_IMODE(about.st_mode) & 0o077:
        folder.chmod(0o700)
