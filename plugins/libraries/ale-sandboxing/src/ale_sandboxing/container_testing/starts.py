"""Images, builds, limits and everything else that a container starts with."""

import asyncio
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ale.errors import InputError, UnsupportedError
from ale.types import ImageInfo, SandboxSpec
from ale_sandboxing.container.backend import ContainerBackend
from ale_sandboxing.container.context import digest_of
from ale_sandboxing.container.engine import Build
from ale_sandboxing.container_testing.tools import (
    PATIENCE_S,
    Make,
    folder_of,
    opened,
    out,
    refusal,
)

_DOCKERFILE = """\
FROM {image}
LABEL token={token}
WORKDIR /app
ENV GREETING="hello there"
COPY data/ /app/data/
RUN echo built >/app/made
"""

# Every mount point and every folder of the image in which a file can be made.
_WRITABLE = """\
(cut -d' ' -f5 /proc/self/mountinfo; find / -xdev -type d; echo /tmp) 2>/dev/null | sort -u |
while read -r folder; do
  [ -d "$folder" ] && (: >"$folder/kit-probe") 2>/dev/null && echo "$folder"
done; true
"""


class StartProbes:
    """Needs one more fixture, ``image``: the name of the image that `make` starts."""

    async def test_a_missing_image_is_named_quickly(self, make: Make) -> None:
        name = "registry.invalid/no/such-image:1"
        async with asyncio.timeout(PATIENCE_S):
            assert name in await refusal(make(pull_silence_s=5.0), image=name)

    async def test_without_pulls_the_command_that_would_help_is_named(self, make: Make) -> None:
        backend = make(pull="never")
        said = await refusal(backend, image="no-such-image:1")
        assert f"{backend.name} pull no-such-image:1" in said

    async def test_a_registry_that_never_answers_times_out(self, make: Make) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            name = f"127.0.0.1:{listener.getsockname()[1]}/silent:1"
            async with asyncio.timeout(PATIENCE_S):
                assert name in await refusal(make(pull_silence_s=1.0), image=name)

    async def test_a_dockerfile_is_built_once_for_the_same_content(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        context = _context(tmp_path / "task", image)
        backend = make()
        tags = [f"ale-build:{digest_of(context)}"]
        try:
            async with backend.open(SandboxSpec(build=str(context))) as sandbox:
                assert sandbox.workdir == "/app"
                said = await out(sandbox, "pwd; cat made data/file; echo $GREETING")
                assert said == "/app\nbuilt\ncontent\nhello there"
            (log,) = (tmp_path / "run" / "builds").glob("build-*.log")
            assert "RUN echo built" in log.read_text()
            log.unlink()
            async with opened(make(), build=str(context)):
                assert list(log.parent.iterdir()) == [], "it was built again"
            (context / "data" / "file").write_text("other\n")
            tags.append(f"ale-build:{digest_of(context)}")
            async with opened(make(), build=str(context)) as sandbox:
                assert await out(sandbox, "cat data/file") == "other"
        finally:
            await backend.aclose()
            for tag in tags:
                backend._engine.remove_image(tag)

    async def test_another_base_image_of_the_same_name_is_built_upon(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        """A tag means what it means now, not what it meant when the image was built."""
        engine, base, folders = make()._engine, "ale-test-base:1", []
        for number in (1, 2):
            text = f"FROM {image}\nRUN echo {number} > /which\n"
            (tmp_path / str(number)).mkdir()
            folders.append(folder_of(tmp_path / str(number), text))
        task = folder_of(tmp_path, f"FROM {base}\nRUN cat /which > /seen\n")
        seen = []
        try:
            for folder in folders:
                build = Build(folder=Path(folder), dockerfile="Dockerfile", tag=base, labels={})
                engine.build(build, lambda line: None)
                async with opened(make(), build=task) as sandbox:
                    seen.append(await out(sandbox, "cat /seen"))
        finally:
            engine.remove_image(f"ale-build:{digest_of(Path(task))}")
            engine.remove_image(base)
        assert seen == ["1", "2"]

    async def test_a_build_is_made_again_where_it_is_to_be(
        self, make: Make, image: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without the engine's cache, and once for each backend; its steps are told."""
        caplog.set_level("INFO")
        command = "RUN head -c 8 /dev/urandom | od -An -tx1 > /when"
        task = folder_of(tmp_path, f"FROM {image}\n{command}\n")
        seen = []
        backend = make(build="always")
        try:
            for each in (make(), make(), backend, backend):
                async with each.open(SandboxSpec(build=task)) as sandbox:
                    seen.append(await out(sandbox, "cat /when"))
            listed = await backend.images()
            assert f"ale-build:{digest_of(Path(task))}" in str([one.names for one in listed])
            assert all(one.size_bytes > 0 for one in listed if one.kind == "build")
            # That of the build before has lost its name to the second one.
            assert all("<none>" not in name for one in listed for name in one.names)
            _layers_are_told(listed, f"ale-build:{digest_of(Path(task))}")
        finally:
            await backend.aclose()
            backend._engine.remove_image(f"ale-build:{digest_of(Path(task))}")
        assert seen[0] == seen[1] != seen[2] == seen[3]
        assert "/dev/urandom" in caplog.text

    async def test_equal_folders_opened_in_parallel_are_built_once(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        first = _context(tmp_path / "first", image)
        second = Path(shutil.copytree(first, tmp_path / "second"))
        backend = make()
        engine, folders = backend._engine, list[Path]()
        really = engine.build

        def counted(build: Build, log: Callable[[str], object]) -> None:
            folders.append(build.folder)
            really(build, log)

        engine.build = counted  # type: ignore[method-assign]
        try:
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                for folder in (first, second, first):
                    group.create_task(_made(backend, folder))
            assert len(folders) == 1, folders
        finally:
            await backend.aclose()
            engine.remove_image(f"ale-build:{digest_of(first)}")

    async def test_the_health_check_of_an_image_is_in_a_variable(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        check = "HEALTHCHECK --interval=2s --timeout=1s --retries=4 CMD test -e '/a b'"
        folder = folder_of(tmp_path, f"FROM {image}\n{check}\n")
        async with opened(make(), build=folder) as sandbox:
            said = await out(sandbox, 'eval "set -- $ALE_IMAGE_HEALTHCHECK"; printf "%s|" "$@"')
            assert said == "9|1|/bin/sh|-c|test -e '/a b'|"
            fork = await sandbox.fork()
            assert await out(fork, "echo $ALE_IMAGE_HEALTHCHECK") != ""
            await fork.close()

    async def test_a_build_that_fails_says_why_and_where_its_log_is(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        folder = folder_of(tmp_path, f"FROM {image}\nRUN echo so far; exit 3\n")
        said = await refusal(make(), build=folder)
        (log,) = (tmp_path / "run" / "builds").glob("*.log")
        for part in (folder, "so far", "3", str(log)):
            assert part in said

    async def test_a_dockerfile_that_can_not_be_read_is_not_an_engine_that_does_not_answer(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        said = await refusal(make(), build=folder_of(tmp_path, f"FROM {image}\nRUNN true\n"))
        assert "nknown instruction" in said
        assert "answer" not in said
        _, named, log = said.partition("whole log: ")
        assert not named or Path(log).read_text(), "an empty log tells nothing"

    async def test_a_base_image_that_can_not_be_pulled_is_named(
        self, make: Make, tmp_path: Path
    ) -> None:
        base = "registry.invalid/no/such-base:1"
        folder = folder_of(tmp_path, f"FROM {base} AS first\nFROM first\nRUN true\n")
        assert f"its base image '{base}' can't be pulled" in await refusal(make(), build=folder)

    async def test_a_workspace_is_relative_to_the_images_own(
        self, make: Make, image: str, tmp_path: Path
    ) -> None:
        folder = folder_of(tmp_path, f"FROM {image}\nWORKDIR /app\n")
        backend = make(workdir="/elsewhere")

        async def starts_in(workdir: str, expected: str) -> None:
            spec = SandboxSpec(build=folder, workdir=workdir)
            async with backend.open(spec) as sandbox:
                assert (sandbox.workdir, await out(sandbox, "pwd")) == (expected, expected)
                fork = await sandbox.fork()
                assert await out(fork, "pwd") == expected
                await fork.close()

        await asyncio.gather(
            starts_in(".", "/app"), starts_in("deep/er", "/app/deep/er"), starts_in("/w", "/w")
        )
        await backend.aclose()

    async def test_the_workspace_may_be_the_root(self, make: Make, image: str) -> None:
        async with opened(make(), image=image, workdir=".") as sandbox:
            await sandbox.write("made/here", b"text")
            assert await out(sandbox, "pwd; cat made/here /made/here") == "/\ntexttext"

    async def test_limits_of_the_task_override_the_options(self, make: Make) -> None:
        async with opened(make(memory_mb=512), memory_mb=128, cpus=0.5) as sandbox:
            files = (
                "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            )
            said = await sandbox.exec(f"cat {' '.join(files)} 2>/dev/null")
            assert said.stdout.strip() == str(128 << 20).encode()
            quota = await sandbox.exec(
                "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null"
            )
            assert quota.stdout.split()[0] == b"50000"

    async def test_out_of_memory_ends_the_command_and_not_the_sandbox(self, make: Make) -> None:
        async with opened(make(memory_mb=64)) as sandbox:
            session = await sandbox.session()
            greedy = "dd if=/dev/zero of=/dev/null bs=209715200 count=1"
            assert (await sandbox.exec(greedy, timeout_s=PATIENCE_S)).exit_code == 137
            assert (await session.run("echo alive", timeout_s=PATIENCE_S)).stdout == b"alive\n"

    async def test_an_allowed_path_is_read_only(self, make: Make, tmp_path: Path) -> None:
        shared = tmp_path / "shared"
        shared.mkdir()
        (shared / "file").write_text("of the host\n")
        async with opened(make(allowlist_paths=(shared,))) as sandbox:
            assert await out(sandbox, f"cat {shared}/file") == "of the host"
            for attempt in (f"echo x >{shared}/file", f"rm {shared}/file", f"touch {shared}/new"):
                assert (await sandbox.exec(attempt)).exit_code != 0
        assert [entry.name for entry in shared.iterdir()] == ["file"]

    async def test_paths_with_the_hosts_sockets_are_refused(
        self, make: Make, tmp_path: Path
    ) -> None:
        (tmp_path / "sub").mkdir()
        os.mkfifo(tmp_path / "sub" / "pipe")
        for path in ("/", "/run", "/var/run", "/var", "/proc/1", "/dev/null", str(tmp_path)):
            with pytest.raises(InputError, match=f"{path} can't be shared") as caught:
                make(allowlist_paths=(Path(path),))
            assert caught.value.problems[0].path == "sandbox.allowlist_paths"

    async def test_with_a_read_only_root_the_workspace_is_writable(self, make: Make) -> None:
        backend = make(read_only=True)
        assert (backend.capabilities.fork, backend.capabilities.snapshot) == ("replay", False)
        async with opened(backend) as sandbox:
            # Root owns the engine's own /dev, in memory; see the note.
            assert await out(sandbox, _WRITABLE) == "/dev\n/tmp\n/workspace"
            assert any(note.startswith("read_only:") for note in backend.capabilities.notes)
            assert await out(sandbox, "echo a >file; echo b >/tmp/file; cat file") == "a"
            await sandbox.write("sub/other", b"from the host")
            assert await sandbox.read("sub/other") == b"from the host"
            assert (sandbox.workdir, await out(sandbox, "pwd")) == ("/workspace", "/workspace")
            for refused in (sandbox.fork, sandbox.snapshot):
                with pytest.raises(UnsupportedError):
                    await refused()

    async def test_with_a_read_only_root_another_user_can_write_the_workspace(
        self, make: Make
    ) -> None:
        async with opened(make(read_only=True, user="1234")) as sandbox:
            assert await out(sandbox, _WRITABLE) == "/tmp\n/workspace"
            assert await out(sandbox, "echo a >file; cat file; id -u") == "a\n1234"
            await sandbox.write("sub/other", b"from the host")
            assert await out(sandbox, "cat sub/other; stat -c %u sub") == "from the host1234"

    async def test_tmp_may_be_in_memory_with_a_size(self, make: Make) -> None:
        async with opened(make(tmp_mb=4)) as sandbox:
            assert "tmpfs /tmp tmpfs" in await out(sandbox, "cat /proc/mounts")
            full = await sandbox.exec("dd if=/dev/zero of=/tmp/big bs=1048576 count=8")
            assert full.exit_code != 0

    async def test_the_added_capabilities_are_the_only_ones(self, make: Make) -> None:
        async with opened(make(capabilities=("CHOWN", "SETUID"))) as sandbox:
            said = await out(sandbox, "grep CapEff /proc/self/status")
            # CHOWN 0, KILL 5 (which SETUID brings along), SETUID 7.
            assert int(said.split()[1], 16) == 1 << 0 | 1 << 5 | 1 << 7
            await sandbox.exec("touch file; chown 1234 file")
            assert await out(sandbox, "stat -c %u file") == "1234"

    async def test_dockers_default_capabilities_have_one_name(self, make: Make) -> None:
        docker = 0x00000000A80425FB
        async with opened(make(capabilities=("DOCKER_DEFAULT",))) as sandbox:
            said = await out(sandbox, "grep CapEff /proc/self/status")
            assert int(said.split()[1], 16) == docker
            # One that Podman's defaults lack.
            assert await out(sandbox, "mknod null c 1 3; echo hidden >null; stat -c %F null")

    async def test_the_network_is_on_only_if_requested_and_not_forbidden(self, make: Make) -> None:
        async def connected(option: bool | None, requested: bool | None, on: bool) -> None:
            async with opened(make(network=option), network=requested) as sandbox:
                links = (await out(sandbox, "ls /sys/class/net")).split()
                assert (len(links) > 1) is on, (option, requested, links)

        await asyncio.gather(
            connected(None, None, on=False),
            connected(None, True, on=True),
            connected(True, None, on=True),
            connected(True, False, on=False),
            connected(False, True, on=False),
        )


async def _made(backend: ContainerBackend, folder: Path) -> None:
    async with backend.open(SandboxSpec(build=str(folder))) as sandbox:
        assert await out(sandbox, "cat made data/file") == "built\ncontent"


def _layers_are_told(listed: Sequence[ImageInfo], name: str) -> None:
    """An image's layers are as large as it is, and the build before has some of them, too."""
    (named,) = [one for one in listed if any(each.endswith(name) for each in one.names)]
    assert sum(named.layers.values()) == pytest.approx(named.size_bytes, rel=0.05)
    others = [one for one in listed if one.id != named.id and one.layers.keys() & named.layers]
    assert any(named.layers.keys() - one.layers.keys() for one in others)


def _context(folder: Path, image: str) -> Path:
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "file").write_text("content\n")
    (folder / "Dockerfile").write_text(_DOCKERFILE.format(image=image, token=secrets.token_hex(8)))
    return folder
