"""What engines are asked over HTTP: Docker's interface, which Podman has taken over.

One request for each thing done. Every method blocks and is called from threads, several at a time.
"""

import base64
import contextlib
import hashlib
import json
import ssl
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from ale.errors import SandboxError
from ale_sandboxing.container.carrying import Layers
from ale_sandboxing.container.engine import (
    About,
    Build,
    ConflictError,
    Facts,
    Found,
    Image,
    Mount,
    NotFoundError,
    Plan,
    Stat,
    State,
)

TIMEOUT_S = 120
"""For one answer of the engine. Pulls and builds have their own."""
CONNECTIONS = 64
_UNTAGGED = "<none>:<none>"
"""Docker's name for an image that has none; no request may use it."""
_PIECE = 1 << 16
_HEALTH = ("starting", "healthy", "unhealthy")
_STAT_HEADER = "X-Docker-Container-Path-Stat"
# What Go's os.FileMode says besides the permission bits.
_KINDS = (
    (1 << 31, stat.S_IFDIR),
    (1 << 27, stat.S_IFLNK),
    (1 << 25, stat.S_IFIFO),
    (1 << 24, stat.S_IFSOCK),
    (1 << 21, stat.S_IFCHR),
    (1 << 26, stat.S_IFBLK),
)


class Engine(ABC):
    """A container engine.

    Every method raises SandboxError when the engine does not answer or refuses, in words that a
    person can act on; those that name an image or container raise NotFoundError.

    Args:
        url: where it listens: ``unix://`` or ``tcp://``.
        session: of its SDK, which knows how to get there.
        root: what the addresses of all requests begin with.
        tls: what a connection to ``tcp://`` is encrypted and checked by.
    """

    name: str
    """``docker`` or ``podman``."""
    _removes: Sequence[int] = (404,)
    """Answers to a removal that are no error."""
    builds_offline = False
    """A build can be without a network."""
    _removes_images_by_force = False

    def __init__(
        self,
        url: str,
        session: requests.Session,
        root: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self.tls = tls
        self._session = session
        self._root = root
        # A new connection to a local socket costs next to nothing, an open one a descriptor.
        session.headers["Connection"] = "close"

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except requests.exceptions.ReadTimeout as error:
            raise SandboxError(f"{self.name} did not answer in time") from error
        except requests.exceptions.RequestException as error:
            raise SandboxError(f"{self.name} does not answer: {error}") from error

    def _ask(
        self, method: str, path: str, *fine: int, timeout: float = TIMEOUT_S, **about: Any
    ) -> requests.Response:
        """Its answer.

        Args:
            fine: status codes that are no error.
            about: see `requests.Session.request`.
        """
        with self._reached():
            answer = self._session.request(method, self._root + path, timeout=timeout, **about)
        return answer if answer.status_code in fine else self._checked(answer)

    def _checked(self, answer: requests.Response) -> requests.Response:
        """The answer, where it is no error."""
        if answer.status_code < 400:
            return answer
        with self._reached(), answer:
            said = answer.text.strip() or str(answer.reason)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = str(json.loads(said)["message"]).strip()
        if answer.status_code == 404:
            raise NotFoundError(said)
        if answer.status_code == 409:
            raise ConflictError(said)
        raise SandboxError(f"{self.name}: {said}")

    def _ask_steadily(self, method: str, path: str, **about: Any) -> requests.Response:
        """Likewise, where an engine may fail because of what others do at that moment."""
        return self._ask(method, path, **about)

    @abstractmethod
    def facts(self) -> Facts:
        """Its facts."""

    def image(self, ref: str) -> Image:
        """An image that is there already."""
        found = self._ask_steadily("GET", f"/images/{quote(ref, safe='')}/json").json()
        config = found.get("Config") or {}
        # Podman has its own place for it, in two spellings.
        checks = (config.get("Healthcheck"), found.get("HealthCheck"), found.get("Healthcheck"))
        return Image(
            id=found["Id"],
            workdir=config.get("WorkingDir") or "",
            entrypoint=config.get("Entrypoint") or (),
            user=config.get("User") or "",
            health=next(filter(None, checks), None),
            labels=config.get("Labels") or {},
            variables=config.get("Env") or (),
        )

    def find_image(self, ref: str) -> Image | None:
        """An image; None where it is not there."""
        try:
            return self.image(ref)
        except NotFoundError:
            return None

    def pull(self, ref: str, *, silence_s: float, progress: Callable[[str], object]) -> None:
        """Fetch an image. Not through the SDKs' `pull`, which wait for ever.

        Args:
            silence_s: give up when nothing is heard for so long.
            progress: called with a line for people.
        """
        path, about = self._pull(ref)
        try:
            with (
                self._reached(),
                self._ask("POST", path, stream=True, timeout=silence_s, **about) as answer,
            ):
                for line in answer.iter_lines():
                    _follow(json.loads(line), progress)
        except SandboxError as error:
            raise SandboxError(
                f"the image {ref!r} is not there and could not be pulled: {error}"
            ) from error

    @abstractmethod
    def _pull(self, ref: str) -> tuple[str, Mapping[str, Any]]:
        """The path and the rest of a request to fetch an image."""

    @abstractmethod
    def build(self, build: Build, log: Callable[[str], object]) -> None:
        """Build an image. `log` gets every line of the build."""

    def commit(self, container: str, *, tag: str, labels: Mapping[str, str]) -> None:
        """Keep a container's files as an image, in one consistent state: it is paused meanwhile."""
        repository, _, version = tag.partition(":")
        changes = [f"LABEL {json.dumps(k)}={json.dumps(v)}" for k, v in labels.items()]
        named = {"container": container, "repo": repository, "tag": version}
        how = {"pause": True, "format": "docker", "changes": changes}
        self._ask_steadily("POST", "/commit", params={**named, **how})

    def _labelled(self, path: str, label: str, **params: Any) -> Any:
        filters = json.dumps({"label": [label]})
        return self._ask_steadily("GET", path, params={"filters": filters, **params}).json()

    def images(self, label: str) -> Sequence[Found]:
        """Images with this label, untagged ones too."""
        found = self._labelled("/images/json", label) or ()
        return [
            Found(
                id=image["Id"],
                labels=image["Labels"] or {},
                names=[name for name in image.get("RepoTags") or () if name != _UNTAGGED],
                size=int(image.get("Size") or 0),
                created=float(image.get("Created") or 0.0),
            )
            for image in found
        ]

    def layers(self, ref: str) -> Mapping[str, int]:
        """Bytes of each layer of an image by a name for it and those below it; none if it is gone.

        Engines name the steps of a build, but not which of them made a layer; an image that shares
        a layer with another has the same steps up to it.
        """
        try:
            steps = self._ask_steadily("GET", f"/images/{quote(ref, safe='')}/history").json()
        except NotFoundError:
            return {}
        found, name = {}, ""
        for step in reversed(steps):
            about = [name, *(step.get(key) for key in ("Created", "CreatedBy", "Comment", "Size"))]
            name = hashlib.blake2b(json.dumps(about).encode(), digest_size=16).hexdigest()
            if step["Size"]:
                found[name] = int(step["Size"])
        return found

    def remove_image(self, ref: str) -> None:
        """Remove an image. Fine when it is gone already."""
        params = {"force": self._removes_images_by_force}
        self._ask("DELETE", f"/images/{quote(ref, safe='')}", 404, params=params)

    def create(self, plan: Plan) -> str:
        """Make a container; its id.

        Raises:
            ConflictError: the name is taken.
        """
        params, about = {"name": plan.name}, self._container(plan)
        made = self._ask("POST", "/containers/create", params=params, json=about)
        return str(made.json()["Id"])

    @abstractmethod
    def _container(self, plan: Plan) -> Mapping[str, Any]:
        """A container as the engine takes it."""

    def start(self, container: str) -> None:
        """Start it."""
        self._ask("POST", f"/containers/{container}/start")

    @abstractmethod
    def kill(self, container: str) -> None:
        """End every process in it, and return when they have ended. Fine when it is gone."""

    def end(self, container: str) -> None:
        """Likewise, of a container whose supervisor has lost its stream, and so ends by itself."""
        self.kill(container)

    def remove(self, container: str) -> None:
        """Kill and remove it with its volumes. Fine when it is gone already.

        Killed first: a removal by force waits for a container's end behind the same lock that
        keeps it from being killed again.
        """
        self.kill(container)
        # Each engine has its own word for the volumes.
        params = {"force": True, "v": True, "volumes": True, "timeout": 0}
        self._ask("DELETE", f"/containers/{container}", *self._removes, params=params)

    def clear(self, project: str) -> None:  # noqa: B027 - most have none
        """Remove what there is of other containers under a container's name, networks and volumes
        too."""

    def _inspect(self, container: str) -> Any:
        return self._ask("GET", f"/containers/{container}/json").json()

    def state(self, container: str) -> State:
        """Its state."""
        about = self._inspect(container)
        found = about["State"]
        health = (found.get("Health") or {}).get("Status")
        return State(
            id=about["Id"],
            running=found["Running"],
            exit_code=found["ExitCode"],
            out_of_memory=found["OOMKilled"],
            pid=found["Pid"],
            health=health if health in _HEALTH else None,
        )

    def about(self, container: str) -> About:
        """Facts about a container that its judge needs."""
        found = self._inspect(container)
        driver = (found.get("GraphDriver") or {}).get("Data") or {}
        lower = (driver.get("LowerDir") or "").split(":")
        layers = None
        if driver.get("UpperDir") and lower[0]:
            layers = Layers(upper=Path(driver["UpperDir"]), lower=tuple(map(Path, lower)))
        mounts = [
            Mount(
                kind=one["Type"],
                source=one["Name"] if one["Type"] == "volume" else one["Source"],
                target=one["Destination"],
                read_only=not one["RW"],
            )
            for one in found.get("Mounts") or ()
        ]
        in_memory = (found.get("HostConfig") or {}).get("Tmpfs") or {}
        mounts += [
            Mount(kind="tmpfs", source=options, target=target, read_only=False)
            for target, options in in_memory.items()
        ]
        pid = found["State"]["Pid"]
        return About(id=found["Id"], layers=layers, mounts=tuple(mounts), pid=pid)

    @contextlib.contextmanager
    def paused(self, container: str) -> Iterator[None]:
        """Nothing in a container runs meanwhile."""
        self._ask("POST", f"/containers/{container}/pause")
        try:
            yield
        finally:
            self._ask("POST", f"/containers/{container}/unpause")

    def containers(self, label: str) -> Sequence[Found]:
        """Containers with this label, ended ones too."""
        return [
            Found(id=box["Id"], labels=box["Labels"])
            for box in self._labelled("/containers/json", label, all=True) or ()
        ]

    def prepare(self, container: str, argv: Sequence[str], user: str | None) -> str:
        """Describe one more process for a running container; the id to start it by."""
        streams = dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr"), True)
        # Not where the container began: that folder may have been removed.
        process = {**streams, "Cmd": list(argv), "User": user or "", "WorkingDir": "/"}
        return str(self._ask("POST", f"/containers/{container}/exec", json=process).json()["Id"])

    def exit_code(self, prepared: str) -> int | None:
        """Of such a process, once it was started; None while it runs."""
        found = self._ask("GET", f"/exec/{prepared}/json").json()
        code: int | None = None if found["Running"] else found["ExitCode"]
        return code

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a volume. It is there until it is removed."""
        self._ask("POST", "/volumes/create", json={"Name": name, "Labels": dict(labels)})

    def remove_volume(self, name: str) -> None:
        """Remove a volume. Fine when it is gone already.

        Raises:
            ConflictError: a container uses it.
        """
        self._ask("DELETE", f"/volumes/{name}", 404)

    def volumes(self, label: str) -> Sequence[Found]:
        """Volumes with this label; the id is the name."""
        found = self._volumes(label)
        return [Found(id=volume["Name"], labels=volume["Labels"] or {}) for volume in found]

    @abstractmethod
    def _volumes(self, label: str) -> Sequence[Any]:
        """Volumes with this label, as the engine describes them."""

    @abstractmethod
    def connect(self, container: str, on: bool) -> None:
        """Put a running container into the engine's usual network, or take it out of it.

        Raises:
            UnsupportedError: a container that began without any can't be put into one.
        """

    def stat(self, container: str, path: str) -> Stat:
        """One path in a container, running or not."""
        params = {"path": self._literal(path)}
        answer = self._archive("HEAD", container, 400, 500, params=params)
        if answer.status_code != 200:
            # A HEAD has no body with the reason: a loop of links, or a file used as a folder.
            self._archive("GET", container, params=params, stream=True).close()
            raise SandboxError(f"{path!r} can't be read")
        return parse_stat(answer.headers[_STAT_HEADER])

    @contextlib.contextmanager
    def get(self, container: str, path: str) -> Iterator[Iterator[bytes]]:
        """A path and what is below it, as pieces of a tar stream."""
        params = {"path": self._literal(path)}
        with (
            self._reached(),
            self._archive("GET", container, params=params, stream=True) as answer,
        ):
            yield answer.iter_content(_PIECE)

    def put(self, container: str, folder: str, pieces: Callable[[], Iterable[bytes]]) -> None:
        """Unpack a tar stream in a folder of the container. A folder is never replaced by a file;
        owners are those of the stream, which may be read more than once."""
        params = {"path": folder, "noOverwriteDirNonDir": True, "copyUIDGID": False}
        self._archive("PUT", container, params=params, data=pieces())

    def _archive(self, method: str, container: str, *fine: int, **about: Any) -> requests.Response:
        return self._ask(method, f"/containers/{container}/archive", *fine, **about)

    def _literal(self, path: str) -> str:
        """A path as the engine is to be asked for it."""
        return path

    def close(self) -> None:
        """Close connections. May be called again."""
        self._session.close()


def _follow(line: Mapping[str, Any], progress: Callable[[str], object]) -> None:
    """One line of a pull."""
    if line.get("error"):
        raise SandboxError(str(line["error"]))
    if text := text_of(line):
        progress(text)


def text_of(line: Mapping[str, Any]) -> str:
    """What a line of a pull or a build says to people; empty for one of a progress bar."""
    if line.get("progressDetail"):
        return ""
    status = " ".join(str(line[key]) for key in ("id", "status") if key in line)
    return str(line.get("stream") or line.get("error") or status)


def parse_stat(header: str) -> Stat:
    """What an archive call says about a path: Base64, in Podman's case that of URLs."""
    found = json.loads(base64.b64decode(header.replace("-", "+").replace("_", "/")))
    mode = found["mode"]
    kind = next((kind for bit, kind in _KINDS if mode & bit), stat.S_IFREG)
    return Stat(
        mode=kind | mode & 0o777,
        mtime=datetime.fromisoformat(found["mtime"]).timestamp(),
        link=found["linkTarget"] if kind == stat.S_IFLNK else "",
    )
