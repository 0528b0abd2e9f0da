"""Run the jobs of a run in another process, for authors of executors.

A run gives its executor a `RunSpec`, which is plain data, and one `Job` after the other. Anywhere
else, a `Worker` builds from that spec the parts that sample and grade, and nothing else: no task
source, trainer, observer or run directory. Its secrets come from its own environment; those of the
run are never sent::

    worker = Worker.build(spec, Registry.installed())
    await worker.prune()
    episode = await worker.run(job)
    await worker.aclose()

`encode` and `decode` turn specs, jobs and episodes into JSON and back.

What can't leave the run's process is refused before the run starts: start schemes, whose experts
are there, and a model whose weights a trainer updates there (`ale.protocols.ServedPolicy` is one
that can be asked from anywhere). A worker keeps no files of a criterion (`Score.kept`), since it
has no run directory.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from attrs import field, frozen

from ale._config import RunOptions
from ale._config.auto import not_isolated, refusal
from ale._config.load import required_isolation, select
from ale._config.plugin_files import changed_files, load_plugin_files
from ale._registry import Registry
from ale._run.episode import EpisodeRunner
from ale._run.manifest import versions
from ale._run.parts import PreparedTask, WorkerParts, build, missing_features, not_pruned, prepare
from ale._run.session import REFUSED
from ale._run.start import close_parts, secret_names, seeded_clocks
from ale._store import Redactor
from ale._store.codec import encode
from ale.errors import InputError, Problem
from ale.plugin import BuildContext
from ale.protocols import CountsRefusals, Start
from ale.strict import Node, from_plain, structure
from ale.strict.structuring import Problems
from ale.types import Episode, Failure, Job, RunSpec, Stage, Stop, Trajectory, replace

__all__ = ["WORKER", "Worker", "broken", "decode", "encode"]

T = TypeVar("T")
WORKER = "worker"
"""Key of an episode's metadata: the name of the worker that ran it."""
_FILE = "the run's config"


def decode(data: bytes, cls: type[T]) -> T:
    """A `RunSpec`, `Job` or `Episode` from JSON.

    Raises:
        msgspec.MsgspecError: it is something else.
    """
    return msgspec.json.decode(data, type=cls)


def broken(job: Job, kind: str, message: str, *, stage: Stage = "queued") -> Episode:
    """The episode of a job that could not be run: broken, without a reward.

    Args:
        kind: of the failure, like the name of an error class: ``WorkerLostError``.
    """
    return job.episode(
        reward=None,
        trajectory=Trajectory(stop=Stop(reason="agent_error", detail="the job was not run")),
        failure=Failure(stage=stage, kind=kind, message=message),
    )


