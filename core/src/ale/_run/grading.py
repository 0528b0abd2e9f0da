"""Grade a task: ask each criterion, in a sandbox that the model can't have prepared for it."""

import math
import sysconfig
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import isawaitable
from numbers import Real
from pathlib import Path
from typing import Any, Literal

from attrs import define, frozen

from ale._run.parts import PreparedTask
from ale._run.timeouts import OverdueError, Supervisor
from ale._store.codec import invalid_record
from ale.errors import (
    AleError,
    GradingError,
    NoVerdictError,
    SandboxDamagedError,
    SandboxError,
    SandboxLostError,
)
from ale.judging import Place, Scope, judged, named_in
from ale.protocols import Criterion, JudgesItself, NeedsTools, RunsPrograms, Sandbox
from ale.types import Capabilities, CriterionSpec, Score, Stop, Task, Trajectory, replace


@define
class Damage:
    """Damage to the sandbox of one attempt at an episode.

    Args:
        lost: what a sandbox that ended for an unknown reason counts as, ``run.lost_sandbox``.
    """

    lost: Literal["broken", "failed"] = "broken"
    began: bool = False
    """The agent has begun. What was damaged before was not damaged by it."""
    message: str | None = None
    """How the sandbox was damaged; None: no damage is known."""

    def caused(self, error: Exception) -> bool:
        """Does this error follow from what the agent did to the sandbox? Notes the damage.

        With known damage, a sandbox that fails, and a criterion that can't be evaluated in it, are
        consequences.
        """
        if not self.began:
            return False
        chain = list(_chain(error))
        kinds = _ENDED if self.lost == "failed" else SandboxDamagedError
        if found := next((each for each in chain if isinstance(each, kinds)), None):
            self.note(str(found))
        later = any(isinstance(each, _UNABLE) for each in chain)
        return self.message is not None and later

    async def found(self, error: Exception, sandbox: Sandbox) -> bool:
        """Could a criterion not be evaluated because the agent's sandbox runs no command any more?

        Looks, as a criterion can't tell what is missing from what the agent took away.
        """
        if not self.began or not any(isinstance(each, _UNABLE) for each in _chain(error)):
            return False
        try:
            result = await sandbox.exec(_SHELL, timeout_s=_LOOK_S)
        except SandboxError as failed:
            return self.caused(failed)
        if result.exit_code == 0:
            return False
        said = result.stderr.decode(errors="replace").strip()
        if result.timed_out:  # a fresh sandbox tells this from a machine that is too slow
            said = f"none ends within {_LOOK_S:g} s"
        self.message = f"no command can be run in {sandbox.workdir}: {said}"
        return True

    def note(self, message: str) -> None:
        """Note damage; of several, the first is kept."""
        self.message = self.message or message

    def stop(self) -> Stop:
        """Why the agent stopped, if damage ended it."""
        return Stop(reason="agent_error", detail=f"the sandbox was damaged: {self.message}")

    def score(self, spec: CriterionSpec) -> Score:
        """The score of a criterion that can't be evaluated any more."""
        detail = f"the agent damaged the sandbox: {self.message}"
        return Score(
            criterion=spec.type, passed=False, value=0.0, weight=spec.weight, detail=detail
        )


