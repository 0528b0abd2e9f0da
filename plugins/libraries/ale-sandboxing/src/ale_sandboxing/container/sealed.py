"""The shell of supervisors and workers: the image's own, in a copy that nobody inside may read.

The kernel keeps a process that was started from an unreadable file from being traced or looked
into by others of its user. A backend makes one volume per image; its containers see it read-only.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from ale.errors import SandboxError
from ale_sandboxing.container.api import Engine
from ale_sandboxing.container.engine import Plan, Volume
from ale_sandboxing.container.files import Files
from ale_sandboxing.container.tarball import Ownership, Pack
from ale_sandboxing.container.threads import EngineThreads

IMAGE_SHELL = "/bin/sh"
FOLDER = "/.ale"
SEALED = f"{FOLDER}/sh"
_EXECUTE_ONLY = 0o111


def _numbers(files: Files) -> frozenset[str]:
    try:
        lines = files.read_now("/etc/passwd").splitlines()
    except OSError:  # an image may do without names
        return frozenset()
    entries = (line.split(b":") for line in lines)
    return frozenset(entry[2].decode("latin-1") for entry in entries if len(entry) > 2)


class SealedShells:
    """One volume per image.

    Args:
        new_id: makes the volumes' names.
        labels: of the volume with an id.
    """

    def __init__(
        self,
        engine: Engine,
        threads: EngineThreads,
        new_id: Callable[[], str],
        labels: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._engine = engine
        self._threads = threads
        self._new_id = new_id
        self._labels = labels
        self._made: dict[str, Future[Volume]] = {}
        self._users: dict[str, frozenset[str]] = {}

    async def of(self, image: str) -> Volume:
        """The volume with the shell of an image, by its id. Slow once per image.

        Raises:
            SandboxError: the image has none, or is gone.
        """
        making = self._made.get(image)
        if making is None:
            making = self._made[image] = self._threads.heavy(lambda: self._make(image))
        try:
            # Shielded: one sandbox that is no longer wanted must not stop what others wait for.
            return await asyncio.shield(asyncio.wrap_future(making))
        except SandboxError:
            self._made.pop(image, None)
            raise

    def users(self, image: str) -> frozenset[str]:
        """The numbers of the users of an image whose volume is there."""
        return self._users.get(image, frozenset())

    def _make(self, image: str) -> Volume:
        id = self._new_id()
        volume = Volume(name=f"ale-shell-{id}", target=FOLDER, read_only=False)
        labels = self._labels(id)
        self._engine.make_volume(volume.name, labels)
        container = self._engine.create(
            Plan(
                name=f"{volume.name}-maker",
                image=image,
                entrypoint=(IMAGE_SHELL,),
                workdir="/",
                labels=labels,
                shell=volume,
            )
        )
        try:
            files = Files(
                engine=self._engine,
                container=container,
                workdir=FOLDER,
                owner=Ownership(uid=0, gid=0),
                clock=lambda: 0.0,
                threads=self._threads,
            )
            data = files.read_now(IMAGE_SHELL)
            self._users[image] = _numbers(files)
            with Pack(FOLDER, files.owner) as pack:
                pack.add_bytes(SEALED, data, _EXECUTE_ONLY, 0.0)
                self._engine.put(container, FOLDER, pack.pieces)
        except OSError as error:
            message = f"a sandbox needs a POSIX shell in its image: {IMAGE_SHELL}: {error.strerror}"
            raise SandboxError(message) from None
        finally:
            self._engine.remove(container)
        return Volume(name=volume.name, target=FOLDER, read_only=True)

    def remove(self) -> None:
        """Remove all volumes. Blocks.

        Raises:
            SandboxError: one is still in use.
        """
        while self._made:
            _, made = self._made.popitem()
            if made.exception() is None:
                self._engine.remove_volume(made.result().name)
