"""The Docker engine: what it does in another way than Podman."""

import contextlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import docker
from docker.auth import get_config_header, resolve_repository_name
from docker.errors import APIError, DockerException
from docker.tls import TLSConfig
from docker.utils import parse_repository_tag

from ale.errors import SandboxError, UnsupportedError
from ale_sandbox_docker.certificates import Certificates
from ale_sandbox_docker.client import ComposeClient
from ale_sandboxing.container.api import CONNECTIONS, TIMEOUT_S, Engine, text_of
from ale_sandboxing.container.engine import Build, Facts, Plan
from ale_sandboxing.container.probing import check_address, facts_of
from ale_sandboxing.process import seccomp

_POLL_S = 0.05
_ENDS_S = 2.0
"""A container that takes longer to end by itself is killed."""
_APART = "ale-apart"
"""Label of the network of sandboxes, and what its name begins with."""
_MAKING = threading.Lock()
"""Held by the thread that makes it: the engine has addresses for few networks."""
_BUILDKIT = re.compile(
    r"^\s*(?:RUN\s+--(?:mount|network|security)=|(?:COPY|ADD)\s+(?:--\S+\s+)*--(?:chmod=|link|parents"
    r"|exclude=)|(?:RUN|COPY|ADD)\s(?:[^\n#]*\s)?<<-?[\"']?[A-Za-z_])",
    re.IGNORECASE | re.MULTILINE,
)


def wants_buildkit(dockerfile: str) -> bool:
    """Does it use features of BuildKit: mounts, here-documents, modes of copied files?"""
    return _BUILDKIT.search(dockerfile) is not None


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """Raise the SDK's errors as ours."""
    try:
        yield
    except APIError as error:
        raise SandboxError(f"docker: {error.explanation or error}") from error
    except DockerException as error:
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