_ENDED = (SandboxDamagedError, SandboxLostError)
_UNABLE = (SandboxError, GradingError)
_LOOK_S = 30.0
_SHELL = ("/bin/sh", "-c", "exit 0")
"""As criteria start it: a backend may have a shell of its own for what is given as a line."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it came from."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        following = following.__cause__ or following.__context__
    yield from seen


async def check_works(fresh: Sandbox, damage: str) -> None:
    """Check that a fresh sandbox of the same task runs commands in time: else it was not the agent.

    Raises:
        SandboxError: it does not.
    """
    session = await fresh.session()
    results = (
        await fresh.exec(_SHELL, timeout_s=_LOOK_S),
        await session.run("(exit 0)", timeout_s=_LOOK_S),
    )
    if codes := [result.exit_code for result in results if result.exit_code != 0]:
        raise SandboxError(f"{damage}; a fresh sandbox of the task fails too, with {codes[0]}")


REMARK = "the agent's commands could replace the programs with which this was graded"
"""Added to the detail of a score where that is so."""
_ROOT = ("root", "0")


@define
class Places:
    """The sandboxes in which one task, or one of its steps, is graded."""

    own: Sandbox
    """The agent's."""
    used: bool
    """Code of the model may have run in it."""
    fresh: Callable[[], AbstractAsyncContextManager[Sandbox]]
    """Opens another one, set up for the task."""
    ended: int = 0
    """How many processes that the agent had left running were ended."""

    @asynccontextmanager
    async def of(self, criterion: Criterion) -> AsyncIterator[Sandbox]:
        """The sandbox for a criterion.

        Raises:
            AleError: it could not be opened or set up.
        """
        if isinstance(criterion, RunsPrograms) and not criterion.needs_workspace and self.used:
            async with self.fresh() as sandbox:
                yield sandbox
            return
        self.used = True
        yield self.own

    async def check(self, damage: str) -> None:
        """Check that a fresh sandbox works, so that it was the answer that did the damage.

        Raises:
            AleError: it does not, or could not be opened or set up.
        """
        async with self.fresh() as sandbox:
            await check_works(sandbox, damage)

    def judges(self, criterion: Criterion) -> bool:
        """Whether a criterion looks at what the agent left, and a fresh sandbox can have it."""
        judged = isinstance(criterion, RunsPrograms) and criterion.needs_workspace
        can = "judge" in self.own.capabilities.features
        return judged and self.used and can and not isinstance(criterion, JudgesItself)

    def remark(self, criterion: Criterion, task: Task) -> str:
        """The remark on the agent's sandbox for the detail of a score; empty if there is none."""
        looks = isinstance(criterion, RunsPrograms) and criterion.needs_workspace
        said = []
        if self.used and looks and self.ended:
            were = "process of the agent was" if self.ended == 1 else "processes of the agent were"
            said.append(f"{self.ended} {were} ended before the check")
        if self.used and can_mislead(criterion, task, self.own.capabilities):
            said.append(REMARK)
        return "\n".join(said)


def opens_judge(criterion: Criterion) -> bool:
    """Whether a criterion is graded in a judge, where the sandbox can open one."""
    if isinstance(criterion, JudgesItself):
        return criterion.opens_judge
    return isinstance(criterion, RunsPrograms) and criterion.needs_workspace


def can_mislead(criterion: Criterion, task: Task, sandbox: Capabilities) -> bool:
    """Can commands of the agent replace programs that a criterion runs beside them?"""
    if not (isinstance(criterion, RunsPrograms) and criterion.needs_workspace):
        return False
    if isinstance(criterion, JudgesItself) or "judge" in sandbox.features:
        return False
    user = task.environment.agent_user or task.environment.user
    is_root = user is None or user.partition(":")[0] in _ROOT
    return sandbox.system_writable and is_root


async def grade(
    step: PreparedTask,
    trajectory: Trajectory,
    places: Places,
    supervisor: Supervisor,
    timeout_s: float,
    damage: Damage,
) -> tuple[Score, ...]:
    """One score per criterion, in the order of the criteria.

    Args:
        places: where each criterion is graded.
        timeout_s: time limit for each criterion, in seconds.
        damage: what the agent has done to the sandbox; a criterion that fails for it gives 0.

    Raises:
        GradingError: a criterion took too long, or returned an invalid score.
        AleError: the sandbox for a criterion could not be opened or set up.
    """
    grader = _Grader(step.task, trajectory, places, supervisor, timeout_s, damage)
    scores: list[Score | None] = [None] * len(step.criteria)
    together = [n for n, (_, criterion) in enumerate(step.criteria) if places.judges(criterion)]
    for n, (spec, criterion) in enumerate(step.criteria):
        if n in together:
            continue
        said = places.remark(criterion, step.task)
        async with places.of(criterion) as sandbox:
            scores[n] = _checked(
                spec, criterion, await grader.score(spec, criterion, sandbox), said
            )
    if together:
        found = await grader.judged([step.criteria[n] for n in together])
        for n, score in zip(together, found, strict=True):
            scores[n] = score
    return tuple(score for score in scores if score is not None)


