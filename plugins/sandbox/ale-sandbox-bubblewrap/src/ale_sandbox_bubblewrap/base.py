"""The lowest layer of every sandbox: the visible part of the host, and folders around it.

Made by the fork server in a file system in memory that ends with it. Standard library only.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""At the top of the host: folders of programs, or links into ``usr``."""

# Only what programs need of /etc. Nothing that may hold passwords.
ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "redhat-release",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
ETC_PATTERNS = ("java-*", "python3*")

USER, UID = "agent", 1000
HOME, WORKSPACE = f"/home/{USER}", "/workspace"
CONTROL, PROGRAMS = "/dev/ale/io", "/dev/ale/bin"
"""Where the host's pipes, and shells that nothing inside can change, are bound read-only.

Below /dev, which is a read-only mount of its own: no parent folder can be moved.
"""
PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where the host has them."""
SHELL, BASH, SLEEP = f"{PROGRAMS}/sh", f"{PROGRAMS}/bash", f"{PROGRAMS}/sleep"
IGNORE_CHILDREN = "trap '' CHLD"
"""bash hands this on to what it becomes; dash 0.5.12 does not."""

_FOLDERS = {
    "dev": 0o755,
    "etc": 0o755,
    HOME[1:]: 0o755,
    "media": 0o755,
    "mnt": 0o755,
    "opt": 0o755,
    "proc": 0o755,
    "root": 0o755,
    "run": 0o755,
    "srv": 0o755,
    "tmp": 0o1777,
    "usr": 0o755,
    "var/cache": 0o755,
    "var/lib": 0o755,
    "var/log": 0o755,
    "var/tmp": 0o1777,
    WORKSPACE[1:]: 0o755,
}
_FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\n{USER}:x:{UID}:{UID}::{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": f"root:x:0:\n{USER}:x:{UID}:\nnogroup:x:65534:\n",
    "etc/hostname": "sandbox\n",
    "etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/resolv.conf": "",
}
_DEEPEST = 2


def system_folders() -> list[str]:
    """Those of the host that are folders of their own: ``usr``, and on some systems more."""
    return [
        name for name in SYSTEM if Path("/", name).is_dir() and not Path("/", name).is_symlink()
    ]


def make(folder: Path) -> None:
    """Make the root layer in an empty folder."""
    for name, mode in _FOLDERS.items():
        made = folder / name
        made.mkdir(parents=True, exist_ok=True)
        made.chmod(mode)
    for name in SYSTEM:
        _copy(Path("/", name), folder / name, depth=0)
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    patterns = [path.name for pattern in ETC_PATTERNS for path in Path("/etc").glob(pattern)]
    for name in (*ETC, *patterns):
        target = folder / "etc" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(Path("/etc", name), target)


def _copy(source: Path, target: Path, depth: int = 10) -> None:
    """Copy what everybody may read; links as links; folders down to `depth`."""
    if source.is_symlink():
        target.symlink_to(os.readlink(source))  # noqa: PTH115 - the text unchanged
    elif source.is_dir():
        target.mkdir(exist_ok=True)
        if depth and os.access(source, os.R_OK | os.X_OK):
            for entry in sorted(source.iterdir()):
                _copy(entry, target / entry.name, depth - 1)
    elif source.is_file() and os.access(source, os.R_OK):
        shutil.copy(source, target)


def make_folders(system: Sequence[str]) -> None:
    """A layer for each system folder, here, that makes its folders the sandbox's own.

    Without one, the kernel refuses what an ordinary user changes in a folder of root's. Folders
    only, two levels deep, and all of ``/usr/local``; files are replaced, not changed in place.
    """
    for name in system:
        _skeleton(f"/{name}", name, _DEEPEST)


def _skeleton(source: str, target: str, depth: int) -> None:
    os.mkdir(target)  # noqa: PTH102 - thousands of them
    if depth == 0 or not os.access(source, os.R_OK | os.X_OK):
        return
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                deep = 99 if entry.path.startswith("/usr/local") else depth - 1
                _skeleton(entry.path, f"{target}/{entry.name}", deep)


def install(programs: Mapping[str, str], folder: Path) -> None:
    """Copy programs, by the name they get, so that they may be run and not read.

    What a process can't read it can't look into while it runs, and can't change: the memory of a
    session's shell holds the names of the host's pipes, and the first process must not do what
    somebody else wants.
    """
    folder.mkdir()
    for name, source in programs.items():
        shutil.copyfile(source, folder / name)
        (folder / name).chmod(0o111)
