"""A whole config, typed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs
from attrs import evolve, field, frozen, validators

from ale._config.environment import notes as environment_notes
from ale._config.rules import are_rules
from ale._registry import Registration
from ale.errors import Problem
from ale.plugin import doc, ge, gt, lt, optional
from ale.strict import Former, Node, describe

PARTS = (
    "tasks",
    "sandbox",
    "llm",
    "agent",
    "chunker",
    "credit",
    "starts",
    "trainer",
    "executor",
)
"""The sections that select one component each, which takes part in a run."""
Isolation = Literal["network", "files", "processes"]


@frozen(kw_only=True)
class SandboxRequirements:
    """Options of the section ``sandbox`` that every type has."""

    require: tuple[Isolation, ...] = field(
        default=(),
        metadata=doc(
            "What the sandbox must isolate: network, files, processes. A type that does not "
            "isolate all of these is refused, and auto skips it."
        ),
    )


def _word(_: object, __: object, value: str) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", value) or value == "run":
        raise ValueError(f"expected a word of letters, digits, - and _, not 'run', found '{value}'")


@frozen(kw_only=True)
class ProcessOptions:
    """A process beside the run: an entry of ``launch.processes``."""

    name: str = field(validator=_word, metadata=doc("Name for the process's log; one word."))
    role: Literal["server", "worker"] = field(
        metadata=doc("'server' serves a model to the run, 'worker' executes episodes for it.")
    )
    command: tuple[str, ...] = field(
        validator=validators.min_len(1), metadata=doc("Program and arguments.")
    )
    count: int = field(default=1, validator=ge(1), metadata=doc("Number of such processes."))
    cpus: int = field(default=0, validator=ge(0), metadata=doc("CPU cores for each; 0: any."))
    gpus: int = field(default=0, validator=ge(0), metadata=doc("GPUs for each."))
    url: str | None = field(
        default=None,
        metadata=doc(
            "URL that answers a GET once the process is ready; the run starts after that."
        ),
    )


@frozen(kw_only=True)
class LaunchOptions:
    """Options of the section ``launch`` that every type has."""

    nodes: int = field(
        default=1, validator=ge(1), metadata=doc("Machines for the trainer's processes.")
    )
    cpus: int = field(
        default=0,
        validator=ge(0),
        metadata=doc("CPU cores for the run, or for each of its trainer's processes; 0: any."),
    )
    gpus: int = field(
        default=0,
        validator=ge(0),
        metadata=doc("GPUs for the run, or for each of its trainer's processes."),
    )
    restarts: int = field(
        default=3,
        validator=ge(0),
        metadata=doc(
            "How often a lost process (killed, or its machine is gone) is started again; a lost "
            "run is resumed. The next loss ends the run."
        ),
    )
    processes: tuple[ProcessOptions, ...] = field(
        default=(), metadata=doc("Servers and workers, each as {name, role, command, ...}.")
    )


@frozen(kw_only=True)
class AutoChoice:
    """Why ``sandbox: {type: auto}`` chose a sandbox."""

    reason: str
    """The result of its probe."""
    skipped: tuple[str, ...]
    """``name: reason`` of those with a higher priority that were not chosen."""


@frozen(kw_only=True)
class Selected:
    """The component that a section of the config selects, with its options."""

    registration: Registration
    options: Any
    auto: AutoChoice | None = None
    """How ``type: auto`` chose it; None if the config names the type."""
    dropped: str | None = None
    """A message about options of another type that it lacks, for the user."""

    @property
    def name(self) -> str:
        """The component's name, as in ``type: NAME``."""
        return self.registration.component.name

    @property
    def inner(self) -> Mapping[str, "Selected"]:
        """The components that its options select, by option."""
        if not attrs.has(type(self.options)):
            return {}
        values = {f.name: getattr(self.options, f.name) for f in attrs.fields(type(self.options))}
        return {name: value for name, value in values.items() if isinstance(value, Selected)}


_LONGEST_NAME = 200
"""Bytes; a file system allows 255, and the run id adds a time stamp and some letters."""


def _part_of_a_path(_: object, __: object, value: str) -> None:
    if not value.isprintable() or "/" in value or not 0 < len(value.encode()) <= _LONGEST_NAME:
        raise ValueError(f"expected part of a folder's name, without '/', found {describe(value)}")