def _checked(spec: CriterionSpec, criterion: Criterion, score: Score, said: str = "") -> Score:
    """A score as it is stored.

    Args:
        said: added to its detail.

    Raises:
        GradingError: it is invalid.
    """
    if problem := _problem(score):
        name = _named(spec, criterion)
        raise GradingError(f"{name} returned an invalid score: {problem}: {score!r}")
    # A scalar of numpy becomes a number of Python, which every executor can send.
    passed, value = bool(score.passed), float(score.value)
    detail = "\n".join(filter(None, (score.detail, said)))
    return replace(score, passed=passed, value=value, weight=spec.weight, detail=detail)


@frozen
class _Grader:
    """Grades one task, or one of its steps."""

    task: Task
    trajectory: Trajectory
    places: Places
    supervisor: Supervisor
    timeout_s: float
    """Time limit for each criterion."""
    damage: Damage

    async def judged(
        self, criteria: Sequence[tuple[CriterionSpec, Criterion]]
    ) -> tuple[Score, ...]:
        """The scores of some criteria, in the same sandboxes: one may build what another looks at.

        Raises as `grade`.
        """

        async def check(place: Place) -> Sequence[Score]:
            ask = self._second if place.kind == "without-tools" else self.score
            return [
                _checked(
                    spec,
                    criterion,
                    await ask(spec, criterion, place.sandbox, theirs=True),
                    self.places.remark(criterion, self.task),
                )
                for spec, criterion in criteria
            ]

        texts = [text for spec, _ in criteria for text in _texts(spec.options)]
        # Tests may be files of this machine.
        files = [Path(text) for text in texts if text.startswith("/") and "\0" not in text]
        scope = Scope(
            workdir=self.places.own.workdir,
            names=named_in(texts, files),
            reference=self.task.reference_used,
            reference_contested=self.task.reference_contested,
        )
        trusts = self.task.keep_processes
        try:
            return await judged(self.places.own, check, scope, trusts_processes=trusts)
        except SandboxError as error:
            if not self.damage.caused(error):
                raise
        return tuple(
            _checked(spec, criterion, self.damage.score(spec)) for spec, criterion in criteria
        )

    async def _second(
        self, spec: CriterionSpec, criterion: Criterion, sandbox: Sandbox, *, theirs: bool
    ) -> Score:
        """The score in a second look, which blames nobody."""
        score = await self._asked(spec, criterion, sandbox)
        return await _with_tools(criterion, score, self.task, sandbox, self.places)

    async def score(
        self, spec: CriterionSpec, criterion: Criterion, sandbox: Sandbox, *, theirs: bool = False
    ) -> Score:
        """The score of one criterion, or 0 for what the agent did to its sandbox.

        Args:
            theirs: the agent's files are in the sandbox, though it is not the agent's own.
        """
        damage, is_own = self.damage, theirs or sandbox is self.places.own
        try:
            score = await self._verdict(spec, criterion, sandbox, is_own)
        except Exception as error:
            # In another sandbox than the agent's own, damage was done by the answer run there.
            done = damage if is_own else Damage(lost=damage.lost, began=True)
            if not (done.caused(error) or await done.found(error, sandbox)):
                raise
            if done is not damage:
                await self.places.check(str(done.message))
            return done.score(spec)
        return await _with_tools(criterion, score, self.task, sandbox, self.places)

    async def _verdict(
        self, spec: CriterionSpec, criterion: Criterion, sandbox: Sandbox, is_own: bool
    ) -> Score:
        """The criterion's own score; after `NoVerdictError` that of a second try.

        Notes damage and raises the error if neither has a verdict, and a fresh sandbox has one.
        """
        try:
            return await self._asked(spec, criterion, sandbox)
        except NoVerdictError as error:
            if not (self.damage.began and is_own) or await self.damage.found(error, sandbox):
                raise
        try:
            return await self._asked(spec, criterion, sandbox)
        except NoVerdictError as error:
            async with self.places.fresh() as start:
                await self._asked(spec, criterion, start)
            self.damage.note(f"in a fresh sandbox there is a verdict, in the agent's none: {error}")
            raise

    async def _asked(self, spec: CriterionSpec, criterion: Criterion, sandbox: Sandbox) -> Score:
        grading = criterion.grade(self.task, self.trajectory, sandbox)
        if not isawaitable(grading):
            name = _named(spec, criterion)
            raise GradingError(f"{name} is not asynchronous: write 'async def grade'")
        name = f"criterion '{spec.type}'"
        try:
            return await _in_time(grading, self.supervisor, self.timeout_s, name)
        except AleError:
            raise
        except Exception as error:
            error.add_note(f"{name}, {_place(error)}")
            raise


