"""Processes of containers, seen from here, by what the kernel tells of them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ale_sandboxing.container.here import is_here

CONTAINER = "0123456789abcdef" * 4


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[int]:
    """A process without a control group of its own, in which a folder named so is mounted."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    folder = tmp_path / CONTAINER
    folder.mkdir()
    script = 'mount --bind "$1" "$1" && echo ready && exec sleep 600'
    argv = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        str(folder),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            if said != "ready\n":
                pytest.skip("this machine lets no user make namespaces")
            yield process.pid
        finally:
            process.kill()


def test_a_process_is_here_if_folders_of_its_container_are_mounted_in_it(mounted: int) -> None:
    """Where control groups are of version 1, rootless engines make none."""
    assert is_here(mounted, CONTAINER)
    assert not is_here(mounted, CONTAINER[::-1])


def test_a_number_of_another_machine_is_not_here() -> None:
    assert not is_here(os.getpid(), CONTAINER)
    assert not is_here(0, CONTAINER)
