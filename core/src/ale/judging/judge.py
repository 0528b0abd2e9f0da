"""One verdict with everything that an agent has changed, and one without its tools if that matters.

See docs/why/judge.md.
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Literal

from attrs import field, frozen

from ale.errors import GradingError, NoVerdictError, SandboxDamagedError, UnsupportedError
from ale.judging.reference import kept
from ale.judging.replaced import replaced_among, watched
from ale.judging.tools import Scope, tools_among
from ale.protocols import Judge, OpensJudge, Sandbox
from ale.types import CarriedChange, Score, replace

ROUNDS = 4
"""Looks without the agent's tools; each may use others than the one before."""
EVERYTHING = "/"
"""Leaves out all that the agent has changed."""
_NAMED = 8
"""Paths that a detail lists."""
_IN_PLACE = "judged in the agent's own sandbox, whose programs it could change"


@frozen(kw_only=True)
class Place:
    """Where a check is to be run."""

    sandbox: Sandbox
    kind: Literal["judge", "without-tools", "own"]
    """A fresh sandbox with all changes; one without those to tools; the agent's own."""
    judge: Judge | None = None


Check = Callable[[Place], Awaitable[Sequence[Score]]]
_NO_VERDICT = (NoVerdictError, SandboxDamagedError, GradingError)


async def judged(
    sandbox: Sandbox,
    check: Check,
    scope: Scope,
    without: Sequence[str] = (),
    *,
    trusts_processes: bool = False,
) -> tuple[Score, ...]:
    """The scores of a check, in a fresh sandbox with the agent's changes if that can be had.

    Args:
        sandbox: the agent's.
        check: gives as many scores each time; raises `NoVerdictError` where it comes to none.
        without: paths that are never carried.
        trusts_processes: what passes only beside the agent's running processes is not contested.

    Raises:
        What the check raises.
    """
    if "judge" not in sandbox.capabilities.features or not isinstance(sandbox, OpensJudge):
        return await _in_place(sandbox, check, "this sandbox has no other way", trusts_processes)
    try:
        return await _Judging(sandbox, check, scope, tuple(without), trusts_processes).scores()
    except UnsupportedError as error:
        return await _in_place(sandbox, check, str(error), trusts_processes)


def had_no_judge(score: Score) -> bool:
    """Whether a score of `judged` says that it was given in the agent's own sandbox."""
    return f"[{_IN_PLACE}: " in score.detail


async def _in_place(
    sandbox: Sandbox, check: Check, why: str, trusts_processes: bool
) -> tuple[Score, ...]:
    count = await sandbox.left_running() if isinstance(sandbox, OpensJudge) else 0
    scores = await check(Place(sandbox=sandbox, kind="own"))
    note = f"{_IN_PLACE}: {why}"
    if not count or trusts_processes:
        return tuple(_noted(score, note) for score in scores)
    beside = f"{note}; contested: beside its {count} running processes, which could have done it"
    return tuple(
        _noted(replace(score, contested=0.0), beside) if score.value > 0 else _noted(score, note)
        for score in scores
    )