@frozen(kw_only=True)
class Worker:
    """Runs jobs of one run, any number at once."""

    spec: RunSpec
    sandbox: str
    """Name of the sandbox."""
    name: str
    """Stands in the metadata of its episodes; empty: in none."""
    _registry: Registry = field(repr=False)
    _runner: EpisodeRunner = field(repr=False)
    _redactor: Redactor = field(repr=False)
    _prepared: dict[tuple[str, str], PreparedTask] = field(factory=dict, repr=False)
    _told: "Counter[str]" = field(factory=Counter, repr=False)
    """Numbers that its episodes have said so far, by their key."""

    @classmethod
    def build(
        cls,
        spec: RunSpec,
        registry: Registry,
        environ: Mapping[str, str] | None = None,
        *,
        name: str = "",
        require: Collection[str] = (),
        readable: Collection[str] | None = None,
    ) -> "Worker":
        """The parts of a run, built in this process.

        Args:
            registry: an `ale.runs.Registry`; plugin files of the config are added to it.
            environ: to read secrets from; default: that of the process.
            name: of the worker, for its episodes.
            require: what the sandbox must isolate, beside what the config requires: ``network``,
                ``files``, ``processes``.
            readable: the variables that the parts get; default: all. The others are masked too.

        Raises:
            InputError: with every problem: another version of a package than the run has, a part
                that is not installed or can't be built here, a sandbox that isolates less than the
                config requires.
        """
        environ = dict(os.environ) if environ is None else environ
        root = from_plain(dict(spec.config), file=_FILE)
        files = load_plugin_files(root, registry)
        differences = [*_differences(spec, registry, files)]
        if differences:  # whatever else is wrong may follow from them
            raise InputError(differences)
        options = structure(root.get("run") or Node({}, _FILE), RunOptions, path="run")
        context = BuildContext(
            seed=options.seed,
            run_id=spec.run_id,
            created=spec.created,
            staleness=options.staleness,
            tags={"run": spec.run_id},
            environ={k: v for k, v in environ.items() if readable is None or k in readable},
            **(seeded_clocks(options.seed) if options.deterministic else {}),
        )
        parts, sandbox = _build_parts(root, registry, context, require)
        return cls(
            spec=spec,
            sandbox=sandbox,
            name=name,
            registry=registry,
            runner=EpisodeRunner(parts=parts, options=options, context=context),
            redactor=Redactor(environ, secret_names(spec.config)),
        )

    async def prune(self) -> str | None:
        """Remove what processes that are no longer alive have left of this kind of sandbox.

        Returns:
            Why it could not, which keeps no job from being run; None where it could.
        """
        try:
            await self._runner.parts.sandbox.prune()
        except Exception as error:
            return not_pruned(self.sandbox, error)
        return None

    async def run(
        self, job: Job, on_stage: Callable[[Job, Stage], None] = lambda job, stage: None
    ) -> Episode:
        """The episode of a job, as a local run would have it; a broken one is tried again.

        The secrets of this process are masked in it.

        Raises nothing but `CancelledError`: a failure is in the result.
        """
        try:
            prepared = self._prepare(job)
        except InputError as error:
            return broken(job, "InputError", str(error))
        start = Start(task_id=job.task.id, rollouts=1, name=job.start)
        episode = await self._runner.run(job, prepared, start, on_stage)
        if more := {**({WORKER: self.name} if self.name else {}), **self._refused()}:
            episode = replace(episode, metadata={**episode.metadata, **more})
        data = encode(episode)
        masked = self._redactor.scrub_json(data)
        return episode if masked is data else decode(masked, Episode)

    def _refused(self) -> Mapping[str, int]:
        """The requests that were refused since this was asked before; empty for none."""
        llm = self._runner.parts.llm
        total = llm.refused if isinstance(llm, CountsRefusals) else 0
        new, self._told[REFUSED] = total - self._told[REFUSED], total
        return {REFUSED: new} if new else {}

    def _prepare(self, job: Job) -> PreparedTask:
        key = (job.split, job.task.id)
        known = self._prepared.get(key)
        if known is None or known.task != job.task:
            if problems := missing_features(job.task, self._runner.parts.sandbox):
                raise InputError(problems)
            known = prepare(job.task, self._registry, self._runner.context)
            self._prepared[key] = known
        return known

    async def aclose(self) -> Sequence[str]:
        """Close model and sandbox; what could not be closed, a message each."""
        failed: list[str] = []
        await close_parts(self._runner.parts, self._runner.supervisor, failed.append)
        return failed


def _differences(spec: RunSpec, registry: Registry, files: Mapping[str, str]) -> Iterator[Problem]:
    """Packages and plugin files that are not those of the run."""
    here, names = versions(registry), {path.name for path in registry.files}
    for name, theirs in spec.versions.items():
        if name in here and here[name] != theirs and name not in names:
            message = f"the run has {name} {theirs}, this worker has {here[name]}"
            yield Problem(message=message, hint=f"install {name}=={theirs} here")
    for path in changed_files(dict(spec.plugin_files), files):
        message = "this file differs from the one that the run has loaded"
        yield Problem(message=message, file=path)


def _build_parts(
    root: Node, registry: Registry, context: BuildContext, require: Collection[str]
) -> tuple[WorkerParts, str]:
    """The parts, and the name of the sandbox."""
    problems = Problems()

    def make(node: Node, kind: str) -> tuple[str, Any]:
        selected = select(node, kind, registry, path=kind)
        return selected.name, build(selected, context)

    made: dict[str, Any] = {
        kind: problems.collect(partial(make, node, kind))
        for kind in ("sandbox", "llm", "agent")
        if (node := root.get(kind)) is not None
    }
    section = root.get("middleware")
    middleware = tuple(
        problems.collect(partial(make, node, "middleware"))
        for node in (section and section.items) or ()
    )
    problems.raise_all()
    name, backend = made["sandbox"]
    required = {*require, *required_isolation(root.get("sandbox"))}
    if refused := refusal(not_isolated(backend.capabilities), required):
        message = f"sandbox '{name}' {refused} on this machine"
        raise InputError.of(message, path="sandbox.require")
    _, llm = made.get("llm", (None, None))
    _, agent = made["agent"]
    return WorkerParts(sandbox=backend, llm=llm, agent=agent, middleware=middleware), name
