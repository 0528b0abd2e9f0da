"""E2B's calls, through its SDK."""

import asyncio
import base64
import binascii
import re
import secrets
import shlex
from collections.abc import Sequence
from typing import Any, Literal

import e2b
import httpx
from connectrpc.errors import ConnectError

from ale.errors import UnsupportedError
from ale.types import SandboxSpec
from ale_sandbox_e2b import metadata
from ale_sandbox_e2b.options import E2bOptions
from ale_sandboxing.remote.client import LIST_S, BrokenAnswerError
from ale_sandboxing.remote.service import Failure, Listed, Request
from ale_sandboxing.shell.text import LONGEST_ARGUMENT

_CALL_S = 120.0


class E2bSandbox:
    """One sandbox at the service. See `ale_sandboxing.remote.service.Remote`.

    Args:
        wanted: arguments of the SDK's `create`.
        limit_s: seconds for it to run.
    """

    def __init__(self, wanted: dict[str, Any], user: str | None, limit_s: float) -> None:
        self._wanted = wanted
        self._user = user
        self._limit_s = limit_s
        self._sandbox: e2b.AsyncSandbox | None = None

    @property
    def id(self) -> str | None:
        """The service's name for it."""
        return None if self._sandbox is None else self._sandbox.sandbox_id

    @property
    def _made(self) -> e2b.AsyncSandbox:
        assert self._sandbox is not None
        return self._sandbox

    async def create(self) -> None:
        """Ask for it: the service knows a request that is made again by its key.

        It answers when the sandbox runs.
        """
        try:
            async with asyncio.timeout(self._limit_s):
                self._sandbox = await e2b.AsyncSandbox.create(**self._wanted)
        except TimeoutError as error:
            why = f"it does not run after {self._limit_s:g} s"
            raise e2b.SandboxException(why) from error

    async def started(self) -> None:
        """It runs since its creation was answered."""

    async def exec(self, argv: Sequence[str]) -> bytes:
        """What one command prints.

        The SDK runs a line of a login shell, and takes what is printed for text: so the answer is
        encoded, behind a mark that tells it from what the user's profile prints.
        """
        mark = f"ale-answer-{secrets.token_hex(8)}"
        line = shlex.join(argv)
        if len(line.encode()) > LONGEST_ARGUMENT:
            script = f"/tmp/.{mark}"  # noqa: S108  in the sandbox
            await self.write(script, f"{line}\n".encode())
            line = f"sh {script}; rm -f {script}"
        line = f"printf %s {mark}: && {{ {line}; }} | base64"
        try:
            done: Any = await self._made.commands.run(
                line, user=self._user, timeout=_CALL_S, request_timeout=_CALL_S
            )
        except e2b.CommandExitException as error:
            done = error
        except Exception as error:
            # The SDK has no class of its own for a command that has ended without its event.
            if type(error) is not Exception:
                raise
            raise BrokenAnswerError(str(error)) from error
        _, found, answer = done.stdout.partition(f"{mark}:")
        if not found:
            raise BrokenAnswerError("no answer")
        try:
            return base64.b64decode("".join(answer.split()), validate=True)
        except binascii.Error as error:
            raise BrokenAnswerError("a part of the answer") from error

    async def read(self, path: str) -> bytes:
        """A file."""
        return bytes(await self._made.files.read(path, format="bytes", user=self._user))

    async def write(self, path: str, data: bytes) -> None:
        """Write a file."""
        await self._made.files.write(path, data, user=self._user, use_octet_stream=True)

    async def stop(self) -> None:
        """End it, whatever has become of it."""
        await self._made.kill()


class E2bService:
    """See `ale_sandboxing.remote.service.Service`.

    Args:
        place: address and key, as arguments of the SDK's calls.
    """

    name = "e2b"
    errors: tuple[type[Exception], ...] = (
        e2b.SandboxException,
        e2b.AuthenticationException,
        e2b.ServiceBusyException,
        httpx.HTTPError,
        ConnectError,
    )

    def __init__(self, options: E2bOptions, place: dict[str, Any]) -> None:
        self._options = options
        # What is made again is made again here, with a limit that the config sets.
        self._place = {**place, "retries": 0}

    def failure(self, error: Exception) -> Failure:
        """What an error of the SDK means."""
        return Failure(_kind(error))

    def prepare(self, request: Request) -> E2bSandbox:
        """A sandbox that was not asked for yet."""
        options, spec = self._options, request.spec
        wanted = {
            **self._place,
            **_network(options, spec),
            "template": _template(options, spec),
            "timeout": options.lifetime_s,
            "metadata": metadata.metadata_of(options.metadata, request),
            "envs": dict(request.env),
            "idempotency_key": request.id,
            "request_timeout": 0,  # no limit but that of the call here
        }
        return E2bSandbox(wanted, spec.user or options.user, options.start_timeout_s)

    async def list(self, request_id: str | None = None) -> Sequence[Listed]:
        """All sandboxes of `ale`, or those of one request."""
        wanted = metadata.MARK if request_id is None else {metadata.ID: request_id}
        pages = e2b.AsyncSandbox.list(
            query=e2b.SandboxQuery(metadata=wanted), request_timeout=LIST_S, **self._place
        )
        found = []
        while pages.has_next:
            found += await pages.next_items()
        return [_listed(info) for info in found]

    async def delete(self, id: str) -> None:
        """End a sandbox that may be another process's."""
        await e2b.AsyncSandbox.kill(id, **self._place)


def _template(options: E2bOptions, spec: SandboxSpec) -> str:
    wanted = f"what is built of {spec.build!r}"
    if spec.build is None:
        if spec.image is None:
            return options.template
        if spec.image in options.templates:
            return options.templates[spec.image]
        wanted = f"the image {spec.image!r}"
    raise UnsupportedError(
        f"e2b: sandboxes are made from templates, not from {wanted}; make one of it with E2B's own "
        "tools and name it: `templates: {IMAGE: TEMPLATE}`"
    )


def _network(options: E2bOptions, spec: SandboxSpec) -> dict[str, Any]:
    choices = (options.network, spec.network)
    if True in choices and False not in choices:
        return {"allow_internet_access": True}
    if spec.allowed_hosts and options.network is not False:
        allowed = list(spec.allowed_hosts)
        return {"network": {"allow_out": allowed, "deny_out": ["0.0.0.0/0"]}}
    return {"allow_internet_access": False}


def _listed(info: e2b.SandboxInfo) -> Listed:
    return Listed(
        id=info.sandbox_id,
        tags=metadata.tags_of(info.metadata),
        owner=info.metadata.get(metadata.OWNER),
        created=info.started_at.timestamp(),
        detail=f"{info.state.value}, {info.name or info.template_id}",
    )


# For most answers the SDK has one exception, whose text begins with the code.
_PASSING = re.compile(r"5\d\d: |Code\.(ABORTED|DATA_LOSS|INTERNAL|UNKNOWN): ")


def _kind(error: Exception) -> Literal["full", "unanswered", "unclear", "refused"]:
    if isinstance(error, e2b.RateLimitException):
        return "full"
    if isinstance(error, e2b.SandboxNotRunningException):
        return "refused"
    if isinstance(error, httpx.HTTPError | e2b.TimeoutException | e2b.ServiceBusyException):
        return "unanswered"
    passing = isinstance(error, ConnectError) or _PASSING.match(str(error))
    return "unclear" if passing else "refused"
