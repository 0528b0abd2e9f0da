"""The attacks and honest solutions of `tests/e2e/harbor_attacks.py` as folders of Harbor's format.

For the table in docs/verdicts.md, which compares harnesses on the same folders:

    python -m tests.study.attack_folders DIR
    ale eval DIR/attacks/tasks --agent oracle --sandbox docker
    harbor run -p DIR/attacks/tasks -a oracle -n 1

Each solution is the reference solution of its task, so every harness runs it by its agent `oracle`.
"""

import sys
from pathlib import Path

from tests.e2e.harbor_attacks import ATTACKS, HONEST
from tests.e2e.harbor_tasks import add

from ale_sandboxing.container_testing.images import DEBIAN

from .in_place import LEFT_OUT

_IMAGE = f'docker_image = "{DEBIAN}"\n'
_DOCKERFILE = f"FROM {DEBIAN}\nWORKDIR /app\n"
"""Harbor makes no folder in an image that exists, and ends where `workdir` is none."""


class _Folder:
    """The one method of a test's workshop that `add` calls."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, path: str, text: str) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace(_IMAGE, ""), encoding="utf-8")


def write(root: Path) -> None:
    """Write ``attacks/tasks`` and ``honest/tasks`` below a folder."""
    for kind, chosen in (("attacks", ATTACKS), ("honest", HONEST)):
        folder = _Folder(root / kind)
        for name, each in chosen.items():
            if name not in LEFT_OUT:
                files = {"environment/Dockerfile": _DOCKERFILE}
                add(folder, name, solve=each.solve, test=each.test, toml=each.toml, files=files)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
