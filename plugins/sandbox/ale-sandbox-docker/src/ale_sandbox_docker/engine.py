"""The Docker engine, through its SDK's low-level client: one request for each thing done."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
import requests
from docker.auth import get_config_header, resolve_repository_name
from docker.errors import APIError, DockerException, create_api_error_from_http_exception
from docker.tls import TLSConfig
from docker.utils import parse_repository_tag

from ale.errors import SandboxError
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
from ale_sandbox_container.probing import check_address, facts_of
from ale_sandbox_docker.certificates import Certificates

_TIMEOUT_S = 120
"""For one answer of the engine. Pulls and builds have their own."""
_PIECE = 1 << 16
_POLL_S = 0.05


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise the SDK's errors as those of the protocol."""
    try:
        yield
    except APIError as error:
        said = _message(error)
        if error.status_code == 404:
            raise NotFoundError(said) from error
        if error.status_code == 409:
            raise ConflictError(said) from error
        raise SandboxError(f"docker: {said}") from error
    except requests.exceptions.ReadTimeout as error:
        raise SandboxError(f"docker did not answer within {_TIMEOUT_S} s") from error
    except (DockerException, requests.exceptions.RequestException) as error:
        raise SandboxError(f"docker does not answer: {error}") from error


class _Tls(TLSConfig):
    """The SDK's, but not in the hands of REQUESTS_CA_BUNDLE, which would replace the authority."""

    def configure_client(self, client: docker.APIClient) -> None:
        """Called by the SDK."""
        super().configure_client(client)
        client.trust_env = False


def _tls(found: Certificates | None) -> TLSConfig | None:
    if found is None:
        return None
    own = (str(found.own), str(found.key))
    return _Tls(client_cert=own, ca_cert=str(found.authority), verify=True)


def _check(response: requests.Response) -> None:
    try:
        response.raise_for_status()
    except requests.HTTPError as error:
        create_api_error_from_http_exception(error)


def _message(error: APIError) -> str:
    return str(error.explanation or error).strip()