@frozen(kw_only=True)
class Price:
    """The price of a model's tokens: section ``run.budget.price``."""

    prompt: float = field(
        validator=ge(0), metadata=doc("US dollars for a million tokens that the model reads.")
    )
    completion: float = field(
        validator=ge(0), metadata=doc("US dollars for a million tokens that it writes.")
    )


@frozen(kw_only=True)
class Budget:
    """The most that a run may spend: section ``run.budget``."""

    episodes: int | None = field(
        default=None, validator=optional(ge(1)), metadata=doc("Episodes, evaluations included.")
    )
    tokens: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Tokens that the model reads and writes, as it counts them."),
    )
    usd: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("US dollars for these tokens. The model's price must be known."),
    )
    hours: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("Hours that the run takes, those before a resume included."),
    )
    price: Price | None = field(
        default=None,
        metadata=doc("Default: litellm's, if it is installed and has the model in its table."),
    )


MOST_AT_ONCE = 1024
"""Most episodes at once that ``run.concurrency: auto`` comes to."""


def _concurrency(_: object, __: object, value: int | str) -> None:
    if value != "auto" and (isinstance(value, str) or value < 1):
        raise ValueError(f"expected a number of at least 1, or auto, found {value}")


@frozen(kw_only=True)
class RunOptions:
    """Options of the run itself: section ``run``."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "grace_s": Former(10.0),
    }

    name: str | None = field(
        default=None,
        validator=optional(_part_of_a_path),
        metadata=doc("Part of the run directory's name."),
    )
    directory: Path | None = field(
        default=None, metadata=doc("Folder for run directories; default: ./runs.")
    )
    rollouts: int = field(
        default=1, validator=ge(1), metadata=doc("Episodes per task and step: the group size.")
    )
    steps: int = field(default=1, validator=ge(1), metadata=doc("Training steps.", changeable=True))
    tasks_per_step: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Tasks sampled per step, without replacement; default: all tasks."),
    )
    refills: int = field(
        default=0,
        validator=ge(0),
        metadata=doc(
            "Maximum number of times that a step draws more tasks to replace those whose rewards "
            "are all equal; the trainer does not get the replaced groups. 0: it gets every group."
        ),
    )
    schedule: Literal["steps", "stream"] = field(
        default="steps",
        metadata=doc(
            "Which episodes a step learns from. 'steps': those that were drawn for it, however "
            "long they take. 'stream': the first groups that are complete; the others are left for "
            "a later step."
        ),
    )
    staleness: int = field(
        default=0,
        validator=ge(0),
        metadata=doc(
            "Number of steps by which the sampling weights may lag behind the trained ones. Above "
            "0, episodes of the next step run while the trainer updates the weights. In a stream, "
            "a slow group may exceed this number."
        ),
    )
    too_stale: Literal["train", "drop"] = field(
        default="train",
        metadata=doc(
            "What a stream does with a group that took so long that it exceeds 'staleness': "
            "'train' on it, and leave it to the trainer's correction to weight it, or 'drop' it "
            "and draw another, which favours tasks that are quick."
        ),
    )
    take_first: Literal["oldest", "newest"] = field(
        default="oldest",
        metadata=doc(
            "Which of a stream's complete groups a step learns from: those drawn first ('oldest') "
            "or last ('newest'). 'newest' needs 'too_stale: drop', because the others might wait "
            "for ever."
        ),
    )
    keep_checkpoints: int | None = field(
        default=2,
        validator=optional(ge(1)),
        metadata=doc(
            "Number of newest checkpoints to keep; null keeps all, one per step.", changeable=True
        ),
    )
    keep_checkpoints_every: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc(
            "Also keep the checkpoint after each multiple of this many steps.", changeable=True
        ),
    )
    concurrency: int | Literal["auto"] = field(
        default=8,
        validator=_concurrency,
        metadata=doc(
            "Maximum number of episodes running at the same time. Before a run, the limits of this "
            "process (open files, processes) are compared with what these may need. 'auto' finds "
            "the number at which throughput stops growing, and follows it.",
            changeable=True,
        ),
    )
    seed: int = field(
        default=0, validator=[ge(0), lt(1 << 63)], metadata=doc("Random seed: up to 63 bits.")
    )
    retries: int = field(
        default=1,
        validator=ge(0),
        metadata=doc(
            "Retries of a broken episode (an infrastructure error, not a failed task). An error of "
            "the model is not retried here, because its component has retries of its own; but an "
            "answer that was lost with its inference server is. Where a policy learns, also how "
            "many fresh episodes are sampled in the place of one that stays broken.",
            changeable=True,
        ),
    )
    preflight: bool = field(
        default=True,
        metadata=doc(
            "Check the model and the first task's image before the first episode, and start "
            "nothing if one can't be used.",
            changeable=True,
        ),
    )
    lost_sandbox: Literal["broken", "failed"] = field(
        default="broken",
        metadata=doc(
            "What an episode is if its sandbox ended after the agent had begun and nothing shows "
            "whether the agent ended it or something outside did: 'broken', or 'failed', which "
            "grades it. A sandbox that the agent has evidently damaged is graded in either case."
        ),
    )
    contested: Literal["reward", "failed", "broken"] | None = field(
        default=None,
        metadata=doc(
            "What a score counts as that is another one without the agent's changes to what checks "
            "run with: its value ('reward'), 0 ('failed'), or nothing, as the episode is 'broken'. "
            "Default: 0 for what a trainer learns from, else its value."
        ),
    )
    keep: Literal["failed", "all"] | None = field(
        default=None,
        metadata=doc(
            "Keep the states that agents leave, of all episodes or of those that fail, for "
            "`ale regrade`: snapshots, which stay as long as the run directory. Default: none."
        ),
    )
    stop_after_broken: int | None = field(
        default=3,
        validator=optional(ge(1)),
        metadata=doc(
            "Stop the run if this many episodes finish first and all break for the same reason; a "
            "resume samples them again. null: never.",
            changeable=True,
        ),
    )
    budget: Budget | None = field(
        default=None,
        metadata=doc(
            "What the run may spend. When it is spent, the running episodes are finished and the "
            "run ends, with exit status 4; a resume with a larger budget continues it. Default: no "
            "limit.",
            changeable=True,
        ),
    )
    stop_if: tuple[str, ...] = field(
        default=(),
        validator=are_rules,
        metadata=doc(
            "Rules over the metrics of a step, such as 'entropy < 0.1 for 3 steps': when one "
            "holds, the running episodes are finished and the run ends, with exit status 5; a "
            "resume continues it.",
            changeable=True,
        ),
    )
    alert_if: tuple[str, ...] = field(
        default=(),
        validator=are_rules,
        metadata=doc(
            "Rules of the same form: when one begins to hold, a line says so, and an event.",
            changeable=True,
        ),
    )
    webhook_env: str | None = field(
        default=None,
        metadata=doc(
            "The environment variable with an address that gets a POST for each alert and stop.",
            changeable=True,
        ),
    )
    deterministic: bool = field(
        default=False,
        metadata=doc(
            "Take clock and ids from the seed instead of from the machine. With a scripted model, "
            "the local sandbox and concurrency 1, the same config gives the same episodes, credits "
            "and events to the byte. Durations are 0."
        ),
    )
    open_timeout_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds to open or close a sandbox.", changeable=True),
    )
    setup_timeout_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds for each setup step.", changeable=True),
    )
    grading_timeout_s: float = field(
        default=600.0, validator=gt(0), metadata=doc("Seconds for each criterion.")
    )
    on_sigterm: Literal["cancel", "drain"] = field(
        default="cancel",
        metadata=doc(
            "On a SIGTERM, 'cancel' the running episodes, or 'drain': finish them, as at the first "
            "Ctrl-C; another signal then cancels them.",
            changeable=True,
        ),
    )

    @property
    def most_at_once(self) -> int:
        """As many episodes run at once at most, whatever ``auto`` finds."""
        return MOST_AT_ONCE if self.concurrency == "auto" else self.concurrency


def _temperatures(_: object, __: object, value: tuple[float, ...]) -> None:
    if not value or min(value) < 0:
        raise ValueError(f"expected numbers of at least 0, and at least one, found {list(value)}")
    if len({*value}) < len(value):
        raise ValueError(f"expected different numbers, found {list(value)}")


@frozen(kw_only=True)
class EvaluationOptions:
    """Evaluation during training: section ``evaluation``, without its ``tasks``."""

    every: int = field(
        default=10,
        validator=ge(1),
        metadata=doc("Training steps between evaluations; the first is before step 0."),
    )
    rollouts: int = field(
        default=1, validator=ge(1), metadata=doc("Episodes per task and temperature.")
    )
    temperatures: tuple[float, ...] | None = field(
        default=None,
        validator=optional(_temperatures),
        metadata=doc(
            "Temperatures to sample at, such as [0, 1]. Default: 0 and the model's own if a "
            "trainer trains the model, since success at only one of them says little; otherwise "
            "only its own."
        ),
    )


@frozen(kw_only=True)
class Evaluation:
    """Section ``evaluation``."""

    tasks: Selected
    options: EvaluationOptions


@frozen(kw_only=True)
class RunConfig:
    """A checked config: every part of a run."""

    tasks: Selected
    sandbox: Selected
    llm: Selected | None
    agent: Selected
    chunker: Selected | None
    """None only without a trainer, where its default is not installed; `credit` likewise."""
    credit: Selected | None
    starts: Selected | None
    trainer: Selected | None
    executor: Selected
    launch: Selected | None
    evaluation: Evaluation | None
    middleware: tuple[Selected, ...]
    scorers: tuple[Selected, ...]
    observers: tuple[Selected, ...]
    run: RunOptions
    resolved: dict[str, Any] = field(repr=False)
    """The merged config as plain values with absolute paths, as the manifest stores it."""
    environ: Mapping[str, str] = field(factory=dict, repr=False)
    """Environment variables that override the process's own, from a config format with API keys in
    the file. Never stored."""
    environ_source: Mapping[str, str | None] | None = None
    """Where these are from, for a resume: the file's path and its format. None without any."""
    require: tuple[str, ...] = ()
    """``sandbox.require``: what the sandbox must isolate."""
    launching: LaunchOptions = field(factory=LaunchOptions)
    """Options of the section ``launch`` that every launcher has."""
    plugins: Mapping[str, str] = field(factory=dict)
    """SHA-256 of each file that ``plugins`` names, by absolute path."""
    source: Node | None = field(default=None, repr=False)
    """The merged config as it was written, to say where a problem is."""

    def located(self, problem: Problem) -> Problem:
        """A problem that a part has found, with the file and line of the option it is about.

        That is the one that its path names, or the one whose value is a file that does not exist.
        """
        if problem.file is not None:
            path = None if Path(problem.file).exists() else _option_of(self.resolved, problem.file)
            if path is None:
                return problem
            message = f"{problem.message}: {problem.file}"
            problem = evolve(problem, message=message, path=path, file=None)
        node = self.source
        for key in (problem.path or "").split("."):
            node = (node.get(key) if node else None) or node
        return problem if node is None else evolve(problem, file=node.file, line=node.line)

    @property
    def evaluation_temperatures(self) -> tuple[float | None, ...]:
        """The temperatures of an evaluation; None is the model's own."""
        if self.evaluation is None:
            return ()
        if self.evaluation.options.temperatures is not None:
            return self.evaluation.options.temperatures
        return (None,) if self.trainer is None else (0.0, None)

    @property
    def notes(self) -> list[str]:
        """Notes for the user about how the config was read, a line each."""
        evaluation = None if self.evaluation is None else self.evaluation.tasks
        parts: list[Selected | None] = [getattr(self, section) for section in PARTS]
        parts += [self.launch, evaluation, *self.middleware, *self.scorers, *self.observers]
        chosen = [part for part in parts if part is not None]
        chosen += [each for part in chosen for each in part.inner.values()]
        found = [part.dropped for part in chosen if part.dropped is not None]
        return [*environment_notes(self.source or Node({})), *found]


def _option_of(values: Mapping[str, Any], wanted: str) -> str | None:
    """The dotted path of the option with this value."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = _option_of(value, wanted)
            if inner is not None:
                return f"{key}.{inner}"
        elif value == wanted or (isinstance(value, list | tuple) and wanted in value):
            return key
    return None
