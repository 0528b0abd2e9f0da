"""A sandbox that does not run again what it has run before: for docs/study/credit.md.

The small policies of the study give the same few answers to the same tasks again and again. What a
call of a sandbox gives depends on the calls before it, from the setup of the task on; where all of
these were made before, in this order, the result is taken from a file. The first call that is new
opens a real sandbox, which repeats those before it, and each has to give what it gave: else the
episode breaks.

That is exact where a task's commands print and do the same whenever they are run, as those of
`sort_tasks.py` do. docs/study/credit.md compares the runs with those of real sandboxes alone.
"""

import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import SandboxError, UnsupportedError
from ale.plugin import BuildContext, Component, doc, hookimpl
from ale.protocols import Sandbox, SandboxBackend, Session
from ale.types import Capabilities, ExecResult, SandboxInfo, SandboxSpec, replace
from ale_sandbox_local.backend import LocalBackend
from ale_sandbox_local.options import LocalOptions

WORKDIR = "/workspace"
"""What it is called while no real one is open; no task of the study looks."""
_RANDOM = re.compile("[0-9a-f]{32}")
"""What a check puts into its command, anew each time."""
_Stored = Mapping[str, Any]


@frozen(kw_only=True)
class RecalledOptions:
    """A local sandbox, and what it remembers."""

    file: Path = field(metadata=doc("File of what calls gave; made where there is none."))


class Memory:
    """What calls gave, by a digest of all calls up to them."""

    def __init__(self, file: Path) -> None:
        self._file, self._read_to = file, 0
        self._known: dict[str, _Stored] = {}

    def find(self, key: str) -> _Stored | None:
        """What is known of a call, from this process or another."""
        if key not in self._known and self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read_to)
                for line in file:
                    if line.endswith(b"\n"):
                        self._read_to += len(line)
                        stored = json.loads(line)
                        self._known[stored.pop("key")] = stored
        return self._known.get(key)

    def add(self, key: str, stored: _Stored) -> None:
        """Keep what a call gave."""
        self._known[key] = stored
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps({"key": key, **stored}) + "\n")


class RecalledSandbox:
    """A sandbox that is opened when a call is new."""

    def __init__(self, backend: "RecalledBackend", spec: SandboxSpec, id: str) -> None:
        self.id = id
        self.stack = AsyncExitStack()
        self._backend, self._spec = backend, spec
        self._real: Sandbox | None = None
        self._sessions: list[Session] = []
        self._key = ""
        self._before: list[tuple[tuple[Any, ...], Mapping[str, Any], _Stored | None]] = []
        """Calls that were not made of a real one: the arguments, options and what they gave."""
        self._opened = 0

    @property
    def workdir(self) -> str:
        """A name, as there may be none."""
        return WORKDIR

    @property
    def capabilities(self) -> Capabilities:
        """See `RecalledBackend`."""
        return self._backend.capabilities

    async def call(self, *asked: Any, **options: Any) -> _Stored:
        """What a call gives: its name, the number of its session if it has one, its arguments."""
        kept = {name: value for name, value in options.items() if name != "timeout_s"}
        request = repr((asked, sorted(kept.items())))
        names = list(dict.fromkeys(_RANDOM.findall(request)))
        for number, name in enumerate(names):
            request = request.replace(name, f"<{number}>")
        self._key = hashlib.blake2b(f"{self._key}\n{request}".encode(), digest_size=16).hexdigest()
        known = self._backend.memory.find(self._key) if self._real is None else None
        if known is not None:
            found = _with_names(known, names)
            self._before.append((asked, options, found))
            return found
        real = await self._opened_real()
        found = await self._made(asked, options)
        text = json.dumps(found)
        if not (found.get("timed_out") or real.id in text or real.workdir in text):
            self._backend.memory.add(self._key, _without_names(found, names))
        return found

    async def note(self, *asked: Any, **options: Any) -> None:
        """Make a call that gives nothing, now or when a real sandbox is opened."""
        self._key = hashlib.blake2b(f"{self._key}\n{asked}".encode(), digest_size=16).hexdigest()
        if self._real is None:
            self._before.append((asked, options, None))
        else:
            await self._made(asked, options)

    async def _opened_real(self) -> Sandbox:
        if self._real is None:
            self._real = await self.stack.enter_async_context(self._backend.real.open(self._spec))
            for asked, options, known in self._before:
                found = await self._made(asked, options)
                if known is not None and found != known:
                    raise SandboxError(
                        f"{asked} gave another result than before: {found} in place of {known}"
                    )
        return self._real

    async def _made(self, asked: tuple[Any, ...], options: Mapping[str, Any]) -> _Stored:
        real = self._real
        assert real is not None
        match asked:
            case ("exec", command):
                return _stored(await real.exec(command, **options))
            case ("session",):
                self._sessions.append(await real.session(**options))
            case ("run", number, command):
                session = self._sessions[number]
                result = _stored(await session.run(command, **options))
                return {**result, "closed": session.closed}
            case ("close", number):
                await self._sessions[number].close()
            case ("end_processes",):
                return {"killed": await real.end_processes()}
        return {}

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        """See `ale.protocols.Sandbox.exec`."""
        return _result(await self.call("exec", command, **_given(options)))

    async def session(self, **options: Any) -> Session:
        """See `ale.protocols.Sandbox.session`."""
        await self.note("session", **_given(options))
        self._opened += 1
        return RecalledSession(self, self._opened - 1)

    async def end_processes(self) -> int:
        """See `ale.protocols.Sandbox.end_processes`."""
        return int((await self.call("end_processes"))["killed"])

    async def read(self, path: str, **options: Any) -> bytes:
        """Refused, as all else that the study's tasks don't need."""
        raise UnsupportedError("this sandbox runs commands alone")

    write = upload = download = fork = snapshot = read

    async def close(self) -> None:
        """Close the real one, if one was opened."""
        await self.stack.aclose()