class DockerEngine:
    """See `ale_sandbox_container.engine.Engine`.

    Args:
        address: ``unix:///var/run/docker.sock`` or ``tcp://...``.
        certificates: for TLS.
    """

    name = "docker"
    knows_buildkit = False
    """The interface that is used here reaches the older builder alone."""

    def __init__(self, address: str, certificates: Certificates | None = None) -> None:
        check_address(address)
        self.url = address
        self.address: str | None = address
        self.tls = None if certificates is None else certificates.context()
        with _translated():
            self._api = docker.APIClient(
                base_url=address,
                tls=_tls(certificates) or False,
                timeout=_TIMEOUT_S,
                max_pool_size=64,
            )
        # A new connection to a local socket costs next to nothing, an open one a descriptor.
        self._api.headers["Connection"] = "close"

    def _url(self, path: str) -> str:
        return f"{self._api.base_url}/v{self._api.api_version}{path}"

    def facts(self) -> Facts:
        """Its facts."""
        with _translated():
            return facts_of(self._api.info())

    def image(self, ref: str) -> Image:
        """An image that is there already."""
        with _translated():
            found = self._api.inspect_image(ref)  # type: ignore[no-untyped-call]
        config = found.get("Config") or {}
        return Image(
            id=found["Id"],
            workdir=config.get("WorkingDir") or "",
            entrypoint=config.get("Entrypoint") or (),
            health=config.get("Healthcheck"),
            labels=config.get("Labels") or {},
        )

    def pull(self, ref: str, *, silence_s: float, progress: Callable[[str], object]) -> None:
        """Fetch an image. Not through the SDK's `pull`, which waits for ever."""
        repository, tag = parse_repository_tag(ref)
        registry, _ = resolve_repository_name(repository)
        header = get_config_header(self._api, registry)
        try:
            with (
                _translated(),
                self._api.post(
                    self._url("/images/create"),
                    params={"fromImage": repository, "tag": tag or "latest"},
                    headers={"X-Registry-Auth": header} if header else {},
                    stream=True,
                    timeout=silence_s,
                ) as response,
            ):
                _check(response)
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
        with _translated():
            lines = self._api.build(
                path=str(folder),
                dockerfile=dockerfile,
                tag=tag,
                labels=dict(labels),
                rm=True,
                forcerm=True,
                decode=True,
            )
            errors = []
            for line in lines:  # to the end, so that the connection is closed
                text = line.get("stream") or line.get("status") or line.get("error") or ""
                for part in text.splitlines():
                    log(part)
                if "error" in line:
                    errors.append(line["error"])
        if errors:
            raise SandboxError(errors[0])

    def commit(self, container: str, *, tag: str, labels: Mapping[str, str]) -> None:
        """Store a container's files as an image; it is paused meanwhile."""
        repository, _, version = tag.partition(":")
        changes = [f"LABEL {json.dumps(k)}={json.dumps(v)}" for k, v in labels.items()]
        with _translated():
            self._api.commit(container, repository=repository, tag=version, changes=changes)

    def images(self, label: str) -> Sequence[Found]:
        """Images with this label."""
        with _translated():
            found = self._api.images(all=False, filters={"label": label})
        return [Found(id=image["Id"], labels=image["Labels"] or {}) for image in found]

    def remove_image(self, ref: str) -> None:
        """Remove an image."""
        with _translated(), contextlib.suppress(docker.errors.NotFound):
            self._api.remove_image(ref, force=True)

    def create(self, plan: Plan) -> str:
        """Make a container."""
        with _translated():
            made = self._api.create_container_from_config(  # type: ignore[no-untyped-call]
                _config(plan), plan.name
            )
        return str(made["Id"])

    def start(self, container: str) -> None:
        """Start it."""
        with _translated():
            self._api.start(container)

    def kill(self, container: str) -> None:
        """End every process in it."""
        with _translated():
            try:
                self._api.kill(container)
            except APIError as error:
                # 404: it is gone; 409: it is not running, or paused.
                if error.status_code not in (404, 409):
                    raise

    def remove(self, container: str) -> None:
        """Kill and remove it with its volumes.

        Killed first: a removal by force waits for a container's end behind the same lock that
        keeps it from being killed again.
        """
        self.kill(container)
        with _translated():
            try:
                self._api.remove_container(container, v=True, force=True)
            except APIError as error:
                # 409: somebody else is removing it already.
                if error.status_code not in (404, 409):
                    raise

    def clear(self, project: str) -> None:
        """Remove what docker compose created for this project."""
        mine = {"label": f"com.docker.compose.project={project}"}
        with _translated():
            found = self._api.containers(all=True, filters=mine)
        for box in found:
            self.remove(box["Id"])
        with _translated():
            for network in self._api.networks(filters=mine):
                with contextlib.suppress(docker.errors.NotFound):
                    self._api.remove_network(network["Id"])
            for volume in self._api.volumes(filters=mine)["Volumes"] or ():
                with contextlib.suppress(docker.errors.NotFound):
                    self._api.remove_volume(volume["Name"], force=True)

    def state(self, container: str) -> State:
        """Its state."""
        with _translated():
            about = self._api.inspect_container(container)
        found = about["State"]
        health = (found.get("Health") or {}).get("Status")
        return State(
            id=about["Id"],
            running=found["Running"],
            exit_code=found["ExitCode"],
            out_of_memory=found["OOMKilled"],
            pid=found["Pid"],
            health=None if health == "none" else health,
        )

    def containers(self, label: str) -> Sequence[Found]:
        """Containers with this label."""
        with _translated():
            found = self._api.containers(all=True, filters={"label": label})
        return [
            Found(id=box["Id"], labels=box["Labels"], running=box["State"] == "running")
            for box in found
        ]

    def prepare(self, container: str, argv: Sequence[str], user: str | None) -> str:
        """Describe one more process for it."""
        with _translated():
            made = self._api.exec_create(container, list(argv), stdin=True, user=user or "")
        return str(made["Id"])

    def exit_code(self, prepared: str) -> int | None:
        """Of such a process."""
        with _translated():
            found: int | None = self._api.exec_inspect(prepared)["ExitCode"]
        return found

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a volume."""
        with _translated():
            self._api.create_volume(name, labels=dict(labels))

    def remove_volume(self, name: str) -> None:
        """Remove a volume."""
        with _translated(), contextlib.suppress(docker.errors.NotFound):
            self._api.remove_volume(name)

    def volumes(self, label: str) -> Sequence[Found]:
        """Volumes with this label."""
        with _translated():
            found = self._api.volumes(filters={"label": label})["Volumes"] or ()
        return [Found(id=volume["Name"], labels=volume["Labels"] or {}) for volume in found]

    def run(
        self, container: str, argv: Sequence[str], *, user: str | None, timeout_s: float
    ) -> int | None:
        """Run one more process in it, and poll until it has ended."""
        deadline = time.monotonic() + timeout_s
        with _translated():
            made = self._api.exec_create(container, list(argv), user=user or "")
            self._api.exec_start(made["Id"], detach=True)
            while (found := self._api.exec_inspect(made["Id"]))["ExitCode"] is None:
                if time.monotonic() > deadline:
                    return None
                time.sleep(_POLL_S)
        return int(found["ExitCode"])

    def connect(self, container: str, on: bool) -> None:
        """Put it into the network ``bridge``, or out of it."""
        with _translated():
            found = self._api.inspect_container(container)["NetworkSettings"]["Networks"]
            if on and "none" in found:
                self._api.disconnect_container_from_network(container, "none")
            if on and "bridge" not in found:
                self._api.connect_container_to_network(container, "bridge")
            elif not on and "bridge" in found:
                self._api.disconnect_container_from_network(container, "bridge", force=True)

    def stat(self, container: str, path: str) -> Stat:
        """One path in it."""
        url = self._url(f"/containers/{container}/archive")
        with _translated():
            response = self._api.head(url, params={"path": path}, timeout=_TIMEOUT_S)
        if response.status_code == 404:
            raise NotFoundError(path)
        if response.status_code != 200:
            # A HEAD has no body with the reason: a loop of links, or a file used as a folder.
            raise SandboxError(f"{path!r} can't be read")
        return parse_stat(response.headers[STAT_HEADER])

    @contextlib.contextmanager
    def get(self, container: str, path: str) -> Iterator[Iterator[bytes]]:
        """A path and what is below it, as a tar stream."""
        url = self._url(f"/containers/{container}/archive")
        with (
            _translated(),
            self._api.get(url, params={"path": path}, stream=True, timeout=_TIMEOUT_S) as response,
        ):
            _check(response)
            yield response.iter_content(_PIECE)

    def put(self, container: str, folder: str, data: Iterable[bytes]) -> None:
        """Unpack a tar stream in it."""
        url = self._url(f"/containers/{container}/archive")
        params = {"path": folder, "noOverwriteDirNonDir": "true"}
        with _translated():
            response = self._api.put(url, params=params, data=data, timeout=_TIMEOUT_S)
            _check(response)

    def close(self) -> None:
        """Close connections."""
        self._api.close()


def _follow(line: Mapping[str, Any], progress: Callable[[str], object]) -> None:
    """One line of a pull."""
    if "error" in line:
        raise SandboxError(str(line["error"]))
    if "progressDetail" not in line or not line["progressDetail"]:
        progress(" ".join(str(line[key]) for key in ("id", "status") if key in line))


def _config(plan: Plan) -> dict[str, Any]:
    """The container as the engine's API takes it."""
    return {
        "Image": plan.image,
        "Entrypoint": list(plan.entrypoint),
        "OpenStdin": True,
        "StdinOnce": True,
        "Cmd": None,
        "WorkingDir": plan.workdir,
        "Env": [f"{name}={value}" for name, value in plan.env.items()],
        "User": plan.user or "",
        "Labels": dict(plan.labels),
        "Hostname": "sandbox",
        # Else an engine that stops, or starts again, waits 10 s for each.
        "StopSignal": "SIGKILL",
        "Healthcheck": {"Test": ["NONE"]},
        "Volumes": {path: {} for path in plan.volumes},
        "HostConfig": {
            "NetworkMode": "bridge" if plan.network else "none",
            "CapDrop": ["ALL"],
            "CapAdd": list(plan.capabilities),
            "SecurityOpt": [] if plan.new_privileges else ["no-new-privileges"],
            "Privileged": False,
            "ReadonlyRootfs": plan.read_only,
            "Memory": plan.memory_bytes or 0,
            "MemorySwap": plan.memory_bytes or 0,
            "PidsLimit": plan.processes or 0,
            "NanoCpus": round((plan.cpus or 0) * 1e9),
            "Runtime": plan.runtime or "",
            "LogConfig": {"Type": "none"},
            "Tmpfs": {
                path: f"rw,nosuid,nodev,exec,mode=1777,size={size}"
                for path, size in plan.tmpfs.items()
            },
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": str(bind.source),
                    "Target": bind.target,
                    "ReadOnly": True,
                }
                for bind in plan.binds
            ]
            + [
                {
                    "Type": "volume",
                    "Source": plan.shell.name,
                    "Target": plan.shell.target,
                    "ReadOnly": plan.shell.read_only,
                }
            ],
        },
    }
