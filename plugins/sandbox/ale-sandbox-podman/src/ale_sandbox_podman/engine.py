"""The Podman engine: what it does in another way than Docker."""

import contextlib
import json
import os
import re
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlunsplit

import podman
import requests
from attrs import evolve
from podman.errors import APIError, BuildError, PodmanError

from ale.errors import SandboxError, UnsupportedError
from ale_sandbox_podman.facts import API, facts_of, reads
from ale_sandbox_podman.spec import spec_of
from ale_sandboxing.container.api import CONNECTIONS, TIMEOUT_S, Engine, text_of
from ale_sandboxing.container.engine import Build, Facts, NotFoundError, Plan, Stat
from ale_sandboxing.container.here import is_here
from ale_sandboxing.container.probing import check_address
from ale_sandboxing.process import seccomp

_FORMAT = "application/vnd.docker.distribution.manifest.v2+json"
"""Of the images that are built."""
_POLL_S = 0.01
_PASSING_S = 10.0
"""What is only so because something ends or goes just now is over by then."""
_ENDED = re.compile(r"/proc/\d+/\S*: no such (process|file)")
"""In an error of the engine: it looked for a process that is no more."""
_GONE = re.compile(
    r"^\{\"cause\":.*(image not known|layer not known|no such container|nil pointer dereference)"
)
"""An error of the engine: something was removed under its hands."""
_NOT_STARTED = "passing bulk input to subprocess"
"""In an error of the engine: what was to unpack a tar stream has ended before it read any."""

_FACTS: dict[str, Facts] = {}
"""By address."""


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """Raise the SDK's errors as ours."""
    try:
        yield
    except APIError as error:
        said = str(error.__cause__ or error.explanation or error).strip()
        raise SandboxError(f"podman: {said}") from error
    except (PodmanError, OSError) as error:
        raise SandboxError(f"podman does not answer: {error}") from error