class RecalledSession:
    """A shell of such a sandbox."""

    def __init__(self, box: RecalledSandbox, number: int) -> None:
        self._box, self._number = box, number
        self.closed = False

    async def run(self, command: str, **options: Any) -> ExecResult:
        """See `ale.protocols.Session.run`."""
        if self.closed:
            raise SandboxError("the session is closed")
        found = await self._box.call("run", self._number, command, **_given(options))
        self.closed = bool(found["closed"])
        return _result(found)

    async def close(self) -> None:
        """See `ale.protocols.Session.close`."""
        if not self.closed:
            self.closed = True
            await self._box.note("close", self._number)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _stored(result: ExecResult) -> _Stored:
    return {
        "exit_code": result.exit_code,
        "stdout": result.stdout.decode("latin-1"),
        "stderr": result.stderr.decode("latin-1"),
        "timed_out": result.timed_out,
        "truncated": result.truncated,
    }


def _result(stored: _Stored) -> ExecResult:
    return ExecResult(
        exit_code=stored["exit_code"],
        stdout=stored["stdout"].encode("latin-1"),
        stderr=stored["stderr"].encode("latin-1"),
        timed_out=stored["timed_out"],
        truncated=stored["truncated"],
        duration_s=0.0,
    )


def _without_names(stored: _Stored, names: Sequence[str]) -> _Stored:
    text = json.dumps(stored)
    for number, name in enumerate(names):
        text = text.replace(name, f"<random {number}>")
    return dict(json.loads(text))


def _with_names(stored: _Stored, names: Sequence[str]) -> _Stored:
    if not names:
        return stored
    text = json.dumps(stored)
    for number, name in enumerate(names):
        text = text.replace(f"<random {number}>", name)
    return dict(json.loads(text))


class RecalledBackend:
    """Opens such sandboxes."""

    name = "recalled"

    def __init__(self, options: RecalledOptions, context: BuildContext) -> None:
        self.real = LocalBackend(LocalOptions(), context)
        self.memory = Memory(options.file)
        # Runs need none of its features.
        self.capabilities = replace(
            self.real.capabilities, features=(), snapshot=False, fork="replay"
        )
        self.descriptors, self.processes = self.real.descriptors, self.real.processes
        self._new_id = context.new_id

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """A fresh sandbox."""
        box = RecalledSandbox(self, spec, self._new_id())
        try:
            yield box  # type: ignore[misc]
        finally:
            await box.close()

    def restore(self, ref: str, spec: SandboxSpec) -> Any:
        """Refused."""
        raise UnsupportedError("this sandbox has no snapshots")

    async def list(self) -> Sequence[SandboxInfo]:
        """The real ones."""
        return await self.real.list()

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove those that dead runs have left."""
        return await self.real.prune()

    async def aclose(self) -> None:
        """Nothing is open between sandboxes."""


def _build(options: RecalledOptions, context: BuildContext) -> SandboxBackend:
    return RecalledBackend(options, context)


@hookimpl
def ale_sandboxes() -> Sequence[Component[RecalledOptions, SandboxBackend]]:
    """Register ``recalled``."""
    summary = "A local sandbox that runs a sequence of commands once, and then recalls it."
    return [Component("recalled", RecalledOptions, _build, summary=summary)]
