"""Sandboxes of several containers: built once, then made and started for each sandbox."""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from attrs import evolve, frozen

from ale.errors import SandboxError, UnsupportedError
from ale.types import SandboxSpec
from ale_sandbox_docker.client import LONGEST_S
from ale_sandbox_docker.engine import DockerEngine
from ale_sandbox_docker.services import PROJECT, SERVICE, ServiceContainer
from ale_sandbox_docker.stack import Document, Stack, read, without_conditions
from ale_sandboxing.container.context import digest_of
from ale_sandboxing.container.engine import Plan
from ale_sandboxing.container.files import Files
from ale_sandboxing.container.images import DOCKERFILES, Images
from ale_sandboxing.container.tarball import Ownership
from ale_sandboxing.container.threads import EngineThreads

_LOG = logging.getLogger(__name__)
_POLL_S = 0.25


@frozen(kw_only=True)
class Composed:
    """A stack whose images are there. See `ale_sandboxing.container.stacks.Composed`."""

    engine: DockerEngine
    stack: Stack
    named: Document
    main: str
    """Image of the agent's service."""
    variables: Mapping[str, str] = MappingProxyType({})
    """Of the task, for what is to be filled in."""

    def create(self, plan: Plan) -> None:
        """Make the containers, networks and volumes of one sandbox."""
        # Version 1 would wait until services have completed that it does not start.
        self._run(plan, ["up", "--no-start", "--no-build"], without_conditions)

    def start(self, plan: Plan) -> None:
        """Start the containers and wait until all services but the agent's are ready.

        Raises:
            SandboxError: a service could not be started, has ended, or is unhealthy.
        """
        self._run(plan, ["up", "--detach", "--no-build", "--no-recreate"])
        if len(self.named["services"]) > 1:
            self._wait_until_ready(plan.name)

    def _run(
        self,
        plan: Plan,
        arguments: Sequence[str],
        change: Callable[[Document], Document] = lambda document: document,
    ) -> None:
        document = change(self.stack.of(evolve(plan, image=self.main), self.named))
        client = self.engine.compose
        client.run(self.stack, document, plan.name, arguments, self.main, self.variables)

    def _wait_until_ready(self, project: str) -> None:
        """As ``docker compose up --wait``, which version 1 lacks and which in version 2 fails on
        the agent's service, because its health check is disabled."""
        deadline = time.monotonic() + LONGEST_S
        waiting = True
        while waiting:
            if time.monotonic() > deadline:
                raise SandboxError(f"the services of {self.stack.file} are not ready")
            time.sleep(_POLL_S)
            found = self.engine.containers(f"{PROJECT}={project}")
            others = {box.id: box.labels.get(SERVICE, "") for box in found}
            waiting = any(
                not self._is_ready(container, service)
                for container, service in others.items()
                if service != self.stack.service
            )

    def _is_ready(self, container: str, service: str) -> bool:
        """Is it healthy, or where it has no health check, does it run?

        Raises:
            SandboxError: it never will be.
        """
        state = self.engine.state(container)
        completes = service in self.stack.completing
        what = f"the service {service!r} of {self.stack.file}"
        if not state.running and not (completes and state.exit_code == 0):
            raise SandboxError(f"{what} has ended with exit code {state.exit_code}")
        if state.health == "unhealthy":
            raise SandboxError(f"{what} is unhealthy")
        return not state.running if completes else state.health in (None, "healthy")


