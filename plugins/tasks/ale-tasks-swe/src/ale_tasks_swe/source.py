"""The task source ``swe``."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from attrs import frozen

from ale.errors import InputError
from ale.types import CriterionSpec, Environment, Task, replace
from ale_rows.task_rows import Row, RowTasks, files_of, rows_below, rows_from, rows_of, safe_id
from ale_rows.task_rows.rows import ENDINGS
from ale_tasks_swe.checkout import cut_checkout
from ale_tasks_swe.git import GitError
from ale_tasks_swe.mirrors import Mirrors, default_cache
from ale_tasks_swe.options import SweOptions
from ale_tasks_swe.samples import make_samples

EXPECTED = (
    "objects with instance_id, repo, base_commit, problem_statement, patch, test_patch, "
    "FAIL_TO_PASS, PASS_TO_PASS (lists, or texts that hold a JSON list), as of the data sets "
    "SWE-bench, SWE-bench_Lite, SWE-bench_Verified"
)
CUT_IN_IMAGE = (
    "rm -rf .git && git init --quiet . && git add --all && "
    "git -c user.name=ale -c user.email=ale@localhost commit --quiet --message 'Base commit' && "
    "rm -rf .git/logs"
)
"""Replaces the history that an image has by one commit of its files."""
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PATCHED = re.compile(r"^(?:---|\+\+\+) [ab]/([^\t\n]+)|^rename (?:from|to) (.+)$", re.MULTILINE)
_SECRET = frozenset({"patch", "test_patch", "FAIL_TO_PASS", "PASS_TO_PASS"})


@frozen
class SweSource:
    """Repositories with an issue each; a work tree is made when its task is asked for."""

    options: SweOptions
    rows: RowTasks
    mirrors: Mirrors

    def load(self) -> Iterator[Task]:
        """The chosen tasks.

        Raises:
            InputError: rows that can't be used, or a repository that can't be had.
        """
        for task in self.rows.load():
            yield self._with_repository(task)

    def _with_repository(self, task: Task) -> Task:
        about, (spec,) = task.metadata["swe"], task.criteria
        repo, commit = about["repo"], about["base_commit"]
        try:
            mirror = self.mirrors.having(repo, commit)
            files = None
            if self.options.repository == "copied":
                cache = self.mirrors.cache
                files = str(cut_checkout(mirror, commit, self.options.history, cache, repo))
        except (GitError, OSError) as error:
            message = f"{task.id}: the repository {repo} at {commit} can't be had: {error}"
            raise InputError.of(message, file=spec.file, line=spec.line, path="tasks") from error
        graded = {"repository": str(mirror.resolve()), **spec.options}
        return replace(task, files=files, criteria=(replace(spec, options=graded),))


def swe(options: SweOptions) -> SweSource:
    """The source ``swe``. Raises `InputError`."""
    cache = (options.cache or default_cache()).absolute()
    folder = options.mirrors
    sample = cache
    if options.sample:
        sample = make_samples(cache)
        folder = sample / "repositories"
    rows = rows_from(
        options,
        partial(_rows_at, options.split),
        sample / "tasks.jsonl",
        options.split,
        EXPECTED,
    )
    return SweSource(
        options,
        RowTasks(options, rows, lambda row: _task(row, options)),
        Mirrors(
            folder=None if folder is None else folder.absolute(),
            address=options.address,
            cache=cache,
        ),
    )


def _rows_at(split: str, path: Path) -> Iterator[Row]:
    """The rows of a file, or of those of a folder that belong to the split."""
    if path.is_file():
        yield from rows_below(path, EXPECTED)
        return
    named = [f for f in files_of(path, ENDINGS, EXPECTED) if re.split(r"[.-]", f.name)[0] == split]
    if not named:
        message = f"the folder has no file of the split '{split}', such as {split}.jsonl"
        raise InputError.of(message, file=str(path), expected=EXPECTED)
    for file in named:
        yield from rows_of(file, EXPECTED)


def _task(row: Row, options: SweOptions) -> Task:
    name, repo, commit = (row.text(key) for key in ("instance_id", "repo", "base_commit"))
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise row.problem(f"expected the whole id of a commit, found {commit!r}", "base_commit")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?", repo) or ".." in repo:
        raise row.problem(f"expected OWNER/NAME, found {repo!r}", "repo")
    patch, test_patch = row.text("patch", ""), row.text("test_patch", "")
    values = _values(row, name)
    fill = partial(_filled, row, values)
    graded = {
        "base_commit": commit,
        "test_patch": test_patch,
        "fail_to_pass": _names(row, "FAIL_TO_PASS"),
        "pass_to_pass": _names(row, "PASS_TO_PASS"),
        "keep": _paths(patch),
        **options.grading,
    }
    in_image = options.repository == "image"
    if in_image and options.image is None:
        raise row.problem("repository: image needs the option 'image'", "image")
    return Task(
        id=safe_id(name),
        goal=fill(options.prompt, "prompt").strip() + "\n",
        origin=row.file,
        tags=("swe", repo),
        setup_steps=((CUT_IN_IMAGE,) if in_image else ())
        + tuple(fill(command, "setup") for command in options.setup),
        criteria=(CriterionSpec(type="swe_tests", options=graded, file=row.file, line=row.line),),
        environment=_environment(options, fill),
        solution=_applied(patch) if patch else None,
        metadata={
            "environment": "swe",
            "swe": {"repo": repo, "base_commit": commit, "version": values["version"]},
        },
    )


def _environment(options: SweOptions, fill: Callable[[str, str], str]) -> Environment:
    if options.image is None:
        return Environment()
    workdir = "." if options.repository == "image" else None
    return Environment(image=fill(options.image, "image"), workdir=workdir)


def _values(row: Row, name: str) -> Mapping[str, str]:
    """What may stand in the options: no field that has the solution or the tests."""
    texts = {
        key: value
        for key, value in row.data.items()
        if isinstance(value, str) and key not in _SECRET
    }
    key = name.lower().replace("__", "_1776_")
    return {"version": "", "hints_text": "", **texts, "image_key": key}


def _filled(row: Row, values: Mapping[str, str], template: str, option: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            message = f"{{{match[1]}}} in the option '{option}' is not a field that is a text"
            raise row.problem(message, match[1])
        return values[match[1]]

    return _FIELD.sub(value, template)


def _names(row: Row, key: str) -> list[str]:
    """A list of tests, or a text that holds one."""
    if isinstance(found := row.data.get(key), str):
        try:
            found = json.loads(found)
        except ValueError as error:
            raise row.problem(f"the text is not a JSON list: {error}", key) from error
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise row.problem("expected a JSON list of texts", key)
        return list(found)
    return row.texts(key)


def _paths(patch: str) -> list[str]:
    """The files that a patch names."""
    return sorted({one or other for one, other in _PATCHED.findall(patch)})


def _applied(patch: str) -> tuple[str, ...]:
    mark = "ALE_PATCH"
    while mark in patch:
        mark += "_"
    end = "" if patch.endswith("\n") else "\n"
    return (f"git apply --whitespace=nowarn - <<'{mark}'\n{patch}{end}{mark}\n",)
