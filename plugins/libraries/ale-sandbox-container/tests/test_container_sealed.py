"""One copy of an image's shell, linked into the folders of many sandboxes."""

import contextlib
import io
import stat
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ale_sandbox_container.pipes import PipeFolder
from ale_sandbox_container.sealed import SealedShells


class OneFile:
    """An engine whose containers have a shell."""

    def stat(self, container: str, path: str) -> Any:
        return SimpleNamespace(mode=stat.S_IFREG | 0o755, link="")

    @contextlib.contextmanager
    def get(self, container: str, path: str) -> Iterator[Iterator[bytes]]:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            entry = tarfile.TarInfo("sh")
            entry.size = 4
            tar.addfile(entry, io.BytesIO(b"dash"))
        yield iter([data.getvalue()])


def test_the_first_sandboxes_of_an_image_may_open_at_once(tmp_path: Path) -> None:
    shells = SealedShells(tmp_path / "shells")
    faults: list[BaseException] = []
    folders = [PipeFolder(tmp_path / f"pipes-{number}") for number in range(6)]
    for pipes in folders:
        pipes.make()

    def put(image: str, pipes: PipeFolder) -> None:
        try:
            shells.put(cast(Any, OneFile()), "box", image, pipes)
        except BaseException as fault:
            faults.append(fault)

    for round in range(150):
        threads = [threading.Thread(target=put, args=(f"sha256:{round}", d)) for d in folders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        for pipes in folders:
            shell = pipes.folder / "sh"
            assert shell.read_bytes() == b"dash"
            shell.unlink()
    assert len(list((tmp_path / "shells").iterdir())) == 150, "no draft is left"
