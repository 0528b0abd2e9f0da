"""Which files of the tests belong into the workspace, worked out on the host by git.

The agent's own git directory plays no part, so nothing that it does there has an effect.
"""

import ast
import configparser
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from attrs import field, frozen

from ale_grading.signed_tests import needed_modules
from ale_tasks_swe.git import GitError, git, lines
from ale_tasks_swe.options import RESTORED, SweTestsOptions

SUBMODULE = 0o160000
Entry = tuple[int, str]
"""Mode and id of the content."""


@frozen(kw_only=True)
class Expected:
    """The files that belong to the tests, with the test patch applied to the base commit."""

    always: Mapping[str, tuple[int, bytes]]
    """Mode and content: the tests to run, and what configures pytest."""
    absent: tuple[str, ...]
    """What the test patch deletes."""
    checked: Mapping[str, Entry]
    """Other files, written where they differ."""
    known: tuple[str, ...]
    """Where files that configure pytest may be."""
    configs: Mapping[str, str]
    """The configuration of each test file; empty where there is none."""
    needed: tuple[str, ...]
    """Packages that the tests to run import, and that no file of the repository is named like."""
    read: Callable[[Iterable[str]], Mapping[str, tuple[int, bytes]]] = field(repr=False)
    """The content of paths in `checked`."""


def expected_files(options: SweTestsOptions, test_files: Sequence[str]) -> Expected:
    """What belongs into the workspace.

    Raises:
        GitError: the repository has no such commit, or the patch does not apply to it.
    """
    with tempfile.TemporaryDirectory(prefix="ale-swe-") as scratch:
        patched = _Patched(options, Path(scratch))
        base, after = patched.base, patched.after
        changed = {path for path in {*base, *after} if base.get(path) != after.get(path)}
        kept = set(options.keep) - changed
        config = {path for path in after if PurePosixPath(path).name in RESTORED} - kept
        always = (changed & set(after)) | (set(test_files) & set(after)) | config
        chosen = {p for p in after if any(fnmatchcase(p, glob) for glob in options.restore)}
        contents = patched.contents({path: after[path] for path in always})
    return Expected(
        always=contents,
        absent=tuple(sorted(changed - set(after))),
        checked={path: after[path] for path in sorted(chosen - always - kept)},
        known=tuple(sorted({*config, *options.keep})),
        needed=_needed([contents[p][1] for p in test_files if p in contents], after),
        configs={path: _config_of(path, contents) for path in test_files},
        # They are of the base commit, so the repository itself has them.
        read=lambda paths: _contents(options.repository, {}, {path: base[path] for path in paths}),
    )


def _needed(tests: Iterable[bytes], paths: Iterable[str]) -> tuple[str, ...]:
    found = set[str]()
    for text in tests:
        try:
            found |= needed_modules(ast.parse(text))
        except (SyntaxError, ValueError):  # of another version of Python than this one
            continue
    own = {part.partition(".")[0] for path in paths for part in PurePosixPath(path).parts}
    return tuple(sorted(found - own))


class _Patched:
    """The base commit and the test patch in an index of their own; the repository is only read."""

    def __init__(self, options: SweTestsOptions, scratch: Path) -> None:
        self._repository = options.repository
        (scratch / "objects").mkdir()
        objects = git("rev-parse", "--git-path", "objects", cwd=self._repository).decode().strip()
        self._env = {
            "GIT_INDEX_FILE": str(scratch / "index"),
            "GIT_OBJECT_DIRECTORY": str(scratch / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str((self._repository / objects).resolve()),
            "GIT_DIR": git("rev-parse", "--absolute-git-dir", cwd=self._repository)
            .decode()
            .strip(),
        }
        git("read-tree", options.base_commit, cwd=scratch, env=self._env)
        self.base = self._entries(scratch)
        patch = options.test_patch
        if patch.strip():
            # A data set may have lost the last end of line.
            text = patch if patch.endswith("\n") else f"{patch}\n"
            git(
                *("apply", "--cached", "--whitespace=nowarn", "-"),
                cwd=scratch,
                env=self._env,
                stdin=text.encode(),
            )
        self.after = self._entries(scratch)

    def _entries(self, cwd: Path) -> dict[str, Entry]:
        entries = {}
        for line in lines(git("ls-files", "--stage", "-z", cwd=cwd, env=self._env)):
            about, _, path = line.partition("\t")
            mode, blob, _ = about.split(" ")
            if int(mode, 8) != SUBMODULE:
                entries[path] = (int(mode, 8), blob)
        return entries

    def contents(self, entries: Mapping[str, Entry]) -> dict[str, tuple[int, bytes]]:
        return _contents(self._repository, self._env, entries)


def _contents(
    repository: Path, env: Mapping[str, str], entries: Mapping[str, Entry]
) -> dict[str, tuple[int, bytes]]:
    """The contents of entries, by one process."""
    asked = "".join(f"{blob}\n" for _, blob in entries.values())
    data = git("cat-file", "--batch", cwd=repository, env=env, stdin=asked.encode())
    found, at = {}, 0
    for path, (mode, blob) in entries.items():
        end = data.index(b"\n", at)
        about = data[at:end].decode().split(" ")
        if len(about) != 3 or about[1] != "blob":
            raise GitError(f"{repository} lacks the content {blob} of {path}")
        at = end + 1 + int(about[2]) + 1
        found[path] = (mode, data[end + 1 : at - 1])
    return found


def _config_of(path: str, contents: Mapping[str, tuple[int, bytes]]) -> str:
    """The file that configures pytest for a test file, as pytest looks for it: upwards."""
    for folder in PurePosixPath(path).parents:
        for name in RESTORED[1:]:
            found = str(folder / name)
            if found in contents and _configures(name, contents[found][1].decode(errors="replace")):
                return found
    return ""


def _configures(name: str, text: str) -> bool:
    if name in ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"):
        return True
    try:
        if name == "pyproject.toml":
            return "pytest" in tomllib.loads(text).get("tool", {})
        parsed = configparser.ConfigParser(interpolation=None, strict=False)
        parsed.read_string(text)
    except (tomllib.TOMLDecodeError, configparser.Error):
        return False
    return parsed.has_section("pytest" if name == "tox.ini" else "tool:pytest")
