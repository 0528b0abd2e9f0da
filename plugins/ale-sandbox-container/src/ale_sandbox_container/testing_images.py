"""Images for tests, made from this machine's own packages: no registry has to answer.

    python -m ale_sandbox_container.testing_images docker podman

``ale-test-busybox:1`` holds a static busybox and nothing else; ``ale-test-debian:1`` a small Debian
with bash, git and python3. Each is made only where it is missing. Needs busybox-static and
debootstrap.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

BUSYBOX = "ale-test-busybox:1"
DEBIAN = "ale-test-debian:1"
_RELEASE = "bookworm"
_PACKAGES = "python3-minimal,git,bash"


def has(engine: Sequence[str], image: str) -> bool:
    """Is it there?"""
    asked = subprocess.run([*engine, "image", "inspect", image], capture_output=True, check=False)
    return asked.returncode == 0


def _import(engine: Sequence[str], image: str, tar: Path) -> None:
    subprocess.run([*engine, "import", str(tar), image], check=True, stdout=subprocess.DEVNULL)


def _busybox(folder: Path) -> Path:
    found = shutil.which("busybox")
    if found is None:
        raise SystemExit("busybox is not installed: apt-get install busybox-static")
    root = folder / "busybox"
    for name in ("bin", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(found, root / "bin" / "busybox")
    listed = subprocess.run([found, "--list"], capture_output=True, text=True, check=True)
    for applet in listed.stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    return _packed(root)


def _debian(folder: Path) -> Path:
    tool = shutil.which("debootstrap") or shutil.which("debootstrap", path="/usr/sbin")
    if tool is None:
        raise SystemExit("debootstrap is not installed: apt-get install debootstrap")
    root = folder / "debian"
    options = ["--variant=minbase", f"--include={_PACKAGES}"]
    subprocess.run([tool, *options, _RELEASE, str(root)], check=True, stdout=sys.stderr)
    shutil.rmtree(root / "var" / "cache" / "apt")
    return _packed(root)


def _packed(root: Path) -> Path:
    tar = root.with_suffix(".tar")
    with tarfile.open(tar, "w") as file:
        file.add(root, ".")
    return tar


def make(engines: Sequence[Sequence[str]]) -> None:
    """Make what is missing in each engine; each argument vector is its command-line client."""
    with tempfile.TemporaryDirectory() as name:
        for image, build in ((BUSYBOX, _busybox), (DEBIAN, _debian)):
            missing = [engine for engine in engines if not has(engine, image)]
            if missing:
                tar = build(Path(name))
                for engine in missing:
                    _import(engine, image, tar)


if __name__ == "__main__":
    make([argument.split() for argument in sys.argv[1:] or ["docker"]])
