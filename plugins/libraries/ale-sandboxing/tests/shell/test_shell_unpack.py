"""Archives that come out of a container were written by whoever was inside."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale.sandboxes import DOWNLOAD_BYTES, Allowance
from ale_sandboxing.shell import unpack as unpacking


def entry(
    name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    return made


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> Iterator[bytes]:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for made, data in entries:
            made.size = len(data)
            tar.addfile(made, io.BytesIO(data))
    data = out.getvalue()
    yield from (data[i : i + 700] for i in range(0, len(data), 700))


def unpack(pieces: Iterator[bytes], target: Path) -> None:
    unpacking.unpack(pieces, target, Allowance("work"))


def test_a_folder_comes_out_with_its_modes_and_links(tmp_path: Path) -> None:
    unpack(
        archive(
            (entry("work", kind=tarfile.DIRTYPE, mode=0o755), b""),
            (entry("work/run.sh", mode=0o755), b"true\n"),
            (entry("work/link", kind=tarfile.SYMTYPE, link="run.sh"), b""),
        ),
        tmp_path / "out",
    )
    assert (tmp_path / "out/run.sh").read_bytes() == b"true\n"
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "out/link").readlink() == Path("run.sh")


def test_a_path_that_leads_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="leads out"):
        unpack(archive((entry("work/../../evil"), b"x")), tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("evil"))


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(SandboxError, match="a link to one"):
        unpack(
            archive(
                (entry("work", kind=tarfile.DIRTYPE, mode=0o755), b""),
                (entry("work/pipes", kind=tarfile.SYMTYPE, link=str(outside)), b""),
                (entry("work/pipes/evil"), b"x"),
            ),
            tmp_path / "out",
        )
    assert not list(outside.iterdir())


def test_a_set_user_id_bit_stays_inside(tmp_path: Path) -> None:
    unpack(archive((entry("tool", mode=0o4755), b"x")), tmp_path / "tool")
    assert (tmp_path / "tool").stat().st_mode & 0o7777 == 0o755


def test_a_broken_archive_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="archive is broken"):
        unpack(iter([b"not a tar" * 100]), tmp_path / "out")


def test_a_file_that_is_said_to_be_too_large_is_not_even_begun(tmp_path: Path) -> None:
    header = entry("work")
    header.size = DOWNLOAD_BYTES + 1
    with pytest.raises(OSError, match="more than 2 GiB") as caught:
        unpack(iter([header.tobuf()]), tmp_path / "out")
    assert caught.value.filename == "work"
    assert not (tmp_path / "out").exists()


def test_zeros_become_holes(tmp_path: Path) -> None:
    data = b"\0" * (8 << 20) + b"end" + b"\0" * (4 << 20)
    unpack(archive((entry("work"), data)), tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == data
    assert (tmp_path / "out").stat().st_blocks * 512 < 3 << 20
