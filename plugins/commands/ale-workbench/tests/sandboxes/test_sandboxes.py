"""`ale sandbox`, with usable and unusable backends."""

from collections.abc import Sequence

import pytest
from click.testing import CliRunner, Result

from ale.errors import InputError, SandboxError
from ale.plugin import Component, Probe, hookimpl
from ale.runs import Registry
from ale.testing.fakes import FolderBackend
from ale.types import ImageInfo, SandboxInfo, replace
from ale_workbench.sandboxes.command import sandbox


class BackendWithOrphans(FolderBackend):
    """A backend with a sandbox of a dead run."""

    def __init__(self, left: list[SandboxInfo]) -> None:
        self._left = left
        self.closed = 0

    async def list(self) -> Sequence[SandboxInfo]:
        return self._left

    async def prune(self) -> Sequence[SandboxInfo]:
        pruned, self._left = self._left, []
        return pruned

    async def aclose(self) -> None:
        self.closed += 1


class BackendWithImages(BackendWithOrphans):
    """One that has built images of tasks."""

    made = (
        ImageInfo(
            id="sha256:0123456789abcdef",
            backend="folder",
            names=("ale-build:1",),
            kind="build",
            size_bytes=3 << 20,
            age_s=60,
        ),
        ImageInfo(id="9", backend="folder", kind="snapshot", size_bytes=5 << 20),
    )

    async def images(self) -> Sequence[ImageInfo]:
        return self.made

    async def remove_builds(self) -> Sequence[ImageInfo]:
        return self.made[:1]


class Backends:
    """Registers two backends, one of them unusable."""

    def __init__(self) -> None:
        info = SandboxInfo(
            id="abc", backend="folder", tags={"run": "r1"}, owner_alive=False, age_s=90
        )
        self.backend = BackendWithOrphans([info])

    @hookimpl
    def ale_sandboxes(self) -> list[Component[None, FolderBackend]]:
        probe = Probe(usable=False, reason="there is no engine")
        return [
            Component("folder", None, lambda o, c: self.backend, summary="A folder."),
            Component("absent", None, lambda o, c: 1 / 0, summary="None.", probe=lambda: probe),  # type: ignore[arg-type, return-value]
        ]


@pytest.fixture
def backends() -> Backends:
    return Backends()


@pytest.fixture
def registry(backends: Backends) -> Registry:
    made = Registry()
    made.add(backends, "ale-folders")
    return made


def ale(registry: Registry, *arguments: str) -> Result:
    return CliRunner().invoke(sandbox, arguments, obj=registry)


def test_a_backend_that_fails_keeps_no_other_from_pruning(
    registry: Registry, backends: Backends
) -> None:
    class Failing(FolderBackend):
        async def prune(self) -> Sequence[SandboxInfo]:
            raise SandboxError("/somewhere/kept could not be removed")

    class More:
        @hookimpl
        def ale_sandboxes(self) -> list[Component[None, FolderBackend]]:
            made = Component("a-failing", None, lambda o, c: Failing(), summary="Fails.")
            return [made]  # type: ignore[list-item]

    registry.add(More(), "ale-failing")
    result = ale(registry, "prune")
    assert "abc" in result.stdout
    assert result.exit_code == 1
    assert "/somewhere/kept" in str(result.exception)


def test_sandboxes_of_dead_runs_are_listed_and_removed(
    registry: Registry, backends: Backends
) -> None:
    listed = ale(registry, "list")
    assert "folder  abc  dead   1 min 30 s  run=r1" in listed.stdout
    assert listed.stderr == "absent: not usable here: there is no engine\n"
    pruned = ale(registry, "prune", "--type", "folder")
    assert "abc" in pruned.stdout
    assert pruned.stderr == ""
    assert ale(registry, "list").stdout == "no sandboxes\n"
    assert ale(registry, "prune").stdout == "nothing to remove\n"
    assert backends.backend.closed == 4


def test_what_prune_would_remove_is_listed_and_stays(
    registry: Registry, backends: Backends
) -> None:
    kept = SandboxInfo(id="k", backend="folder", tags={}, owner_alive=False, age_s=9, kept=True)
    alive = SandboxInfo(id="a", backend="folder", tags={}, owner_alive=True, age_s=9)
    backends.backend._left += [kept, alive]
    shown = ale(registry, "prune", "--type", "folder", "--dry-run").stdout.splitlines()[1:]
    assert [line.split()[:3] for line in shown] == [["folder", "abc", "dead"]]
    listed = ale(registry, "list", "--type", "folder").stdout.splitlines()[1:]
    assert [line.split()[1:3] for line in listed] == [
        ["abc", "dead"],
        ["k", "kept"],
        ["a", "alive"],
    ]


def test_built_images_that_prune_would_remove_are_listed_and_stay(
    registry: Registry, backends: Backends
) -> None:
    backends.backend = BackendWithImages([])
    shown = ale(registry, "prune", "--type", "folder", "--builds", "--dry-run").stdout
    assert "ale-build:1" in shown
    assert "snapshot" not in shown
    assert shown.startswith("no sandboxes to remove\n")


def test_an_unknown_type_is_refused(registry: Registry) -> None:
    done = ale(registry, "list", "--type", "foldr")
    assert isinstance(done.exception, InputError)
    assert "--type: no sandbox 'foldr'; installed: absent, folder" in str(done.exception)
    assert "did you mean 'folder'?" in str(done.exception)


def test_a_probe_that_fails_hides_no_other_sandbox(registry: Registry) -> None:
    class Failing:
        @hookimpl
        def ale_sandboxes(self) -> list[Component[None, FolderBackend]]:
            return [
                Component("failing", None, lambda o, c: 1 / 0, summary="None.", probe=lambda: 1 / 0)  # type: ignore[arg-type, return-value]
            ]

    registry.add(Failing(), "ale-failing")
    listed = ale(registry, "list")
    assert "folder  abc" in listed.stdout
    assert "failing: not usable here: the probe of ale-failing/failing failed" in listed.stderr


def test_images_are_listed_with_the_disk_that_they_use(
    registry: Registry, backends: Backends
) -> None:
    assert ale(registry, "images").stdout == "no images\n"
    backends.backend = BackendWithImages([])
    lines = ale(registry, "images").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["folder", "9", "snapshot"],
        ["folder", "0123456789ab", "build"],
    ]
    assert "3.0 MiB" in lines[2]
    assert "2 images, 8.0 MiB together; layers that images share count in each" in lines[3]


def test_a_layer_that_images_share_counts_once_on_disk(
    registry: Registry, backends: Backends
) -> None:
    backends.backend = BackendWithImages([])
    small, large = BackendWithImages.made
    backends.backend.made = (
        replace(small, layers={"base": 2 << 20, "own": 1 << 20}),
        replace(large, layers={"base": 2 << 20, "more": 3 << 20}),
    )
    assert "2 images, 6.0 MiB on disk" in ale(registry, "images").stdout


def test_built_images_are_removed_if_that_is_wanted(registry: Registry, backends: Backends) -> None:
    backends.backend = BackendWithImages([])
    assert "ale-build" not in ale(registry, "prune").output
    assert "ale-build:1" in ale(registry, "prune", "--builds").output
