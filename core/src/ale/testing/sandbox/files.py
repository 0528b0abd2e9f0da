"""Probes of `read`, `write`, `upload` and `download`.

An invalid path raises an `OSError`: a `SandboxError` would mean that the sandbox is lost, and
break the episode.
"""

import contextlib
import errno
import stat
from pathlib import Path

import pytest

from ale.protocols import Sandbox
from ale.testing.sandbox._guard import time_limited
from ale.testing.sandbox.probes import MIB, ODD_NAMES, case, expect

SECRET = b"the host's own secret"


async def refused(sandbox: Sandbox, path: str) -> None:
    """Check that reading raises an error, or finds the sandbox's own file of that name."""
    try:
        data = await sandbox.read(path)
    except OSError:
        return
    assert data != SECRET, f"{path!r} has reached a file of the host"


def untouched(secret: Path) -> None:
    """Check that the host's file is unchanged and that there is no other file beside it."""
    assert secret.read_bytes() == SECRET
    assert [entry.name for entry in secret.parent.iterdir()] == ["secret"]


@time_limited
@pytest.mark.asyncio
class FileProbes:
    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        """A file on the host that no path given to the sandbox may reach."""
        file = tmp_path / "host" / "secret"
        file.parent.mkdir()
        file.write_bytes(SECRET)
        return file

    async def test_what_is_written_is_read_back(self, box: Sandbox) -> None:
        for name in (*ODD_NAMES, "sub/folder/file"):
            with case(name):
                await box.write(name, b"\x00\xff\r\n")
                assert await box.read(name) == b"\x00\xff\r\n"
                assert await box.read(f"{box.workdir}/{name}") == b"\x00\xff\r\n"

    async def test_twenty_megabytes_stay_what_they_are(self, box: Sandbox) -> None:
        data = bytes(range(256)) * (20 * MIB // 256)
        await box.write("big", data)
        assert await box.read("big") == data
        assert (await box.exec("wc -c < big")).stdout.strip() == str(20 * MIB).encode()

    async def test_a_shorter_write_leaves_nothing_of_the_longer(self, box: Sandbox) -> None:
        await box.write("file", b"long content")
        await box.write("file", b"short")
        assert await box.read("file") == b"short"
        await box.write("file", b"")
        assert await box.read("file") == b""

    async def test_max_bytes_gives_the_beginning(self, box: Sandbox) -> None:
        await box.write("file", b"0123456789")
        assert await box.read("file", max_bytes=4) == b"0123"
        assert await box.read("file", max_bytes=100) == b"0123456789"

    async def test_the_mode_is_set(self, box: Sandbox) -> None:
        await box.write("script", b"#!/bin/sh\necho ran\n", mode=0o755)
        expect(await box.exec("./script"), stdout=b"ran\n")
        await box.write("private", b"", mode=0o600)
        listed = await box.exec("ls -l private")
        assert listed.stdout.startswith(b"-rw-------")

    async def test_missing_files_and_folders_raise_their_errors(self, box: Sandbox) -> None:
        await box.exec("mkdir folder")
        with pytest.raises(FileNotFoundError):
            await box.read("missing")
        with pytest.raises(IsADirectoryError):
            await box.read("folder")
        with pytest.raises(IsADirectoryError):
            await box.write("folder", b"")

    async def test_commands_and_files_see_one_another(self, box: Sandbox) -> None:
        await box.exec("echo from a command > file")
        assert await box.read("file") == b"from a command\n"
        await box.write("other", b"from the host")
        expect(await box.exec("cat other"), stdout=b"from the host")

    async def test_files_in_memory_are_those_that_commands_see(
        self, box: Sandbox, tmp_path: Path
    ) -> None:
        """Or they are refused: no call writes where no command looks."""
        if not box.capabilities.filesystem_isolation:
            return
        there = await box.exec("mkdir /dev/shm/ale-kit && ln -s /dev/shm/ale-kit way")
        if there.exit_code != 0:
            return
        try:
            await box.exec("echo there > /dev/shm/ale-kit/file")
            for number, path in enumerate(("/dev/shm/ale-kit/file", "way/file")):
                with case(path):
                    assert await box.read(path) == b"there\n"
                    assert await box.read(path, max_bytes=2) == b"th"
                    await box.download(path, tmp_path / f"out{number}")
                    assert (tmp_path / f"out{number}").read_bytes() == b"there\n"
            (tmp_path / "source").write_bytes(b"up")
            for path in ("/dev/shm/ale-kit/a/b", "way/new"):
                with case(path):
                    await box.write(path, b"\x00\xff", mode=0o750)
                    expect(await box.exec(f"cat {path}"), stdout=b"\x00\xff")
                    assert (await box.exec(f"ls -l {path}")).stdout.startswith(b"-rwxr-x---")
                    await box.upload(tmp_path / "source", path)
                    expect(await box.exec(f"cat {path}"), stdout=b"up")
            with pytest.raises(FileNotFoundError):
                await box.read("/dev/shm/ale-kit/missing")
            with pytest.raises(IsADirectoryError):
                await box.write("/dev/shm/ale-kit", b"")
        finally:
            await box.exec("rm -r /dev/shm/ale-kit")

    async def test_no_path_reaches_a_file_of_the_host(self, box: Sandbox, secret: Path) -> None:
        await box.exec(f"ln -s {secret} link; ln -s {secret.parent} folder; ln -s / root")
        up = "../" * 30
        for path in (
            str(secret),
            up + str(secret).lstrip("/"),
            "link",
            "folder/secret",
            "root" + str(secret),
            f"{box.workdir}/link",
        ):
            await refused(box, path)

    async def test_no_write_reaches_a_file_of_the_host(self, box: Sandbox, secret: Path) -> None:
        await box.exec(f"ln -s {secret} link; ln -s {secret.parent} folder")
        for path in ("link", "folder/secret", "folder/new", str(secret)):
            try:
                await box.write(path, b"overwritten")
            except OSError:
                continue
        untouched(secret)

    async def test_a_link_inside_is_followed(self, box: Sandbox) -> None:
        await box.exec("mkdir sub; echo inside > sub/file; ln -s sub/file link; ln -s sub alias")
        assert await box.read("link") == b"inside\n"
        assert await box.read("alias/file") == b"inside\n"

    async def test_a_folder_goes_in_with_modes_and_links(
        self, box: Sandbox, tmp_path: Path
    ) -> None:
        source = tmp_path / "source"
        (source / "sub folder").mkdir(parents=True)
        (source / "run").write_text("#!/bin/sh\necho $0 ran\n")
        (source / "run").chmod(0o755)
        (source / "sub folder" / "dätä").write_bytes(b"\xff\x00")
        (source / "link").symlink_to("sub folder/dätä")
        await box.upload(source, "in/target")
        expect(await box.exec("in/target/run"), stdout=b"in/target/run ran\n")
        assert await box.read("in/target/sub folder/dätä") == b"\xff\x00"
        linked = await box.exec("test -L in/target/link && cat in/target/link")
        expect(linked, stdout=b"\xff\x00")

    async def test_a_file_goes_in_under_its_new_name(self, box: Sandbox, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.write_bytes(b"data")
        source.chmod(0o750)
        await box.upload(source, "a/b c")
        assert await box.read("a/b c") == b"data"
        assert (await box.exec("ls -l 'a/b c'")).stdout.startswith(b"-rwxr-x---")

    async def test_an_upload_merges_into_what_is_there(self, box: Sandbox, tmp_path: Path) -> None:
        await box.exec("mkdir -p t/sub; echo old > t/sub/old; echo old > t/both")
        (tmp_path / "s" / "sub").mkdir(parents=True)
        (tmp_path / "s" / "sub" / "new").write_text("new\n")
        (tmp_path / "s" / "both").write_text("new\n")
        await box.upload(tmp_path / "s", "t")
        result = await box.exec("cat t/sub/old t/sub/new t/both")
        expect(result, stdout=b"old\nnew\nnew\n")

    async def test_an_upload_may_go_to_the_workspace_itself(
        self, box: Sandbox, tmp_path: Path
    ) -> None:
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "new").write_text("new\n")
        for target in (".", box.workdir):
            await box.upload(tmp_path / "s", target)
            assert await box.read("new") == b"new\n"
            await box.exec("rm new; echo old > old")
        assert await box.read("old") == b"old\n"

    async def test_no_upload_reaches_a_file_of_the_host(
        self, box: Sandbox, secret: Path, tmp_path: Path
    ) -> None:
        await box.exec(f"mkdir t; ln -s {secret} t/secret; ln -s {secret.parent} t/host")
        source = tmp_path / "source"
        (source / "host").mkdir(parents=True)
        (source / "host" / "secret").write_text("overwritten")
        (source / "secret").write_text("overwritten")
        with contextlib.suppress(OSError):
            await box.upload(source, "t")
        untouched(secret)

    async def test_a_folder_comes_out_with_modes_and_links(
        self, box: Sandbox, tmp_path: Path
    ) -> None:
        await box.exec(
            "mkdir -p 'out/sub folder'; printf '\\377\\000' > 'out/sub folder/data';"
            "echo x > out/run; chmod 755 out/run; ln -s run out/link; mkfifo out/pipe"
        )
        await box.download("out", tmp_path / "new" / "target")
        target = tmp_path / "new" / "target"
        assert (target / "sub folder" / "data").read_bytes() == b"\xff\x00"
        assert stat.S_IMODE((target / "run").stat().st_mode) == 0o755
        assert (target / "link").is_symlink()
        assert (target / "link").read_text() == "x\n"

    async def test_a_file_comes_out(self, box: Sandbox, tmp_path: Path) -> None:
        await box.write("file", b"data", mode=0o640)
        await box.download("file", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"data"
        assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o640
        with pytest.raises(FileNotFoundError):
            await box.download("missing", tmp_path / "other")

    async def test_a_download_does_not_follow_a_link_out(
        self, box: Sandbox, secret: Path, tmp_path: Path
    ) -> None:
        await box.exec(f"mkdir out; ln -s {secret} out/file; ln -s {secret.parent} out/folder")
        await box.exec(f"ln -s {secret} direct")
        await box.download("out", tmp_path / "target")
        for name in ("file", "folder"):
            entry = tmp_path / "target" / name
            assert entry.is_symlink() or not entry.exists(), f"{name} was followed"
        try:
            await box.download("direct", tmp_path / "direct")
        except OSError:
            return
        copied = tmp_path / "direct"
        assert copied.is_symlink() or copied.read_bytes() != SECRET

    async def test_reading_a_named_pipe_does_not_hang(self, box: Sandbox) -> None:
        await box.exec("mkfifo pipe")
        with pytest.raises(OSError):  # noqa: PT011  which one is up to the backend
            await box.read("pipe")

    async def test_holes_of_a_file_are_not_filled_on_the_host(
        self, box: Sandbox, tmp_path: Path
    ) -> None:
        await box.exec("mkdir out; dd if=/dev/zero of=out/hole bs=1 count=1 seek=8388607")
        await box.download("out", tmp_path / "target")
        copied = (tmp_path / "target" / "hole").stat()
        assert copied.st_size == 8 * MIB
        assert copied.st_blocks * 512 < 2 * MIB, f"{copied.st_blocks * 512} bytes on disk"

    async def test_what_is_too_large_to_come_out_is_refused(
        self, box: Sandbox, tmp_path: Path
    ) -> None:
        """By its size, which costs nothing inside: before it fills this machine."""
        await box.exec("mkdir out; dd if=/dev/zero of=out/hole bs=1 count=1 seek=3221225472")
        with pytest.raises(OSError, match="more than") as caught:
            await box.download("out", tmp_path / "target")
        assert caught.value.errno == errno.EFBIG
        with pytest.raises(OSError, match="more than") as caught:
            await box.read("out/hole")
        assert caught.value.errno == errno.EFBIG
        assert await box.read("out/hole", max_bytes=4) == b"\0\0\0\0"
        expect(await box.exec("echo alive"), stdout=b"alive\n")
