"""From what a task wants to an image that is there: looked up, pulled or built, once."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ale.errors import SandboxError, UnsupportedError
from ale.types import SandboxSpec
from ale_sandbox_container.api import Engine
from ale_sandbox_container.compose import Composed, Composer
from ale_sandbox_container.context import digest_of
from ale_sandbox_container.engine import Image, NotFoundError
from ale_sandbox_container.options import ContainerOptions
from ale_sandbox_container.stack import Stack, read
from ale_sandbox_container.threads import EngineThreads

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_DOCKERFILES = ("Dockerfile", "Containerfile")
_TOLD_LINES = 12


class Images:
    """Images by what names them. Many sandboxes that want one at once wait for one pull or build.

    Args:
        logs: folder for the logs of builds.
    """

    def __init__(
        self,
        engine: Engine,
        options: ContainerOptions,
        threads: EngineThreads,
        logs: Path,
        composer: Composer,
    ) -> None:
        self._engine = engine
        self._options = options
        self._threads = threads
        self._logs = logs
        self._composer = composer
        self._known: dict[str, asyncio.Task[Any]] = {}

    async def of(self, spec: SandboxSpec) -> Image:
        """The image for a sandbox. A tag means the same image for as long as this backend lives.

        Raises:
            SandboxError: it can't be pulled; the message names it.
        """
        if spec.build is not None:
            folder = Path(spec.build)
            digest = await self._once(f"digest {folder}", lambda: digest_of(folder))
            return await self._once(f"build {digest}", lambda: self._built(folder, digest))
        ref = spec.image or self._options.image
        return await self._once(ref, lambda: self._there(ref))

    async def composed(self, spec: SandboxSpec) -> Composed | None:
        """The stack of a sandbox whose build is a compose file, all its own images there.

        Raises:
            SandboxError: it can't be read or built.
        """
        if spec.build is None or not spec.build.endswith((".yaml", ".yml")):
            return None
        file, image = Path(spec.build), spec.image
        stack = await self._once(f"stack {file}", lambda: read(file))
        variables = {**spec.env, **_sizes(spec)}
        digest = await self._digest(stack, variables)
        key = f"{digest} {image} {sorted(variables.items())}"
        first = await self._once(
            f"compose {key}", lambda: self._composed(stack, digest, image, variables)
        )
        if first.stack.file == file:
            return first
        # All is built already; but paths in the file are relative to its own folder.
        return await self._once(
            f"compose {file} {key}", lambda: self._composed(stack, digest, image, variables)
        )

    async def _digest(self, stack: Stack, variables: Mapping[str, str]) -> str:
        """Of what the builds of a stack see, and of what is filled in in its file."""
        folder = stack.folder
        digest = await self._once(f"whole {folder}", lambda: digest_of(folder, whole=True))
        values = self._composer.values_of(stack.variables, variables)
        if not values:
            return digest
        return hashlib.sha256(f"{digest} {values}".encode()).hexdigest()[:32]

    def _composed(
        self, stack: Stack, digest: str, image: str | None, variables: Mapping[str, str]
    ) -> Composed:
        try:
            return self._composer.prepare(stack, digest, image, variables)
        except UnsupportedError:
            raise
        except SandboxError as error:
            dockerfile = stack.folder / _DOCKERFILES[0]
            why = self._why_not_built(dockerfile) if dockerfile.is_file() else ""
            message = f"the images of {stack.file} could not be built{why}: {error}"
            raise SandboxError(message) from error

    async def _once(self, key: str, work: Callable[[], T]) -> T:
        task = self._known.get(key)
        if task is None:
            task = asyncio.ensure_future(self._threads.call(work))
            self._known[key] = task
            task.add_done_callback(lambda task: self._forget_failure(key, task))
        # Shielded: one sandbox that is no longer wanted must not stop what others wait for.
        made: T = await asyncio.shield(task)
        return made

    def _forget_failure(self, key: str, task: "asyncio.Task[Any]") -> None:
        if task.cancelled() or task.exception() is not None:
            del self._known[key]

    def _there(self, ref: str) -> Image:
        try:
            return self._engine.image(ref)
        except NotFoundError:
            pass
        name = self._engine.name
        if self._options.pull == "never":
            raise SandboxError(
                f"the image {ref!r} is not there, and sandbox.pull is 'never'; "
                f"get it with: {name} pull {ref}"
            )
        _LOG.info("%s: pulling %s", name, ref)
        self._engine.pull(
            ref,
            silence_s=self._options.pull_silence_s,
            progress=lambda line: _LOG.info("%s: %s: %s", name, ref, line),
        )
        return self._engine.image(ref)

    def _built(self, folder: Path, digest: str) -> Image:
        """Build where the same content has not been built before."""
        dockerfile = next((name for name in _DOCKERFILES if (folder / name).is_file()), None)
        if dockerfile is None:
            raise SandboxError(f"there is no Dockerfile in {folder}")
        tag = f"ale-build:{digest}"
        try:
            return self._engine.image(tag)
        except NotFoundError:
            pass
        self._logs.mkdir(parents=True, exist_ok=True)
        path = self._logs / f"build-{digest}.log"
        last: list[str] = []
        with path.open("w", encoding="utf-8") as file:

            def log(line: str) -> None:
                file.write(line + "\n")
                last[:] = [*last, line][-_TOLD_LINES:]

            _LOG.info("%s: building %s; log: %s", self._engine.name, folder, path)
            try:
                self._build(folder, dockerfile, tag, log)
            except SandboxError as error:
                tail = "\n".join(f"    {line}" for line in last)
                why = self._why_not_built(folder / dockerfile)
                raise SandboxError(
                    f"the image in {folder} could not be built{why}: {error}\n{tail}\n"
                    f"whole log: {path}"
                ) from error
        return self._engine.image(tag)

    def _build(self, folder: Path, dockerfile: str, tag: str, log: Callable[[str], object]) -> None:
        text = (folder / dockerfile).read_text(encoding="utf-8", errors="replace")
        if self._engine.knows_buildkit or not wants_buildkit(text):
            labels = {"ale.kind": "build"}
            self._engine.build(folder, dockerfile=dockerfile, tag=tag, labels=labels, log=log)
            return
        try:
            said = self._composer.build(folder, dockerfile, tag)
        except UnsupportedError:
            message = "the Dockerfile needs BuildKit, and there is no docker compose to build with"
            raise SandboxError(message) from None
        for line in said.splitlines():
            log(line)

    def _why_not_built(self, dockerfile: Path) -> str:
        """Names the base images that are not there, even after the engine has tried to get them."""
        missing = []
        for ref in bases_of(dockerfile.read_text(encoding="utf-8", errors="replace")):
            try:
                self._engine.image(ref)
            except NotFoundError:
                missing.append(repr(ref))
        named = ", ".join(missing)
        return f", because its base image {named} can't be pulled" if named else ""


def _sizes(spec: SandboxSpec) -> dict[str, str]:
    """As Harbor gives them to compose files."""
    memory = None if spec.memory_mb is None else f"{spec.memory_mb}M"
    found = {"CPUS": None if spec.cpus is None else f"{spec.cpus:g}", "MEMORY": memory}
    return {name: value for name, value in found.items() if value is not None}


_BUILDKIT = re.compile(
    r"^\s*(?:RUN\s+--(?:mount|network|security)=|(?:COPY|ADD)\s+(?:--\S+\s+)*--(?:chmod=|link|parents"
    r"|exclude=)|(?:RUN|COPY|ADD)\s(?:[^\n#]*\s)?<<-?[\"']?[A-Za-z_])",
    re.IGNORECASE | re.MULTILINE,
)


def wants_buildkit(dockerfile: str) -> bool:
    """Does it use features of BuildKit: mounts, here-documents, modes of copied files?"""
    return _BUILDKIT.search(dockerfile) is not None


def bases_of(dockerfile: str) -> list[str]:
    """Base images of a Dockerfile's stages, except those named by a build argument."""
    stages: set[str] = {"scratch"}
    bases: list[str] = []
    for words in re.findall(r"^\s*FROM\s+(.*)", dockerfile, re.IGNORECASE | re.MULTILINE):
        base, *rest = [word for word in words.split() if not word.startswith("--")] or [""]
        if base and "$" not in base and base.lower() not in stages:
            bases.append(base)
        if len(rest) == 2 and rest[0].lower() == "as":
            stages.add(rest[1].lower())
    return bases