class PodmanEngine(Engine):
    """See `ale_sandboxing.container.api.Engine`.

    Args:
        address: ``unix:///run/podman/podman.sock`` or ``tcp://...``.
    """

    name = "podman"

    def __init__(self, address: str) -> None:
        check_address(address)
        with _reached():
            self._client = podman.PodmanClient(
                base_url=address, version=API, timeout=TIMEOUT_S, max_pool_size=CONNECTIONS
            )
        api = self._client.api
        root = urlunsplit(("http", api.base_url.netloc, api.path_prefix.rstrip("/"), "", ""))
        super().__init__(address, api, root)

    def facts(self) -> Facts:
        """Its facts, asked for once per process: it asks the package manager about its tools each
        time."""
        self._ask("GET", "/_ping")
        if self.url not in _FACTS:
            found = facts_of(self._ask("GET", "/info").json())
            _FACTS[self.url] = evolve(found, takes_rules=reads(self.url, seccomp.PROFILE))
        return _FACTS[self.url]

    def _ask_steadily(self, method: str, path: str, **about: Any) -> requests.Response:
        """Retries: podman fails if one of the things listed, or an image with the same layer, is
        removed at that moment. That what was asked for is not there is an answer."""
        deadline = time.monotonic() + _PASSING_S
        while True:
            answer = self._ask(method, path, 404, 500, **about)
            failed = answer.status_code == 500 or method != "GET"
            if not (failed and _GONE.search(answer.text)) or time.monotonic() > deadline:
                return self._checked(answer)
            time.sleep(_POLL_S)

    def _pull(self, ref: str) -> tuple[str, Mapping[str, Any]]:
        return "/images/pull", {"params": {"reference": ref}}

    def build(self, build: Build, log: Callable[[str], object]) -> None:
        """Build an image."""
        failure: str | None = None
        lines: Iterable[Any]
        with self._reached(), _reached():
            try:
                _, lines = self._client.images.build(
                    path=str(build.folder),
                    dockerfile=build.dockerfile,
                    tag=build.tag,
                    labels=dict(build.labels),
                    nocache=not build.cached,
                    rm=True,
                    forcerm=True,
                    # The other format keeps neither HEALTHCHECK nor SHELL.
                    outputformat=_FORMAT,
                )
            except BuildError as error:
                failure, lines = error.msg, error.build_log
            for line in lines:
                for part in text_of(json.loads(line)).splitlines():
                    log(part)
        if failure is not None:
            raise SandboxError(failure)

    def _container(self, plan: Plan) -> Mapping[str, Any]:
        return spec_of(plan)

    def create(self, plan: Plan) -> str:
        """Make a container; its id. One with a network has a network of its own, of its name, from
        which no other such network is reached."""
        if plan.joins is not None or not plan.network:
            return super().create(plan)
        about = {"driver": "bridge", "options": {"isolate": "true"}, "dns_enabled": False}
        made = {"name": plan.name, "labels": dict(plan.labels), **about}
        self._ask("POST", "/networks/create", json=made)
        try:
            return super().create(plan)
        except SandboxError:
            self._ask("DELETE", f"/networks/{plan.name}", 404)
            raise

    def remove(self, container: str) -> None:
        """Kill and remove it with its volumes and its network."""
        name = container
        with contextlib.suppress(NotFoundError):
            name = str(self._inspect(container)["Name"])
        super().remove(container)
        self._ask("DELETE", f"/networks/{name}", 404)

    def start(self, container: str) -> None:
        """Start it."""
        # 304: one that was killed just now; the engine has not noticed yet.
        path = f"/containers/{container}/start"
        self._wait(lambda: self._ask("POST", path).status_code != 304, container)

    def kill(self, container: str) -> None:
        """End every process in it.

        The engine's own call does not wait for that, and the one that it has from Docker looks four
        times a second. The first process of a container ends after all others.
        """
        try:
            found = self._look(container)
        except NotFoundError:
            return
        with contextlib.ExitStack() as stack:
            handle = None if found is None else _handle(found["State"]["Pid"], found["Id"])
            if handle is not None:
                stack.callback(os.close, handle)
            # 404: it is gone; 409, and in words only in older versions: it does not run.
            answer = self._ask("POST", f"/containers/{container}/kill", 404, 409, 500)
            if answer.status_code == 500 and "state improper" not in answer.text:
                self._checked(answer)
            if handle is None and found is not None:
                # Its first process can't be seen from here.
                with contextlib.suppress(NotFoundError):
                    self._wait(lambda: not self.state(container).running, container)
            elif handle is not None and not select.select([handle], [], [], TIMEOUT_S)[0]:
                raise SandboxError(f"the processes of {container} did not end")

    def _wait(self, done: Callable[[], bool], container: str, longest_s: float = TIMEOUT_S) -> None:
        """For what the engine has not noticed yet."""
        deadline = time.monotonic() + longest_s
        while not done():
            if time.monotonic() > deadline:
                raise SandboxError(f"podman still reports {container} as running")
            time.sleep(_POLL_S)

    def _look(self, container: str) -> Any:
        """What the engine knows of it; None when its first process has ended, and it has not
        noticed yet."""
        answer = self._ask("GET", f"/containers/{container}/json", 500)
        if answer.status_code == 500 and _ENDED.search(answer.text):
            return None
        return self._checked(answer).json()

    def _inspect(self, container: str) -> Any:
        found: list[Any] = []

        def looked() -> bool:
            found[:] = [self._look(container)]
            return found != [None]

        self._wait(looked, container, _PASSING_S)
        return found[0]

    def _volumes(self, label: str) -> Sequence[Any]:
        found: Sequence[Any] = self._labelled("/volumes/json", label) or ()
        return found

    def connect(self, container: str, on: bool) -> None:
        """Put it into its network, or out of it."""
        found = self._inspect(container)
        if found["HostConfig"]["NetworkMode"] == "none":
            raise UnsupportedError(
                "podman can't connect a container that was created without a network: "
                "use the sandbox 'docker'"
            )
        action = "connect" if on else "disconnect"
        self._ask("POST", f"/networks/{container}/{action}", json={"Container": container})

    def _literal(self, path: str) -> str:
        """Escaped: the engine reads it as a pattern. It refuses stars, so a star becomes a class of
        characters that only a star matches."""
        return re.sub(r"([\\?\[\]{}])", r"\\\1", path).replace("*", "[^\x01-)+-\U0010ffff]")

    def put(self, container: str, folder: str, pieces: Callable[[], Iterable[bytes]]) -> None:
        """Unpack a tar stream. Retries: the process that podman starts for it may fail to start
        while others use the same container."""
        deadline = time.monotonic() + _PASSING_S
        while True:
            try:
                return super().put(container, folder, pieces)
            except SandboxError as error:
                if _NOT_STARTED not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    def stat(self, container: str, path: str) -> Stat:
        """One path in it."""
        found = super().stat(container, path)
        literal = self._literal(path)
        if found.link.endswith(literal) and literal != path:
            raise SandboxError(f"podman can't follow {path!r}: a link with such a name")
        return found

    def close(self) -> None:
        """Close connections."""
        self._client.close()  # type: ignore[no-untyped-call]


def _handle(pid: int, container: str) -> int | None:
    """Of a container's first process; None when there is none here (any more)."""
    try:
        return os.pidfd_open(pid) if is_here(pid, container) else None
    except ProcessLookupError:
        return None
