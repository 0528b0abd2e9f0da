"""The loop: take episodes, learn when a batch is ready, deploy what is not worse."""

from collections.abc import Callable
from contextlib import suppress

from attrs import asdict, define, field

from ale.errors import AleError, InputError, LLMError, StoreError
from ale.learning import Learner
from ale.text import counted
from ale_loop.gate import (
    Compared,
    broke_since,
    broken,
    compare,
    refusal,
    too_few,
    unmeasured,
)
from ale_loop.intake import Intake
from ale_loop.options import LoopOptions
from ale_loop.record import (
    DEPLOYED,
    REFUSED,
    RESTORED,
    UNCHANGED,
    Decision,
    Request,
    answer,
    asked,
    decided,
    decisions,
    deployed,
    in_use,
)
from ale_loop.serving import Serving


@define(kw_only=True)
class Service:
    """One session of a loop. What was decided before is read from the event log alone."""

    options: LoopOptions
    learner: Learner
    intake: Intake
    serving: Serving
    report: Callable[[str], None]
    _decisions: list[Decision] = field(factory=list, init=False)
    _waits: bool = field(default=False, init=False)
    """Was it said that a batch waits for the window?"""
    _full: int = field(default=0, init=False)
    """Groups of the next batch that were said to be full."""
    _retry_at: float = field(default=0.0, init=False)
    """After an outage: when a step is tried again, seconds of the clock; 0: there was none."""

    async def run(self) -> str:
        """Continue until it shall end; returns the run's outcome.

        Raises:
            InputError: the config does not fit, or a run can't be read.
            AleError: the deployed version can't be measured.
            StoreError: the disk is full.
        """
        await self.begin()
        while not self.learner.draining:
            self.intake.take(self.learner)
            self._say_how_full()
            await self.restore_asked()
            await self.serve()
            if self._may_learn():
                await self._step()
            else:
                await self.learner.wait(self.options.poll_s)
        return "drained"

    async def begin(self) -> None:
        """Load the deployed version, and hand it over."""
        self._decisions = decisions(self.learner.events())
        self.serving.check(self.learner.snapshot())
        if not self._decisions:
            await self.learner.begin()
        await self.learner.load(self.deployed)
        self._forget()
        await self.serve()

    @property
    def deployed(self) -> int:
        """The version that servers have, or are to have."""
        return deployed(self._decisions)

    async def serve(self) -> bool:
        """Hand over the deployed version, which is loaded, where servers lack it."""
        return await self.serving.give(self.deployed, self.learner.snapshot())

    def _say_how_full(self) -> None:
        """Tell how much of the next batch there is, each time that another group of it is full."""
        full, batch = min(self.learner.waiting, self.learner.batch), self.learner.batch
        if full > self._full:
            version = decided(self._decisions) + 1
            self.report(f"{full} of {batch} groups for version {version}")
        self._full = full

    def _may_learn(self) -> bool:
        version = decided(self._decisions) + 1
        if not (self.learner.ready or self.learner.begun(version - 1)):
            return False
        if self.learner.clock() < self._retry_at:
            return False
        window = self.options.window
        if window is None or window.contains(self.learner.clock()):
            self._waits = False
            return True
        if not self._waits:
            self._waits = True
            waiting = counted(self.learner.waiting, "group")
            self.report(f"{waiting} wait for {window} to be learned from")
        return False

    async def _step(self) -> None:
        """Learn from a batch, compare, and deploy or refuse the new version.

        The deployed version is loaded before, and after it, unless it ends in between. In an outage
        nothing is decided, and the same version is tried again later.
        """
        try:
            if self._retry_at:  # the model may have been out of reach when it was loaded
                await self.learner.load(self.deployed)
                self._retry_at = 0.0
            version = decided(self._decisions) + 1
            if await self._measured() and await self._learned(version):
                await self._decide(version)
        except LLMError as error:
            await self._put_off(str(error))

    async def _learned(self, version: int) -> bool:
        """Make a new version, which is then loaded; False where there is none, which is noted."""
        made = self.learner.kept(version)
        if made:  # killed, or put off, before it was decided
            await self.learner.load(version)
        before = self.learner.snapshot().version
        try:
            await self.learner.learn(version - 1)
        except (InputError, StoreError, LLMError):
            raise
        except AleError as error:
            await self._refuse(version, f"training failed: {error}", [])
            return False
        if not made and self.learner.snapshot().version == before:
            self._note(UNCHANGED, version, "no update was made of its batch", [])
            self._forget()
            return False
        return True

    async def _decide(self, version: int) -> None:
        """Deploy or refuse a new version, which is loaded, unless it ends in between."""
        if not await self.learner.evaluate(version):
            return
        excused = await self._excused(version)
        if excused is None:
            return
        deployed, new = map(self.learner.evaluated, (self.deployed, version))
        found = compare(deployed, new, excused)
        if excused and too_few(found, self.options.gate):
            n = counted(len(excused), "held-out task")
            await self._put_off(f"{n} broke, under version {self.deployed}, which is deployed, too")
            return
        reason = refusal(found, self.options.gate)
        if reason is None:
            self._note(DEPLOYED, version, "", found)
            self._forget()
            await self.serve()
        else:
            await self._refuse(version, reason, found)

    async def _excused(self, version: int) -> set[str] | None:
        """The held-out tasks that a new version, which is loaded, is not to blame for.

        Those that broke are evaluated again, between two evaluations of the same tasks under the
        deployed version: what breaks there too is an outage. None after a Ctrl-C.
        """
        excused: set[str] = set()
        for of in (self.deployed, version, self.deployed):
            deployed, new = map(self.learner.evaluated, (self.deployed, version))
            tasks = broken(deployed, new) - excused
            if not tasks:
                break
            n = counted(len(tasks), "held-out task")
            self.report(f"version {of}: {n} that broke under version {version} evaluated again")
            await self.learner.load(of)
            again = tasks if of == self.deployed else None
            if not await self.learner.evaluate_again(of, again):
                return None
            if of == self.deployed:
                excused |= broke_since(deployed, self.learner.evaluated(of))
        await self.learner.load(version)
        return excused

    async def _put_off(self, reason: str) -> None:
        version, wait = decided(self._decisions) + 1, self.options.gate.retry_s
        self._retry_at = self.learner.clock() + wait
        self.report(
            f"version {version} is neither deployed nor refused, since it can't be measured now: "
            f"{reason}; it is tried again in {wait:g} seconds"
        )
        with suppress(LLMError):  # the trainer has it; the model gets it before the next try
            await self.learner.load(self.deployed)

    async def _measured(self) -> bool:
        """Has the deployed version, which is loaded, rewards to compare others with?

        The held-out tasks that broke, as in an outage, are evaluated again. False after a Ctrl-C.

        Raises:
            AleError: it has not; no group was used.
        """
        version, gate = self.deployed, self.options.gate
        if unmeasured(self.learner.evaluated(version), gate) is None:
            return True
        self.report(f"version {version}: the held-out tasks that broke are evaluated again")
        if not await self.learner.evaluate_again(version):
            return False
        if reason := unmeasured(self.learner.evaluated(version), gate):
            hint = "mend what broke them, or lower gate.least_graded, and start the loop again"
            raise AleError(f"{reason} under version {version}, which is deployed; {hint}")
        return True

    async def _refuse(self, version: int, reason: str, found: list[Compared]) -> None:
        self._note(REFUSED, version, reason, found)
        await self.learner.load(self.deployed)
        self._forget()

    def _note(self, event: str, version: int, reason: str, found: list[Compared]) -> None:
        compared = [asdict(each) for each in found]
        self.learner.note(event, version=version, reason=reason, compared=compared)
        self._decisions = decisions(self.learner.events())
        made = self._decisions[-1]
        self.report(f"version {version} {made.what}{f': {reason}' if reason else ''}")
        for each in found:
            self.report(f"  {each.line()}")

    async def restore_asked(self) -> str:
        """Deploy the version that ``ale loop restore`` asks for, if it does; what is wrong."""
        request = asked(self.options.directory)
        if request is None:
            return ""
        error = await self.restore(request)
        answer(self.options.directory, request, error)
        return error

    async def restore(self, request: Request) -> str:
        """Deploy an earlier version; what is wrong, or nothing."""
        if request.version not in self.restorable():
            kept = ", ".join(map(str, self.restorable()))
            return f"version {request.version} can't be restored; expected one of {kept}"
        if request.version != self.deployed:
            undecided = decided(self._decisions) + 1
            try:
                await self.learner.load(request.version)
            except AleError as error:
                await self.learner.load(self.deployed)
                return f"version {request.version} can't be restored: {error}"
            if self.learner.kept(undecided):  # killed before it was decided
                self._note(REFUSED, undecided, "an earlier version was restored", [])
            self._note(RESTORED, request.version, "", [])
            self._forget()
        served = await self.serve()
        return "" if served else f"version {request.version} is deployed as soon as servers answer"

    def restorable(self) -> list[int]:
        """The versions that were deployed and are kept."""
        were = {0, *in_use(self._decisions)}
        return [version for version in self.learner.versions() if version in were]

    def _forget(self) -> None:
        """Remove the checkpoints that will not be loaded again."""
        restorable = self.restorable()
        undecided = decided(self._decisions) + 1
        keep = {*restorable[-self.options.keep :], self.deployed, undecided}
        for version in self.learner.versions():
            if version not in keep:
                self.learner.forget(version)
