"""Images for tests, made from this machine's own packages: no registry has to answer.

    python -m ale_sandboxing.container_testing.images docker podman

``ale-test-busybox:2`` holds a static busybox and nothing else; ``ale-test-debian:2`` a small Debian
with bash, git and python3. Each is made only where an engine lacks it, once for all engines: the
file systems are kept in ``XDG_CACHE_HOME/ale-test-images``. Needs busybox-static and debootstrap.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ale.files import replacing

BUSYBOX = "ale-test-busybox:2"
DEBIAN = "ale-test-debian:2"
_RELEASE = "bookworm"
_PACKAGES = "python3,git,bash"


class CannotMakeError(Exception):
    """A tool is missing, or failed."""


def provide(engine: Sequence[str], image: str) -> None:
    """Make sure that an engine has an image.

    Args:
        engine: argument vector of its command-line client.

    Raises:
        CannotMakeError: why it can't be made here.
    """
    if _has(engine, image):
        return
    with _locked() as folder:
        tar = folder / f"{image.replace(':', '-')}.tar"
        if not tar.exists():
            _make(image, tar)
        if not _has(engine, image):
            _run([*engine, "import", str(tar), image])


def _has(engine: Sequence[str], image: str) -> bool:
    asked = subprocess.run([*engine, "image", "inspect", image], capture_output=True, check=False)
    return asked.returncode == 0


@contextlib.contextmanager
def _locked() -> Iterator[Path]:
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(cache) if cache else Path.home() / ".cache") / "ale-test-images"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise CannotMakeError(f"{' '.join(argv)} ended with {done.returncode}: {' '.join(said)}")


def _make(image: str, tar: Path) -> None:
    with replacing(tar) as draft, tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        (_busybox if image == BUSYBOX else _debian)(root)
        with tarfile.open(draft, "w") as file:
            file.add(root, ".")


def _tool(name: str, package: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        raise CannotMakeError(f"{name} is not installed: apt-get install {package}")
    return found


def _busybox(root: Path) -> None:
    found = _tool("busybox", "busybox-static")
    for name in ("bin", "etc", "root", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    shutil.copy(found, root / "bin" / "busybox")
    listed = subprocess.run([found, "--list"], capture_output=True, text=True, check=True)
    for applet in listed.stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


def _debian(root: Path) -> None:
    tool = _tool("debootstrap", "debootstrap")
    _run([tool, "--variant=minbase", f"--include={_PACKAGES}", _RELEASE, str(root)])
    shutil.rmtree(root / "var" / "cache" / "apt")


if __name__ == "__main__":
    try:
        for client in sys.argv[1:] or ["docker"]:
            for wanted in (BUSYBOX, DEBIAN):
                provide(client.split(), wanted)
    except CannotMakeError as error:
        sys.exit(str(error))
