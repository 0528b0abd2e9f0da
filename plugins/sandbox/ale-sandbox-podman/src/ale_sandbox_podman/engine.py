"""The Podman engine, through its SDK's client: one request for each thing done."""

import contextlib
import functools
import json
import os
import posixpath
import re
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import podman
import requests
from attrs import evolve
from podman.api.client import APIResponse
from podman.errors import APIError, BuildError, PodmanError

from ale.errors import SandboxError, UnsupportedError
from ale_sandbox_container.archive import STAT_HEADER, parse_stat
from ale_sandbox_container.engine import (
    ConflictError,
    Facts,
    Found,
    Image,
    NotFoundError,
    Plan,
    Stat,
    State,
)
from ale_sandbox_container.here import is_here
from ale_sandbox_container.probing import check_address
from ale_sandbox_podman.facts import API, facts_of
from ale_sandbox_podman.spec import spec_of

_TIMEOUT_S = 120
"""For one answer of the engine. Pulls and builds have their own."""
_FORMAT = "application/vnd.docker.distribution.manifest.v2+json"
"""Of the images that are built."""
_PIECE = 1 << 16
_POLL_S = 0.01
_PASSING_S = 10.0
"""What is only so because something ends or goes just now is over by then."""
_ENDED = re.compile(r"/proc/\d+/\S*: no such (process|file)")
"""In an error of the engine: it looked for a process that is no more."""
_GONE = re.compile(r"^\{\"cause\":.*(image not known|layer not known|no such container)")
"""An error of the engine: something was removed under its hands."""


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise the SDK's errors as those of the protocol."""
    try:
        yield
    except APIError as error:
        if error.response is None:
            raise SandboxError(f"podman does not answer: {error.__cause__ or error}") from error
        said = str(error.explanation or error).strip()
        if error.status_code == 404:
            raise NotFoundError(said) from error
        if error.status_code == 409:
            raise ConflictError(said) from error
        raise SandboxError(f"podman: {said}") from error
    except requests.exceptions.ReadTimeout as error:
        raise SandboxError("podman did not answer in time") from error
    except (PodmanError, requests.exceptions.RequestException, OSError) as error:
        raise SandboxError(f"podman does not answer: {error}") from error


def _ok(response: APIResponse, *also: int) -> APIResponse:
    if response.status_code not in also:
        response.raise_for_status()
    return response


