"""From what a task wants to an image that is there: looked up, pulled or built, once."""

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ale.errors import SandboxError, UnsupportedError
from ale.types import SandboxSpec
from ale_sandboxing.container.api import Engine
from ale_sandboxing.container.context import digest_of
from ale_sandboxing.container.engine import Build, Image
from ale_sandboxing.container.options import ContainerOptions
from ale_sandboxing.container.threads import EngineThreads

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
DOCKERFILES = ("Dockerfile", "Containerfile")
_TOLD_LINES = 12
KIND, BUILD = "ale.kind", "build"
"""Label of an image that was built of a Dockerfile, and its value."""
BASES = "ale.bases"
"""Label with the base images that it was built from."""
_STEP = re.compile(r"(?i)step \d+(/\d+)?\s*:|#\d+ \[")


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
    ) -> None:
        self._engine = engine
        self._options = options
        self._threads = threads
        self.logs = logs
        self._known: dict[str, asyncio.Task[Any]] = {}

    async def of(self, spec: SandboxSpec) -> Image:
        """The image for a sandbox. A tag means the same image for as long as this backend lives.

        Raises:
            SandboxError: it can't be pulled; the message names it.
        """
        if spec.build is not None:
            folder = Path(spec.build)
            digest = await self.once(f"digest {folder}", lambda: digest_of(folder))
            return await self.once(f"build {digest}", lambda: self._built(folder, digest))
        ref = spec.image or self._options.image
        return await self.once(ref, lambda: self._there(ref))

    async def once(self, key: str, work: Callable[[], T]) -> T:
        """What blocking work gives; where it was done before, or is being done, what that gave."""
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
        if (found := self._engine.find_image(ref)) is not None:
            return found
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
        if self._options.build == "offline" and not self._engine.builds_offline:
            name = self._engine.name
            raise UnsupportedError(f"{name}'s API can't take the network from a build")
        dockerfile = next((name for name in DOCKERFILES if (folder / name).is_file()), None)
        if dockerfile is None:
            raise SandboxError(f"there is no Dockerfile in {folder}")
        tag, always = f"ale-build:{digest}", self._options.build != "changed"
        bases = self.bases_now(folder / dockerfile)
        found = self._engine.find_image(tag)
        if found is not None and found.labels.get(BASES) == bases and not always:
            return found
        build = Build(
            folder=folder,
            dockerfile=dockerfile,
            tag=tag,
            labels={KIND: BUILD, BASES: bases},
            cached=not always,
            network=self._options.build != "offline",
        )
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.logs / f"build-{digest}.log"
        last: list[str] = []
        with path.open("w", encoding="utf-8") as file:

            def log(line: str) -> None:
                file.write(line + "\n")
                if _STEP.match(line):
                    _LOG.info("%s: %s: %s", self._engine.name, folder.name, line)
                last[:] = [*last, line][-_TOLD_LINES:]

            _LOG.info("%s: building %s; log: %s", self._engine.name, folder, path)
            try:
                self._engine.build(build, log)
            except SandboxError as error:
                why = self.why_not_built(folder / dockerfile)
                told = [f"the image in {folder} could not be built{why}: {error}"]
                if last:  # nothing where the engine refuses the Dockerfile as a whole
                    told += [*(f"    {line}" for line in last), f"whole log: {path}"]
                raise SandboxError("\n".join(told)) from error
        return self._engine.image(tag)

    def bases_now(self, dockerfile: Path) -> str:
        """The base images of a Dockerfile, each with its id now; without those that are missing.

        After a build that has fetched one, the next one finds every step in the engine's cache.
        """
        bases = bases_of(dockerfile.read_text(encoding="utf-8", errors="replace"))
        found = ((ref, self._engine.find_image(ref)) for ref in sorted({*bases}))
        return " ".join(f"{ref}={image.id}" for ref, image in found if image is not None)

    def why_not_built(self, dockerfile: Path) -> str:
        """Names the base images that are not there, even after the engine has tried to get them."""
        bases = bases_of(dockerfile.read_text(encoding="utf-8", errors="replace"))
        named = ", ".join(repr(ref) for ref in bases if self._engine.find_image(ref) is None)
        return f", because its base image {named} can't be pulled" if named else ""


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
