"""Small repositories with a bug each, made from a seed; nothing of them is copied.

    python -m ale_tasks_swe.samples FOLDER [SEED]

writes ``tasks.jsonl`` in the format of SWE-bench, and git mirrors in ``repositories``.
"""

import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import field, frozen

from ale.files import remove_partial, replacing
from ale_tasks_swe.git import git
from ale_tasks_swe.mirrors import locked
from ale_tasks_swe.samples.bug import Bug, changed
from ale_tasks_swe.samples.state_bugs import EXPIRY, ORDER, SHARES
from ale_tasks_swe.samples.text_bugs import RANGES, SLUGS, TABLE

BUGS = (RANGES, SLUGS, TABLE, SHARES, EXPIRY, ORDER)
OWNER = "samples"
EDITION = 1
"""Of the samples in the cache; another one where they change."""
_AUTHORS = ("Ada", "Alan", "Barbara", "Edsger", "Grace", "Kathleen", "Tony")
_NOTES = ("Say how to install it", "Name the maintainers", "Explain the versions", "Add a licence")
_START = 1_600_000_000
_DAY = 86_400


def make_samples(cache: Path) -> Path:
    """The folder of the samples in a cache, made where it is missing."""
    folder = cache / f"samples-{EDITION}"
    if not folder.is_dir():
        with locked(folder):
            if not folder.is_dir():
                remove_partial(folder)
                with replacing(folder) as draft:
                    write_samples(draft)
    return folder


def write_samples(folder: Path, seed: int = 0) -> None:
    """Write the tasks and their repositories into a new folder; the same for the same seed.

    Raises:
        GitError: git failed.
        OSError: it can't be written.
    """
    (folder / "repositories").mkdir(parents=True)
    rows = []
    for number, bug in enumerate(BUGS):
        with tempfile.TemporaryDirectory(prefix="ale-swe-") as scratch:
            made = _Repository(Path(scratch), random.Random(seed * len(BUGS) + number))  # noqa: S311
            rows.append(_row(bug, made))
            mirror = folder / "repositories" / f"{OWNER}__{bug.name}.git"
            git("clone", "--quiet", "--mirror", scratch, str(mirror))
            git("remote", "remove", "origin", cwd=mirror)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "tasks.jsonl").write_text(lines, encoding="utf-8")


def _row(bug: Bug, repository: "_Repository") -> Mapping[str, object]:
    """Build the history of a bug, and its row."""
    repository.commit("Start", {"README.md": f"# {bug.name}\n", ".gitignore": "__pycache__/\n"})
    repository.commit("Add the package", bug.files)
    for note in repository.notes():
        repository.append_to_readme(note)
    repository.commit("Test it", bug.tests)
    repository.append_to_readme("Ask before you send a change")
    base = repository.head()
    fixed = changed(bug.files, bug.fix)
    tests = {**changed(bug.tests, bug.fixed_tests), **bug.new_tests}
    repository.commit("Fix it", {**fixed, **tests})
    diff = ("diff", base, "HEAD", "--")
    patch = git(*diff, *bug.fix, cwd=repository.folder).decode()
    test_patch = git(*diff, *bug.fixed_tests, *bug.new_tests, cwd=repository.folder).decode()
    git("tag", "v1.1", cwd=repository.folder)
    repository.append_to_readme("Version 1.1 is out")
    return {
        "instance_id": f"{OWNER}__{bug.name}-1",
        "repo": f"{OWNER}/{bug.name}",
        "base_commit": base,
        "problem_statement": bug.issue,
        "hints_text": "",
        "version": "1.0",
        "environment_setup_commit": base,
        "patch": patch,
        "test_patch": test_patch,
        # As SWE-bench has them.
        "FAIL_TO_PASS": json.dumps(bug.fail_to_pass),
        "PASS_TO_PASS": json.dumps(bug.pass_to_pass),
    }


@frozen
class _Repository:
    """A repository being made."""

    folder: Path
    draw: random.Random
    _day: list[int] = field(factory=lambda: [0])

    def __attrs_post_init__(self) -> None:
        git("init", "--quiet", "--template=", "--initial-branch=main", str(self.folder))

    def commit(self, message: str, files: Mapping[str, str]) -> None:
        """Write files, and commit them."""
        for path, text in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text, encoding="utf-8")
        name = self.draw.choice(_AUTHORS)
        self._day[0] += self.draw.randint(1, 9)
        date = f"{_START + self._day[0] * _DAY} +0000"
        env = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (
                ("NAME", name),
                ("EMAIL", f"{name.lower()}@example.org"),
                ("DATE", date),
            )
        }
        git("add", "--all", cwd=self.folder)
        git("commit", "--quiet", "--no-verify", "-m", message, cwd=self.folder, env=env)

    def append_to_readme(self, note: str) -> None:
        """A commit that touches no code."""
        text = (self.folder / "README.md").read_text(encoding="utf-8")
        self.commit(note, {"README.md": f"{text}\n{note}.\n"})

    def notes(self) -> Iterator[str]:
        """Some notes, by the seed."""
        yield from self.draw.sample(_NOTES, self.draw.randint(1, len(_NOTES)))

    def head(self) -> str:
        """The commit that was made last."""
        return git("rev-parse", "HEAD", cwd=self.folder).decode().strip()