class DockerEngine(Engine):
    """See `ale_sandboxing.container.api.Engine`.

    Args:
        address: ``unix:///var/run/docker.sock`` or ``tcp://...``.
        environ: of docker compose.
        certificates: for TLS.
    """

    builds_offline = True

    name = "docker"
    _removes = (404, 409)
    """409: somebody else is removing it already."""
    _removes_images_by_force = True

    def __init__(
        self,
        address: str,
        environ: Mapping[str, str],
        certificates: Certificates | None = None,
    ) -> None:
        check_address(address)
        tls = None if certificates is None else certificates.context()
        with _reached():
            self._api = docker.APIClient(
                base_url=address,
                tls=_tls(certificates) or False,
                timeout=TIMEOUT_S,
                max_pool_size=CONNECTIONS,
            )
        root = f"{self._api.base_url}/v{self._api.api_version}"
        super().__init__(address, self._api, root, tls)
        self.compose = ComposeClient(address, environ)

    def facts(self) -> Facts:
        """Its facts."""
        return facts_of(self._ask("GET", "/info").json())

    def _pull(self, ref: str) -> tuple[str, Mapping[str, Any]]:
        repository, tag = parse_repository_tag(ref)
        registry, _ = resolve_repository_name(repository)
        header = get_config_header(self._api, registry)
        return "/images/create", {
            "params": {"fromImage": repository, "tag": tag or "latest"},
            "headers": {"X-Registry-Auth": header} if header else {},
        }

    def build(self, build: Build, log: Callable[[str], object]) -> None:
        """Build an image: with docker compose where that needs BuildKit, since the interface that
        is used here reaches the older builder alone."""
        dockerfile = build.folder / build.dockerfile
        if not wants_buildkit(dockerfile.read_text(encoding="utf-8", errors="replace")):
            self._build(build, log)
            return
        try:
            said = self.compose.build(build)
        except UnsupportedError:
            message = "the Dockerfile needs BuildKit, and there is no docker compose to build with"
            raise SandboxError(message) from None
        for line in said.splitlines():
            log(line)

    def _build(self, build: Build, log: Callable[[str], object]) -> None:
        errors = []
        with self._reached(), _reached():
            lines = self._api.build(
                path=str(build.folder),
                dockerfile=build.dockerfile,
                tag=build.tag,
                labels=dict(build.labels),
                nocache=not build.cached,
                network_mode=build.network_mode,
                rm=True,
                forcerm=True,
                decode=True,
            )
            for line in lines:  # to the end, so that the connection is closed
                for part in text_of(line).splitlines():
                    log(part)
                if "error" in line:
                    errors.append(line["error"])
        if errors:
            raise SandboxError(errors[0])

    def _container(self, plan: Plan) -> Mapping[str, Any]:
        return {
            "Image": plan.image,
            "Entrypoint": list(plan.entrypoint),
            "OpenStdin": True,
            "StdinOnce": True,
            "Cmd": None,
            "WorkingDir": plan.workdir,
            "Env": [f"{name}={value}" for name, value in plan.env.items()],
            # A third of what the start of a container takes is docker's preparation for a network.
            "NetworkDisabled": plan.offline and plan.joins is None,
            "User": plan.user or "",
            "Labels": dict(plan.labels),
            # That of the other one, where they share a network.
            **({} if plan.joins else {"Hostname": "sandbox"}),
            # Else an engine that stops, or starts again, waits 10 s for each.
            "StopSignal": "SIGKILL",
            "Healthcheck": {"Test": ["NONE"]},
            "Volumes": {path: {} for path in plan.volumes},
            "HostConfig": {
                "NetworkMode": self._mode(plan),
                "CapDrop": ["ALL"],
                "CapAdd": list(plan.capabilities),
                "SecurityOpt": _security(plan),
                "Privileged": False,
                "ReadonlyRootfs": plan.read_only,
                "Memory": plan.memory_bytes or 0,
                "MemorySwap": plan.memory_bytes or 0,
                "PidsLimit": plan.processes or 0,
                "NanoCpus": round((plan.cpus or 0) * 1e9),
                "Runtime": plan.runtime or "",
                "Sysctls": dict(plan.sysctls),
                "LogConfig": {"Type": "none"},
                "Tmpfs": {
                    **{one.target: one.source for one in plan.shared if one.kind == "tmpfs"},
                    **dict.fromkeys(plan.closed, "ro"),
                    **{
                        path: f"rw,nosuid,nodev,exec,mode=1777,size={size}"
                        for path, size in plan.tmpfs.items()
                    },
                },
                "Mounts": [
                    *(_mount("bind", str(path), str(path), True) for path in plan.binds),
                    *(
                        _mount(one.kind, one.source, one.target, one.read_only)
                        for one in plan.shared
                        if one.kind != "tmpfs"
                    ),
                    _mount("volume", plan.shell.name, plan.shell.target, plan.shell.read_only),
                ],
            },
        }

    def _mode(self, plan: Plan) -> str:
        if plan.joins is not None:
            return f"container:{plan.joins}"
        return self._network() if plan.network else "none"

    def kill(self, container: str) -> None:
        """End every process in it."""
        # 404: it is gone; 409: it is not running, or paused.
        self._ask("POST", f"/containers/{container}/kill", 404, 409)

    def end(self, container: str) -> None:
        """Wait for its end: to kill it, the engine would start a process."""
        with contextlib.suppress(SandboxError):
            self._ask("POST", f"/containers/{container}/wait", timeout=_ENDS_S)
            return
        self.kill(container)

    def clear(self, project: str) -> None:
        """Remove what docker compose created for this project."""
        mine = f"com.docker.compose.project={project}"
        for box in self.containers(mine):
            self.remove(box.id)
        for network in self._labelled("/networks", mine):
            self._ask("DELETE", f"/networks/{network['Id']}", 404)
        for volume in self.volumes(mine):
            self._ask("DELETE", f"/volumes/{volume.id}", 404, params={"force": True})

    def _volumes(self, label: str) -> Sequence[Any]:
        found: Sequence[Any] = self._labelled("/volumes", label)["Volumes"] or ()
        return found

    def run(
        self, container: str, argv: Sequence[str], *, user: str | None, timeout_s: float
    ) -> int | None:
        """Run one more process in a container; its exit code, None where it still runs then."""
        deadline = time.monotonic() + timeout_s
        about = {"Cmd": list(argv), "User": user or ""}
        process = self._ask("POST", f"/containers/{container}/exec", json=about).json()["Id"]
        self._ask("POST", f"/exec/{process}/start", json={"Detach": True})
        while (code := self.exit_code(process)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return code

    def connect(self, container: str, on: bool) -> None:
        """Put it into the network of sandboxes, or out of it."""
        about = self._inspect(container)
        if on and about["Config"].get("NetworkDisabled"):
            raise UnsupportedError(
                "a container that docker has started without a network can't be connected: "
                "a task whose network changes has requires: [change-network] in its environment"
            )
        found = about["NetworkSettings"]["Networks"]
        body = {"Container": container}
        if on and "none" in found:
            self._ask("POST", "/networks/none/disconnect", json=body)
        ours = {one["Id"] for one in self._networks()}
        inside = [id for one in found.values() if (id := one["NetworkID"]) in ours]
        if on and not inside:
            self._ask("POST", f"/networks/{self._network()}/connect", json=body)
        for id in () if on else inside:
            self._ask("POST", f"/networks/{id}/disconnect", json={**body, "Force": True})

    def _network(self) -> str:
        """Id of the one network of all sandboxes, in which no container reaches another.

        It is made where it is missing, and stays. A network for each would soon use up the
        addresses that the engine has for them.
        """
        if (usable := self._usable()) is not None:
            return usable
        with _MAKING:
            if (usable := self._usable()) is not None:
                return usable
            about = {
                "Name": f"{_APART}-{uuid4().hex[:12]}",
                "CheckDuplicate": True,
                "Driver": "bridge",
                "Options": {"com.docker.network.bridge.enable_icc": "false"},
                "Labels": {_APART: ""},
            }
            made = str(self._ask("POST", "/networks/create", json=about).json()["Id"])
        return self._usable() or made

    def _usable(self) -> str | None:
        """Id of the first network of sandboxes.

        Two that two processes made at once are both there, and every process takes the same. If
        two have one name, the engine starts no container in either, even by its id.
        """
        found = self._networks()
        named = Counter(one["Name"] for one in found)
        usable = (one for one in found if named[one["Name"]] == 1)
        first = min(usable, key=lambda one: (one["Created"], one["Id"]), default=None)
        return None if first is None else str(first["Id"])

    def _networks(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self._labelled("/networks", _APART) or ()
        return found


def _security(plan: Plan) -> list[str]:
    options = [] if plan.new_privileges else ["no-new-privileges"]
    return [*options, f"seccomp={json.dumps(seccomp.profile())}"] if plan.filtered else options


def _mount(kind: str, source: str, target: str, read_only: bool) -> Mapping[str, Any]:
    return {"Type": kind, "Source": source, "Target": target, "ReadOnly": read_only}