def _texts(options: object) -> Iterator[str]:
    """Every text in the options of a criterion."""
    if isinstance(options, str):
        yield options
    elif isinstance(options, Mapping):
        for value in options.values():
            yield from _texts(value)
    elif isinstance(options, Sequence) and not isinstance(options, bytes):
        for value in options:
            yield from _texts(value)


def _place(error: Exception) -> str:
    """``FILE:LINE`` of the innermost call that is not in Python's own or an installed library."""
    libraries = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _named(spec: CriterionSpec, criterion: Criterion) -> str:
    return f"criterion '{spec.type}' ({type(criterion).__qualname__})"


async def _in_time(
    grading: Coroutine[Any, Any, Score], supervisor: Supervisor, timeout_s: float, name: str
) -> Score:
    try:
        return await supervisor.run(grading, timeout_s, name)
    except OverdueError as error:
        raise GradingError(str(error)) from error


async def _with_tools(
    criterion: object, score: Score, task: Task, sandbox: Sandbox, places: Places
) -> Score:
    """The score; 0 for a pass that the agent got by taking away what the check needs.

    Raises:
        GradingError: the check lacks something that the agent had no part in.
    """
    passed = isinstance(score, Score) and score.value == 1
    if not isinstance(criterion, NeedsTools) or not isinstance(score, Score):
        return score
    if passed and not getattr(criterion, "passes_without_tools", False):
        return score
    try:
        missing = await criterion.lacking(task, sandbox, untouched=False)
    except AleError:  # the agent's sandbox does not answer: nothing says that the score is wrong
        return score
    if not missing:
        return score
    async with places.fresh() as start:
        before = await criterion.lacking(task, start, untouched=True)
    if lacking := sorted({*missing} & {*before}):
        names = ", ".join(map(repr, lacking))
        raise GradingError(
            f"the check can't run: the task's own sandbox lacks {names}, also before an agent has "
            "worked in it; install it in the image or in 'setup', or name it in the goal if the "
            "agent is to provide it"
        )
    if not passed:
        return score
    names = ", ".join(map(repr, sorted(missing)))
    detail = f"{score.detail}\nthe sandbox has no {names} any more, which it had before the agent"
    return replace(score, passed=False, value=0.0, detail=detail)


def _problem(score: Score) -> str | None:
    """The problem with the score that a criterion returned, or None."""
    if not isinstance(score, Score):
        return "not a Score"
    # Before the types are checked, which for NaN would say that there is no number.
    if isinstance(score.value, Real) and not math.isfinite(score.value):
        return "its value is not finite"
    if problem := invalid_record(score):
        return problem
    if not score.unbounded and not 0.0 <= score.value <= 1.0:
        return "its value is not in [0, 1]"
    if score.passed != (score.value == 1.0):
        return "'passed' is true exactly when 'value' is 1"
    return None


def reward(scores: tuple[Score, ...]) -> float:
    """Weighted mean of the criteria's values."""
    # Over a power of two, which is exact: large weights have a sum, and small ones a product.
    _, exponent = math.frexp(max(score.weight for score in scores))
    weights = [math.ldexp(score.weight, -exponent) for score in scores]
    parts = [weight * score.value for weight, score in zip(weights, scores, strict=True)]
    return math.fsum(parts) / math.fsum(weights)
