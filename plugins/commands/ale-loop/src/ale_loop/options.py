"""The config of a loop."""

from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from attrs import field, frozen, validators

from ale.learning import check_learns
from ale.plugin import doc, ge, gt
from ale.protocols import LOGS
from ale.strict import Node, nearest_file, read_yaml, structure
from ale_loop.window import Window


@frozen(kw_only=True)
class GateOptions:
    """When a new version is deployed: section ``gate``."""

    measure: Literal["mean", "low"] = field(
        default="mean",
        metadata=doc(
            "What has to reach the threshold at every temperature: the 'mean' difference, new "
            "minus deployed, over the held-out tasks; or 'low', the lower end of its 95% interval."
        ),
    )
    threshold: float = field(
        default=0.0,
        metadata=doc("Minimum difference of rewards; a value below 0 tolerates a loss."),
    )
    least_graded: float = field(
        default=0.5,
        validator=[gt(0), validators.le(1)],
        metadata=doc(
            "Minimum share of the held-out tasks that need a reward under both versions, at every "
            "temperature; at least 2 tasks."
        ),
    )
    retry_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc(
            "Seconds until a version that an outage left without a decision is evaluated again."
        ),
    )

    def enough(self, graded: int, held_out: int) -> bool:
        """Are so many of the held-out tasks enough?"""
        return graded >= max(2, self.least_graded * held_out)


def _window(_: object, __: object, value: str | None) -> None:
    if value is not None:
        Window.parse(value, ZoneInfo("UTC"))


def _zone(_: object, __: object, value: str) -> None:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"expected a time zone such as UTC or Europe/Berlin, found '{value}'"
        ) from None


@frozen(kw_only=True)
class LoopOptions:
    """A loop."""

    train: Path = field(
        metadata=doc("Config of `ale run` with llm, trainer and evaluation; its tasks are not run.")
    )
    directory: Path = field(metadata=doc("The loop's run directory."))
    episodes: tuple[Path, ...] = field(
        validator=validators.min_len(1),
        metadata=doc("Run directories that other programs write, or folders of such directories."),
    )
    train_window: str | None = field(
        default=None,
        validator=_window,
        metadata=doc('Hours in which a step may begin: "02:00-06:00". Default: any.'),
    )
    time_zone: str = field(
        default="UTC",
        validator=_zone,
        metadata=doc("Time zone of the window, such as Europe/Berlin."),
    )
    serve: Any = field(
        default=None,
        metadata=doc("A model component whose servers get each deployed version: {type: ...}."),
    )
    gate: GateOptions = field(factory=GateOptions, metadata=doc("When a new version is deployed."))
    keep: int = field(
        default=3,
        validator=ge(1),
        metadata=doc("Number of deployed versions that can be restored."),
    )
    poll_s: float = field(
        default=2.0,
        validator=gt(0),
        metadata=doc("Seconds between two looks at episodes and servers."),
    )

    @property
    def window(self) -> Window | None:
        """The hours in which a step may begin."""
        if self.train_window is None:
            return None
        return Window.parse(self.train_window, ZoneInfo(self.time_zone))


@frozen(kw_only=True)
class LoopConfig:
    """A loop, and the component whose servers get the deployed version."""

    options: LoopOptions
    serve: Any = None
    """A `Node`, as of a section ``llm``; None: nobody gets it."""


def read_config(path: Path, *, started: bool = False) -> LoopConfig:
    """Read the config of a loop.

    Args:
        started: it is an error that the loop has no directory yet.

    Raises:
        InputError: with every problem.
    """
    root = read_yaml(path)
    if root.mapping is None:
        raise root.error("expected a mapping", expected="train, directory, episodes")
    if "tasks" in root.mapping and "train" not in root.mapping:
        expected = f"one of a loop: train: {path.name}, directory: ..., episodes: [...]"
        raise root.error("this is a config of `ale run`", expected=expected)
    options = structure(root, LoopOptions)
    if (options.directory / "manifest.json").exists():
        check_learns(options.directory)
    else:
        _check_new(root.mapping["directory"], options.directory, started=started)
        if not options.train.is_file():  # a loop that exists has its own copy
            what = "is no file" if options.train.exists() else "no such file"
            message = f"{what}: {options.train}"
            hint = nearest_file(options.train)
            raise root.mapping["train"].error(message, path="train", hint=hint)
    return LoopConfig(options=options, serve=root.get("serve"))


def _check_new(given: Node, directory: Path, *, started: bool) -> None:
    """Check that a directory that is not yet a loop's can become it, or raise `InputError`."""
    # What starts a loop elsewhere may have made it, for its logs.
    logs = directory.is_dir() and {each.name for each in directory.glob("[!.]*")} == {LOGS}
    if directory.exists() and not logs:
        message = f"{directory} exists, and is not the directory of a loop"
        raise given.error(message, path="directory", hint="choose another name")
    if started:
        raise given.error(f"the loop was never started: {directory} has no run", path="directory")