class PodmanEngine:
    """See `ale_sandbox_container.engine.Engine`.

    Args:
        address: ``unix:///run/podman/podman.sock`` or ``tcp://...``.
    """

    name = "podman"
    knows_buildkit = True
    tls = None
    address: str | None = None
    """Version 1 of docker compose attaches to what it only makes, and Podman then makes the first
    process of such a container at once, before its supervisor is there."""

    def __init__(self, address: str) -> None:
        check_address(address)
        self.url = address
        with _translated():
            self._client = podman.PodmanClient(
                base_url=address, version=API, timeout=_TIMEOUT_S, max_pool_size=64
            )
        self._api = self._client.api
        # A new connection to a local socket costs next to nothing, an open one a descriptor.
        self._api.headers["Connection"] = "close"

    def facts(self) -> Facts:
        """Its facts."""
        with _translated():
            _ok(self._api.get("/_ping"))
            return _facts_at(self.url)

    def image(self, ref: str) -> Image:
        """An image that is there already."""
        with _translated():
            found = _ok(self._api.get(f"/images/{quote(ref, safe='')}/json")).json()
        config = found.get("Config") or {}
        return Image(
            id=found["Id"],
            workdir=config.get("WorkingDir") or "",
            entrypoint=config.get("Entrypoint") or (),
            health=found.get("HealthCheck") or found.get("Healthcheck"),
            labels=found.get("Labels") or {},
        )

    def pull(self, ref: str, *, silence_s: float, progress: Callable[[str], object]) -> None:
        """Fetch an image. Not through the SDK's `pull`, which waits for ever."""
        try:
            with _translated():
                response = self._api.post(
                    "/images/pull", params={"reference": ref}, stream=True, timeout=silence_s
                )
                with contextlib.closing(response):
                    _ok(response)
                    for line in response.iter_lines():
                        _follow(json.loads(line), progress)
        except SandboxError as error:
            raise SandboxError(
                f"the image {ref!r} is not there and could not be pulled: {error}"
            ) from error

    def build(
        self,
        folder: Path,
        *,
        dockerfile: str,
        tag: str,
        labels: Mapping[str, str],
        log: Callable[[str], object],
    ) -> None:
        """Build an image from a folder."""
        failure: str | None = None
        lines: Iterable[Any]
        with _translated():
            try:
                _, lines = self._client.images.build(
                    path=str(folder),
                    dockerfile=dockerfile,
                    tag=tag,
                    labels=dict(labels),
                    rm=True,
                    forcerm=True,
                    # The other format keeps neither HEALTHCHECK nor SHELL.
                    outputformat=_FORMAT,
                )
            except BuildError as error:
                failure, lines = error.msg, error.build_log
            for line in lines:
                for part in _text_of(line).splitlines():
                    log(part)
        if failure is not None:
            raise SandboxError(failure)

    def commit(self, container: str, *, tag: str, labels: Mapping[str, str]) -> None:
        """Store a container's files as an image; it is paused meanwhile.

        Retries: podman fails if an image with the same layer is removed at that moment.
        """
        repository, _, version = tag.partition(":")
        params = {
            "container": container,
            "repo": repository,
            "tag": version,
            "pause": True,
            "format": "docker",
            "changes": [f"LABEL {json.dumps(k)}={json.dumps(v)}" for k, v in labels.items()],
        }
        deadline = time.monotonic() + _PASSING_S
        while True:
            with _translated():
                response = self._api.post("/commit", params=params, timeout=_TIMEOUT_S)
                if not _GONE.search(response.text) or time.monotonic() > deadline:
                    _ok(response)
                    return
            time.sleep(_POLL_S)

    def images(self, label: str) -> Sequence[Found]:
        """Images with this label."""
        params = {"filters": json.dumps({"label": [label]})}
        found = self._listed("/images/json", params)
        return [Found(id=image["Id"], labels=image["Labels"] or {}) for image in found]

    def _listed(self, path: str, params: Mapping[str, Any]) -> Sequence[Any]:
        """Retries: podman fails to list while one of the things listed is being removed."""
        deadline = time.monotonic() + _PASSING_S
        while True:
            with _translated():
                response = self._api.get(path, params=params)
                if not _GONE.search(response.text) or time.monotonic() > deadline:
                    return _ok(response).json() or ()
            time.sleep(_POLL_S)

    def remove_image(self, ref: str) -> None:
        """Remove an image. Never by force, which would remove its containers too."""
        with _translated():
            _ok(self._api.delete(f"/images/{quote(ref, safe='')}"), 404)

    def create(self, plan: Plan) -> str:
        """Make a container."""
        with _translated():
            response = self._api.post(
                "/containers/create",
                data=json.dumps(spec_of(plan)),
                headers={"Content-Type": "application/json"},
            )
            return str(_ok(response).json()["Id"])

    def start(self, container: str) -> None:
        """Start it."""
        deadline = time.monotonic() + _TIMEOUT_S
        with _translated():
            # 304: one that was killed just now; the engine has not noticed yet.
            while self._start(container) == 304:
                if time.monotonic() > deadline:
                    raise SandboxError(f"podman still reports {container} as running")
                time.sleep(_POLL_S)

    def _start(self, container: str) -> int:
        return int(_ok(self._api.post(f"/containers/{container}/start")).status_code)

    def kill(self, container: str) -> None:
        """End every process in it.

        The engine's own call does not wait for that, and the one that it has from Docker looks four
        times a second. The first process of a container ends after all others.
        """
        try:
            found = self._look(container)
        except NotFoundError:
            return
        with _translated(), contextlib.ExitStack() as stack:
            handle = None if found is None else _handle(found["State"]["Pid"], found["Id"])
            if handle is not None:
                stack.callback(os.close, handle)
            response = self._api.post(f"/containers/{container}/kill")
            # 404: it is gone; 409, and in words only in older versions: it does not run.
            if "state improper" not in response.text:
                _ok(response, 404, 409)
            if handle is None and found is not None:
                self._wait_for_end(container)
            elif handle is not None and not select.select([handle], [], [], _TIMEOUT_S)[0]:
                raise SandboxError(f"the processes of {container} did not end")

    def _wait_for_end(self, container: str) -> None:
        """Of its first process, which can't be seen from here."""
        deadline = time.monotonic() + _TIMEOUT_S
        with contextlib.suppress(NotFoundError):
            while self.state(container).running:
                if time.monotonic() > deadline:
                    raise SandboxError(f"the processes of {container} did not end")
                time.sleep(_POLL_S)

    def remove(self, container: str) -> None:
        """Kill and remove it with its volumes."""
        self.kill(container)
        # "v", which the engine's reference names too, is read in its imitation of Docker alone.
        params = {"force": True, "volumes": True, "timeout": 0}
        with _translated():
            _ok(self._api.delete(f"/containers/{container}", params=params), 404)

    def clear(self, project: str) -> None:
        """Nothing: docker compose makes nothing here."""

    def _look(self, container: str) -> Any:
        """What the engine knows of it; None when its first process has ended, and it has not
        noticed yet."""
        with _translated():
            response = self._api.get(f"/containers/{container}/json")
            if response.status_code == 500 and _ENDED.search(response.text):
                return None
            return _ok(response).json()

    def _inspect(self, container: str) -> Any:
        deadline = time.monotonic() + _PASSING_S
        while (found := self._look(container)) is None:
            if time.monotonic() > deadline:
                raise SandboxError(f"podman still reports {container} as running")
            time.sleep(_POLL_S)
        return found

    def state(self, container: str) -> State:
        """Its state."""
        about = self._inspect(container)
        found = about["State"]
        return State(
            id=about["Id"],
            running=found["Running"],
            exit_code=found["ExitCode"],
            out_of_memory=found["OOMKilled"],
            pid=found["Pid"],
        )

    def containers(self, label: str) -> Sequence[Found]:
        """Containers with this label."""
        params = {"all": True, "filters": json.dumps({"label": [label]})}
        return [
            Found(id=box["Id"], labels=box["Labels"], running=box["State"] == "running")
            for box in self._listed("/containers/json", params)
        ]

    def prepare(self, container: str, argv: Sequence[str], user: str | None) -> str:
        """Describe one more process for it."""
        attached = {"AttachStdin": True, "AttachStdout": True, "AttachStderr": True}
        process = json.dumps({**attached, "Cmd": list(argv), "User": user or ""})
        with _translated():
            made = _ok(self._api.post(f"/containers/{container}/exec", data=process)).json()
        return str(made["Id"])

    def exit_code(self, prepared: str) -> int | None:
        """Of such a process."""
        with _translated():
            found = _ok(self._api.get(f"/exec/{prepared}/json")).json()
        return None if found["Running"] else int(found["ExitCode"])

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a volume."""
        about = json.dumps({"Name": name, "Labels": dict(labels)})
        with _translated():
            _ok(self._api.post("/volumes/create", data=about))

    def remove_volume(self, name: str) -> None:
        """Remove a volume."""
        with _translated():
            _ok(self._api.delete(f"/volumes/{name}"), 404)

    def volumes(self, label: str) -> Sequence[Found]:
        """Volumes with this label."""
        found = self._listed("/volumes/json", {"filters": json.dumps({"label": [label]})})
        return [Found(id=volume["Name"], labels=volume["Labels"] or {}) for volume in found]

    def run(
        self, container: str, argv: Sequence[str], *, user: str | None, timeout_s: float
    ) -> int | None:
        """Run one more process in it, and poll until it has ended."""
        deadline = time.monotonic() + timeout_s
        process = json.dumps({"Cmd": list(argv), "User": user or ""})
        with _translated():
            made = _ok(self._api.post(f"/containers/{container}/exec", data=process)).json()
            start = json.dumps({"Detach": True})
            _ok(self._api.post(f"/exec/{made['Id']}/start", data=start))
            while True:
                found = _ok(self._api.get(f"/exec/{made['Id']}/json")).json()
                # It is not running before it has started either.
                if not found["Running"] and found["Pid"]:
                    return int(found["ExitCode"])
                if time.monotonic() > deadline:
                    return None
                time.sleep(_POLL_S)

    def connect(self, container: str, on: bool) -> None:
        """Put it into the network ``podman``, or out of it."""
        found = self._inspect(container)
        if found["HostConfig"]["NetworkMode"] == "none":
            raise UnsupportedError(
                "podman can't connect a container that was created without a network: "
                "use the sandbox 'docker'"
            )
        action = "connect" if on else "disconnect"
        with _translated():
            body = json.dumps({"Container": container})
            _ok(self._api.post(f"/networks/podman/{action}", data=body))

    def stat(self, container: str, path: str) -> Stat:
        """One path in it."""
        with _translated():
            response = self._api.head(
                f"/containers/{container}/archive", params={"path": _literal(path)}
            )
        if response.status_code == 404:
            raise NotFoundError(path)
        if response.status_code != 200:
            # A HEAD has no body with the reason: a loop of links, or a file used as a folder.
            raise SandboxError(f"{path!r} can't be read")
        found = parse_stat(response.headers[STAT_HEADER])
        if found.link.endswith(_literal(path)) and _literal(path) != path:
            raise SandboxError(f"podman can't follow {path!r}: a link with such a name")
        return evolve(found, name=posixpath.basename(path))

    @contextlib.contextmanager
    def get(self, container: str, path: str) -> Iterator[Iterator[bytes]]:
        """A path and what is below it, as a tar stream."""
        with _translated():
            response = self._api.get(
                f"/containers/{container}/archive", params={"path": _literal(path)}, stream=True
            )
            with contextlib.closing(response):
                _ok(response)
                yield response.iter_content(_PIECE)

    def put(self, container: str, folder: str, data: Iterable[bytes]) -> None:
        """Unpack a tar stream in it; owners are those of the stream, not the container's user."""
        params = {"path": folder, "noOverwriteDirNonDir": True, "copyUIDGID": False}
        with _translated():
            response = self._api.put(
                f"/containers/{container}/archive", params=params, data=cast(Any, data)
            )
            _ok(response)

    def close(self) -> None:
        """Close connections."""
        self._client.close()  # type: ignore[no-untyped-call]


@functools.cache
def _facts_at(address: str) -> Facts:
    """Once per process: the engine asks the package manager about its tools each time."""
    with podman.PodmanClient(base_url=address, version=API, timeout=_TIMEOUT_S) as client:
        return facts_of(_ok(client.api.get("/info")).json())


def _handle(pid: int, container: str) -> int | None:
    """Of a container's first process; None when there is none here (any more)."""
    try:
        handle = os.pidfd_open(pid) if is_here(pid, container) else None
    except ProcessLookupError:
        return None
    return handle


def _literal(path: str) -> str:
    """Escape a path, which the engine reads as a pattern. It refuses stars, so a star becomes a
    class of characters that only a star matches."""
    return re.sub(r"([\\?\[\]{}])", r"\\\1", path).replace("*", "[^\x01-)+-\U0010ffff]")


def _follow(line: Mapping[str, Any], progress: Callable[[str], object]) -> None:
    """One line of a pull."""
    if line.get("error"):
        raise SandboxError(str(line["error"]))
    if line.get("stream"):
        progress(str(line["stream"]).strip())


def _text_of(line: bytes | str) -> str:
    """The text of a line of a build's log."""
    found = json.loads(line)
    return str(found.get("stream") or found.get("error") or "")
