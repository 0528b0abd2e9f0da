"""Runs docker compose: once to build, and for each sandbox to make and start its containers."""

import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from attrs import evolve, frozen

from ale.errors import SandboxError, UnsupportedError
from ale_sandbox_container.api import Engine
from ale_sandbox_container.engine import NotFoundError, Plan
from ale_sandbox_container.service_containers import PROJECT, SERVICE
from ale_sandbox_container.stack import (
    SERVICES,
    SIZES,
    VARIABLES,
    Document,
    Stack,
    without_conditions,
)

_LOG = logging.getLogger(__name__)
_CLIENTS = (("docker", "compose"), ("docker-compose",))
_LONGEST_S = 3600.0
_TOLD = 1500
_POLL_S = 0.25


@frozen(kw_only=True)
class Composed:
    """A stack whose images are there."""

    stack: Stack
    named: Document
    main: str
    """Image of the agent's service."""
    variables: Mapping[str, str] = MappingProxyType({})
    """Of the task, for what is to be filled in."""


class Composer:
    """Uses the first of ``docker compose`` and ``docker-compose`` that works. Its methods block.

    Args:
        logs: folder for the logs of builds.
    """

    def __init__(self, engine: Engine, environ: Mapping[str, str], logs: Path) -> None:
        self._engine = engine
        self._environ = environ
        self._logs = logs
        self._client: Sequence[str] | None = None

    def prepare(
        self, stack: Stack, digest: str, image: str | None, variables: Mapping[str, str]
    ) -> Composed:
        """Build what is to be built, where the same content has not been built before.

        Args:
            variables: the task's own, for what is to be filled in.

        Raises:
            SandboxError: it can't be built.
            UnsupportedError: there is no docker compose for this engine.
        """
        self._found()
        named = stack.named(f"ale-build:{digest}", image)
        services = named["services"]
        main = str(services[stack.service]["image"])
        missing = [name for name, about in services.items() if self._is_missing(about)]
        if missing:
            log = self._logs / f"build-{digest}.log"
            _LOG.info("docker compose: building %s of %s; log: %s", missing, stack.file, log)
            try:
                project = f"ale-build-{digest}"
                said = self._run(stack, named, project, ["build", *missing], main, variables)
            except SandboxError as error:
                self._write(log, str(error))
                raise SandboxError(f"{error}\nwhole log: {log}") from None
            self._write(log, said)
        return Composed(stack=stack, named=named, main=main, variables=variables)

    def build(self, folder: Path, dockerfile: str, tag: str) -> str:
        """Build one image with BuildKit, which the engine's interface does not offer.

        Returns:
            What the build printed.

        Raises:
            SandboxError: it can't be built.
            UnsupportedError: there is no docker compose for this engine.
        """
        about = {
            "image": tag,
            "build": {
                "context": ".",
                "dockerfile": dockerfile,
                "labels": {"ale.kind": "build"},
            },
        }
        document: Document = {"services": {SERVICES[0]: about}}
        stack = Stack(file=folder / dockerfile, service=SERVICES[0], document=document)
        wanted = {"DOCKER_BUILDKIT": "1"}
        return self._run(stack, document, tag.replace(":", "-"), ["build"], tag, wanted)

    def _write(self, log: Path, text: str) -> None:
        self._logs.mkdir(parents=True, exist_ok=True)
        log.write_text(text, encoding="utf-8")

    def _is_missing(self, about: Document) -> bool:
        if "build" not in about:
            return False
        try:
            self._engine.image(about["image"])
        except NotFoundError:
            return True
        return False

    def create(self, composed: Composed, plan: Plan) -> None:
        """Make the containers, networks and volumes of one sandbox."""
        # Version 1 would wait until services have completed that it does not start.
        self._run_one(composed, plan, ["up", "--no-start", "--no-build"], without_conditions)

    def start(self, composed: Composed, plan: Plan) -> None:
        """Start the containers and wait until all services but the agent's are ready.

        Raises:
            SandboxError: a service could not be started, has ended, or is unhealthy.
        """
        self._run_one(composed, plan, ["up", "--detach", "--no-build", "--no-recreate"])
        if len(composed.named["services"]) > 1:
            self._wait_until_ready(composed.stack, plan.name)

    def _wait_until_ready(self, stack: Stack, project: str) -> None:
        """As ``docker compose up --wait``, which version 1 lacks and which in version 2 fails on
        the agent's service, because its health check is disabled."""
        deadline = time.monotonic() + _LONGEST_S
        waiting = True
        while waiting:
            if time.monotonic() > deadline:
                raise SandboxError(f"the services of {stack.file} are not ready")
            time.sleep(_POLL_S)
            found = self._engine.containers(f"{PROJECT}={project}")
            others = {box.id: box.labels.get(SERVICE, "") for box in found}
            waiting = any(
                not self._is_ready(stack, container, service)
                for container, service in others.items()
                if service != stack.service
            )

    def _is_ready(self, stack: Stack, container: str, service: str) -> bool:
        """Is it healthy, or where it has no health check, does it run?

        Raises:
            SandboxError: it never will be.
        """
        state = self._engine.state(container)
        completes = service in stack.completing
        if not state.running and not (completes and state.exit_code == 0):
            raise SandboxError(
                f"the service {service!r} of {stack.file} has ended with exit code "
                f"{state.exit_code}"
            )
        if state.health == "unhealthy":
            raise SandboxError(f"the service {service!r} of {stack.file} is unhealthy")
        return not state.running if completes else state.health in (None, "healthy")

    def _run_one(
        self,
        composed: Composed,
        plan: Plan,
        arguments: Sequence[str],
        change: Callable[[Document], Document] = lambda document: document,
    ) -> None:
        document = change(composed.stack.of(evolve(plan, image=composed.main), composed.named))
        self._run(composed.stack, document, plan.name, arguments, composed.main, composed.variables)

    def _run(
        self,
        stack: Stack,
        document: Document,
        project: str,
        arguments: Sequence[str],
        image: str,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Run it on a file; what it printed.

        Raises:
            SandboxError: it failed, with the end of what it printed.
        """
        client = self._found()
        options = ["--project-name", project, "--project-directory", str(stack.folder)]
        names = ("MAIN_IMAGE_NAME", "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME")
        environ = {
            **self._environ,
            **SIZES,
            **variables,
            **VARIABLES,
            **dict.fromkeys(names, image),
            "T_BENCH_TASK_DOCKER_NAME_PREFIX": project,
        }
        try:
            done = subprocess.run(
                [*client, *options, "--file", "-", *arguments],
                input=json.dumps(document).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._with_host(environ),
                cwd=stack.folder,
                timeout=_LONGEST_S,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"{' '.join(client)} {arguments[0]}: {error}") from error
        said = done.stdout.decode("utf-8", "replace")
        if done.returncode != 0:
            end = said.strip()[-_TOLD:]
            command = f"{' '.join(client)} {arguments[0]}"
            raise SandboxError(f"{command} of {stack.file} ended with {done.returncode}:\n{end}")
        return said

    def values_of(self, names: Collection[str], variables: Mapping[str, str]) -> Mapping[str, str]:
        """What is filled in for these names and may differ from one run to the next."""
        known = {**self._environ, **variables}
        return {name: known[name] for name in sorted(names) if name in known.keys() - VARIABLES}

    def _with_host(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {"PATH": os.defpath, **environ, "DOCKER_HOST": self._engine.address or ""}

    def _found(self) -> Sequence[str]:
        if self._engine.address is None:
            raise UnsupportedError(
                f"the task needs several containers, which {self._engine.name} can't have here: "
                "use the sandbox 'docker'"
            )
        if self._client is None:
            self._client = next(filter(self._answers, _CLIENTS), None)
        if self._client is None:
            raise UnsupportedError(
                "the task needs several containers, and there is no docker compose: "
                "install docker-compose, or the plugin of that name for docker"
            )
        return self._client

    def _answers(self, client: Sequence[str]) -> bool:
        try:
            done = subprocess.run(
                [*client, "version", "--short"],
                capture_output=True,
                env=self._with_host(self._environ),
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0