class Composer:
    """See `ale_sandboxing.container.stacks.Composer`."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine

    async def of(self, spec: SandboxSpec, images: Images) -> Composed:
        """The stack of a sandbox whose build is a compose file, all its own images there.

        Raises:
            SandboxError: it can't be read or built.
            UnsupportedError: there is no docker compose.
        """
        file, image = Path(spec.build or ""), spec.image
        stack = await images.once(f"stack {file}", lambda: read(file))
        variables = {**spec.env, **_sizes(spec)}
        folder = stack.folder
        seen = await images.once(f"whole {folder}", lambda: digest_of(folder, whole=True))
        bases = await images.once(f"bases {folder}", lambda: _bases(folder, images))
        digest = self._digest(f"{seen} {bases}" if bases else seen, stack, variables)

        def made() -> Composed:
            return self._prepared(stack, digest, image, variables, images)

        key = f"{digest} {image} {sorted(variables.items())}"
        first = await images.once(f"compose {key}", made)
        if first.stack.file == file:
            return first
        # All is built already; but paths in the file are relative to its own folder.
        return await images.once(f"compose {file} {key}", made)

    def _digest(self, seen: str, stack: Stack, variables: Mapping[str, str]) -> str:
        """Of what the builds of a stack see, and of what is filled in in its file."""
        values = self._engine.compose.values_of(stack.variables, variables)
        return hashlib.sha256(f"{seen} {values}".encode()).hexdigest()[:32]

    def _prepared(
        self,
        stack: Stack,
        digest: str,
        image: str | None,
        variables: Mapping[str, str],
        images: Images,
    ) -> Composed:
        """Build what is to be built, where the same content has not been built before."""
        self._engine.compose.found()
        named = stack.named(f"ale-build:{digest}", image)
        services = named["services"]
        main = str(services[stack.service]["image"])
        made = Composed(
            engine=self._engine, stack=stack, named=named, main=main, variables=variables
        )
        missing = [
            name
            for name, about in services.items()
            if "build" in about and self._engine.find_image(about["image"]) is None
        ]
        if not missing:
            return made
        log = images.logs / f"build-{digest}.log"
        images.logs.mkdir(parents=True, exist_ok=True)
        _LOG.info("docker compose: building %s of %s; log: %s", missing, stack.file, log)
        project = f"ale-build-{digest}"
        try:
            said = self._engine.compose.run(
                stack, named, project, ["build", *missing], main, variables
            )
        except UnsupportedError:
            raise
        except SandboxError as error:
            log.write_text(str(error), encoding="utf-8")
            dockerfile = stack.folder / DOCKERFILES[0]
            why = images.why_not_built(dockerfile) if dockerfile.is_file() else ""
            raise SandboxError(
                f"the images of {stack.file} could not be built{why}: {error}\nwhole log: {log}"
            ) from error
        log.write_text(said, encoding="utf-8")
        return made

    async def service(
        self, project: str, name: str, threads: EngineThreads, clock: Callable[[], float]
    ) -> ServiceContainer:
        """Another container of a sandbox, by the name of its service.

        Args:
            project: whose name docker compose has made it under.

        Raises:
            SandboxError: there is none of that name.
        """
        found = await threads.call(lambda: self._engine.containers(f"{PROJECT}={project}"))
        boxes = {box.labels[SERVICE]: box.id for box in found if SERVICE in box.labels}
        if name not in boxes:
            named = ", ".join(sorted(boxes)) or "none"
            raise SandboxError(f"the task has no service {name!r} (it has: {named})")
        container = boxes[name]
        files = Files(
            engine=self._engine,
            container=container,
            workdir="/",
            owner=Ownership(uid=0, gid=0),
            clock=clock,
            threads=threads,
        )
        return ServiceContainer(
            engine=self._engine, container=container, threads=threads, files=files
        )


def _sizes(spec: SandboxSpec) -> dict[str, str]:
    """As Harbor gives them to compose files."""
    memory = None if spec.memory_mb is None else f"{spec.memory_mb}M"
    found = {"CPUS": None if spec.cpus is None else f"{spec.cpus:g}", "MEMORY": memory}
    return {name: value for name, value in found.items() if value is not None}


def _bases(folder: Path, images: Images) -> str:
    """The base images of all Dockerfiles in a folder, as they are now."""
    files = sorted(each for each in folder.rglob("*ockerfile*") if each.is_file())
    return " ".join(filter(None, map(images.bases_now, files)))
