"""The options of the task source and of the criterion."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import Attribute, field, frozen

from ale.errors import InputError
from ale.plugin import doc, ge, gt
from ale.strict import from_plain, structure
from ale_grading.signed_tests import program
from ale_rows.task_rows import Origin

RESTORED: tuple[str, ...] = (
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
)
"""Names of the files that configure pytest."""
TEST_FOLDERS = ("tests/*", "test/*", "testing/*", "*/tests/*", "*/test/*")


def _options_of_the_criterion(_: object, __: object, value: Mapping[str, Any]) -> None:
    given = {"repository": "/", "base_commit": "0" * 40}  # as the source gives them for each row
    try:
        structure(from_plain({**value, **given}), SweTestsOptions)
    except InputError as error:
        found = [(f"{each.path}: {each.message}", each.hint) for each in error.problems]
        raise ValueError("; ".join(text for texts in found for text in texts if text)) from None


@frozen(kw_only=True)
class SweOptions(Origin):
    """Repositories with an issue to resolve, in the format of SWE-bench."""

    split: str = field(
        default="test",
        metadata=doc(
            "Split of a data set, or of a folder, as files SPLIT.jsonl, .json or .parquet."
        ),
    )
    mirrors: Path | None = field(
        default=None,
        metadata=doc(
            "Folder of git mirrors, OWNER/NAME.git or OWNER__NAME.git; nothing is cloned then."
        ),
    )
    address: str = field(
        default="https://github.com/{repo}.git",
        metadata=doc("Where repositories are cloned from, once; {repo} is replaced."),
    )
    cache: Path | None = field(
        default=None,
        metadata=doc("Folder for clones and work trees; default: ale/swe in XDG_CACHE_HOME."),
    )
    history: int = field(
        default=1,
        validator=ge(0),
        metadata=doc(
            "Number of commits that the agent can see, base_commit included; 0 is all before it."
        ),
    )
    repository: Literal["copied", "image"] = field(
        default="copied",
        metadata=doc(
            "The work tree is 'copied' into the workspace, or it is already in the working "
            "directory of the 'image', and its history is removed."
        ),
    )
    image: str | None = field(
        default=None,
        metadata=doc(
            "Image of each task. {instance_id}, {repo}, {version} and every other field that is a "
            "text is replaced; {image_key} is the id as SWE-bench names its images."
        ),
    )
    setup: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "Commands run in the workspace before the agent; fields are replaced as in `image`."
        ),
    )
    prompt: str = field(
        default="{problem_statement}\n\nThe repository is in the current directory. Change its "
        "code so that the issue is resolved. Hidden tests will be run.",
        metadata=doc(
            "What the agent is told; fields are replaced as in `image`, and {hints_text} too."
        ),
    )
    grading: Mapping[str, Any] = field(
        factory=dict,
        validator=_options_of_the_criterion,
        metadata=doc("More options of swe_tests, for every task: {timeout_s: 600}."),
    )


def _commit(_: object, attribute: "Attribute[Any]", value: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", value):
        raise ValueError(f"{attribute.name} must be the whole id of a commit, found {value!r}")


@frozen(kw_only=True)
class SweTestsOptions:
    """Tests of a repository that the agent never saw: those that must start to pass, and stay."""

    repository: Path = field(metadata=doc("Git repository on the host that has base_commit."))
    base_commit: str = field(
        validator=_commit, metadata=doc("Commit that the agent's work started from.")
    )
    test_patch: str = field(
        default="",
        metadata=doc(
            "Diff that adds the tests; its files are those of base_commit with the diff applied."
        ),
    )
    fail_to_pass: tuple[str, ...] = field(
        default=(), metadata=doc("Tests that the issue makes fail: pytest's ids, FILE::TEST.")
    )
    pass_to_pass: tuple[str, ...] = field(
        default=(), metadata=doc("Tests that already pass and must still pass.")
    )
    restore: tuple[str, ...] = field(
        default=TEST_FOLDERS,
        metadata=doc(
            "Globs of files of base_commit that are restored if the agent has changed them, in "
            "addition to those of the tests and of pytest's configuration."
        ),
    )
    keep: tuple[str, ...] = field(
        default=(), metadata=doc("Paths that are not restored: those of the reference solution.")
    )
    timeout_s: float = field(
        default=240.0,
        validator=gt(0),
        metadata=doc(
            "Seconds of CPU time for all tests, and at least as many by the clock; "
            "run.grading_timeout_s must be more than twice that."
        ),
    )
    python: str = field(
        default="python3",
        validator=program,
        metadata=doc("Interpreter with pytest: a name in the system's folders or absolute path."),
    )
    import_paths: tuple[str, ...] = field(
        default=(".", "src"),
        metadata=doc("Folders of the workspace to import from, after what is installed."),
    )
    prefer: Literal["installed", "workspace"] = field(
        default="installed",
        metadata=doc(
            "Which one is imported if a module is both installed and in the workspace; 'workspace' "
            "is for an installed project."
        ),
    )
    pytest_plugins: tuple[str, ...] = field(
        default=(), metadata=doc("Modules of pytest plugins to load; no others are loaded.")
    )
    pytest_args: tuple[str, ...] = field(
        default=(), metadata=doc("More arguments of pytest: ['-o', 'addopts='].")
    )
    test_command: str | None = field(
        default=None,
        metadata=doc(
            'Runs the tests instead of pytest and writes a JUnit report to "$REPORT". Its report '
            "is believed: the code under test can forge it."
        ),
    )
    env: Mapping[str, str] = field(
        factory=dict,
        metadata=doc("Variables added to the clean environment; PATH here replaces the system's."),
    )