@frozen
class _Judging:
    sandbox: OpensJudge
    check: Check
    scope: Scope
    without: Sequence[str]
    trusts_processes: bool
    _replaced: set[str] = field(factory=set, init=False)
    """Paths of tools of the check that were replaced in a judge by what ran there; or why some may
    have been, without a slash."""

    async def scores(self) -> tuple[Score, ...]:
        scores = await self._seen()
        if self._replaced and any(score.value > 0 for score in scores):
            replaced = sorted(self._replaced - await self._replaced_by_the_check())
            scores = tuple(_in_doubt(score, replaced) for score in scores)
        return scores

    async def _seen(self) -> tuple[Score, ...]:
        """The scores, of which nobody has asked yet what was replaced while the check ran."""
        tools: list[str] = []
        failure: NoVerdictError | None = None
        scores: tuple[Score, ...] = ()
        async with self.sandbox.open_judge(self.without) as judge:
            try:
                scores = await self._in(judge, "judge")
            except NoVerdictError as error:
                failure = error
            if any(score.value > 0 for score in scores):
                used = await judge.used()
                scores = tuple(_resting_on(each, used) for each in scores)
                tools = await self._tools(judge)
        if tools:
            scores = await self._without(tools, scores)
        if failure is not None or any(score.value <= 0 for score in scores):
            return await self._beside(scores, failure)
        return scores

    async def _tools(self, judge: Judge) -> list[str]:
        """Used changes to tools; also notes what was replaced while the check ran."""
        self._replaced.update(await replaced_among(judge, self.scope))
        return await tools_among(judge, self.scope)

    async def _replaced_by_the_check(self) -> set[str]:
        """The paths that the check replaces itself, where nothing of the agent's is."""
        try:
            async with self.sandbox.open_judge((*self.without, EVERYTHING)) as judge:
                with contextlib.suppress(*_NO_VERDICT):
                    await self._in(judge, "without-tools")
                found = await replaced_among(judge, self.scope)
                return {path for path in found if path.startswith("/")}
        except _NO_VERDICT:
            return set()

    async def _in(self, judge: Judge, kind: Literal["judge", "without-tools"]) -> tuple[Score, ...]:
        await judge.watch(watched(self.scope))
        return tuple(await self.check(Place(sandbox=judge.sandbox, kind=kind, judge=judge)))

    async def _without(self, tools: list[str], scores: tuple[Score, ...]) -> tuple[Score, ...]:
        """Look again without the changed tools, until none of the agent's is used."""
        left_out, lowest = list(tools), list(scores)
        for _ in range(ROUNDS):
            clean, tools = await self._clean(left_out)
            left_out += tools
            lowest = [_lower(old, new) for old, new in zip_longest(lowest, clean or ())]
            decided = all(
                low.value < score.value
                for low, score in zip(lowest, scores, strict=True)
                if score.value > 0
            )
            if not tools or decided:
                break
        said = f"changes to what the check itself uses: {_listed(left_out)}"
        pairs = zip(scores, lowest, strict=True)
        return tuple(_compared(score, low, said, sure=not tools) for score, low in pairs)

    async def _clean(self, left_out: Sequence[str]) -> tuple[tuple[Score, ...], list[str]]:
        """The scores without some changes, none where there is no verdict; tools still used."""
        try:
            async with self.sandbox.open_judge((*self.without, *left_out)) as judge:
                scores = await self._in(judge, "without-tools")
                tools = await self._tools(judge)
        except _NO_VERDICT:
            return (), []
        return scores, [path for path in tools if path not in left_out]

    async def _beside(
        self, scores: tuple[Score, ...], failure: NoVerdictError | None
    ) -> tuple[Score, ...]:
        """Look beside the agent's processes, which a judge reaches over the network alone."""
        count = await self.sandbox.left_running()
        if not count:
            if failure is not None:
                raise failure
            return scores
        assert isinstance(self.sandbox, Sandbox)
        try:
            there = await self.check(Place(sandbox=self.sandbox, kind="own"))
        except _NO_VERDICT:
            if failure is not None:
                raise
            return scores
        return tuple(self._other(old, new, count) for old, new in zip_longest(scores, there))

    def _other(self, score: Score | None, there: Score, count: int) -> Score:
        """The score beside processes, where it is the higher one of a failure."""
        value = 0.0 if score is None else score.value
        if score is not None and (value > 0 or there.value <= value):
            return score
        if there.value <= value:
            return there
        said = f"{there.value:g} beside the agent's {count} running processes"
        fresh = f"{value:g} in a fresh sandbox"
        if self.trusts_processes:
            return _noted(there, f"{said}, which the task keeps; {fresh}")
        note = f"contested: {said}, which could have done it; {fresh}"
        return _noted(replace(there, contested=value), note)


def _resting_on(score: Score, used: Sequence[CarriedChange]) -> Score:
    """A score that says which changes the check has used, if it passes."""
    if score.value <= 0:
        return score
    paths = [change.path for change in used if change.kind != "removed"]
    note = f"files of the agent that were used: {_listed(paths)}" if paths else ""
    return _noted(replace(score, used=kept(used)), note)


def _lower(old: Score, new: Score | None) -> Score:
    """The lower one of two scores; a failure where there is no second."""
    if new is None:
        return replace(old, value=0.0, passed=False)
    return new if new.value <= old.value else old


def _compared(score: Score, low: Score, said: str, *, sure: bool) -> Score:
    """A score and its second look, without some changes of the agent's.

    Args:
        sure: in the last look no more of them were used.
    """
    if score.value <= 0:
        return score
    if low.value < score.value or not sure:
        note = f"contested: {score.value:g} with, {low.value:g} without the agent's {said}"
        return _noted(replace(score, contested=low.value), note)
    same = replace(score, contested=low.contested)
    return _noted(same, f"the same without the agent's {said}")


def _in_doubt(score: Score, replaced: Sequence[str]) -> Score:
    """A score for which something may have been replaced that decided it."""
    if not replaced or score.value <= 0:
        return score
    paths = [path for path in replaced if path.startswith("/")]
    said = f"contested: while the check ran, what it runs with was replaced: {_listed(paths)}"
    if not paths:
        said = f"contested: what the check runs with could not be watched: {replaced[0]}"
    return _noted(replace(score, contested=0.0), said)


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def _noted(score: Score, note: str) -> Score:
    return replace(score, detail="\n".join(filter(None, (score.detail, note and f"[{note}]"))))
