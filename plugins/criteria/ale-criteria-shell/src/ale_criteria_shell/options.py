"""Options of the four criteria, as a task writes them."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from attrs import Attribute, field, frozen

from ale.plugin import doc, ge, gt
from ale.strict import Former
from ale_grading.signed_tests import program


def _filled(_: object, attribute: "Attribute[Any]", value: str) -> None:
    if not value.strip():
        raise ValueError(f"{attribute.name} must not be empty")


def _pattern(_: object, attribute: "Attribute[Any]", value: str | None) -> None:
    if value is None:
        return
    import regex  # late: options are made when a task is read, not when plugins are listed

    try:
        regex.compile(value, regex.MULTILINE)
    except regex.error as error:
        raise ValueError(f"{attribute.name} is not a regular expression: {error}") from error


def _below_workspace(_: object, attribute: "Attribute[Any]", value: str) -> None:
    if not value.strip() or "\0" in value:
        raise ValueError(f"{attribute.name} must name a file")
    if ".." in PurePosixPath(value).parts:
        raise ValueError(f"{attribute.name} must not contain '..', found {value!r}")


_ENV = doc("Variables added to the clean environment; PATH here replaces that of the system.")


@frozen(kw_only=True)
class CommandOptions:
    """A shell command for grading."""

    command: str = field(validator=_filled, metadata=doc("Line for /bin/sh, run in the workspace."))
    timeout_s: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc(
            "Seconds of CPU time for each process of the command; by the clock, eight times as "
            "many."
        ),
    )
    cwd: str | None = field(
        default=None, metadata=doc("Folder to run in, relative to the workspace.")
    )
    stdin: str | None = field(
        default=None, metadata=doc("Text for standard input; null closes it.")
    )
    env: Mapping[str, str] = field(factory=dict, metadata=_ENV)
    files: Path | None = field(
        default=None,
        metadata=doc(
            "Host file or folder that the agent never sees: it is present while the command runs, "
            "at $GRADING_FILES."
        ),
    )


@frozen(kw_only=True)
class CommandExitCodeOptions(CommandOptions):
    """A shell command ends with the expected exit code."""

    exit_code: int = field(default=0, validator=ge(0), metadata=doc("Exit code that passes."))


@frozen(kw_only=True)
class RegexInStdoutOptions(CommandOptions):
    """A regular expression matches somewhere in what a command prints."""

    pattern: str = field(
        validator=_pattern,
        metadata=doc(
            "Python regular expression; ^ and $ match at each line's start and end, \\d an ASCII "
            "digit. The score is contested if it has different matches."
        ),
    )
    exit_code: int | None = field(
        default=None, metadata=doc("Exit code that is required too; null allows any.")
    )


@frozen(kw_only=True)
class FileContainsOptions:
    """A file contains a text, or a match of a regular expression. Exactly one of the two."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "max_bytes": Former(4 << 20),
    }

    path: str = field(
        validator=_below_workspace, metadata=doc("File, relative to the workspace or absolute.")
    )
    text: str | None = field(default=None, metadata=doc("Literal text to find."))
    pattern: str | None = field(
        default=None,
        validator=_pattern,
        metadata=doc(
            "Python regular expression to find; ^ and $ match at each line's start and end."
        ),
    )

    def __attrs_post_init__(self) -> None:
        if (self.text is None) == (self.pattern is None):
            raise ValueError("give exactly one of text and pattern")
        if self.text == "":
            raise ValueError("text must not be empty: every file contains it")


@frozen(kw_only=True)
class UnitTestsPassOptions:
    """Python tests that the agent never saw pass against what it wrote."""

    tests: Path = field(
        metadata=doc(
            "Host file or folder (test_*.py, *_test.py); copied into the sandbox for grading only."
        )
    )
    runner: Literal["builtin", "pytest"] = field(
        default="builtin",
        metadata=doc(
            "builtin needs only the standard library: test functions, Test classes, unittest. "
            "pytest (fixtures, parameters) must be installed in the sandbox."
        ),
    )
    timeout_s: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc(
            "Seconds of CPU time for all tests together; by the clock, eight times as many."
        ),
    )
    python: str = field(
        default="python3",
        validator=program,
        metadata=doc("Interpreter: a name in the system's folders or an absolute path."),
    )
    import_paths: tuple[str, ...] = field(
        default=(".", "src"),
        metadata=doc("Folders of the workspace that the tests can import from."),
    )
    prefer: Literal["installed", "workspace"] = field(
        default="installed",
        metadata=doc(
            "Which wins when a module is both in the workspace and installed. 'workspace' lets an "
            "agent put its own numpy before the real one."
        ),
    )
    partial: bool = field(
        default=False,
        metadata=doc("Make the value the fraction of tests that passed instead of 0 or 1."),
    )
    env: Mapping[str, str] = field(factory=dict, metadata=_ENV)
    pytest_plugins: tuple[str, ...] = field(
        default=(),
        metadata=doc("Installed pytest plugins to load, as with -p; none is loaded automatically."),
    )
