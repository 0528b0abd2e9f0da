"""One verdict with everything that an agent has changed, and one without its tools if that matters.

See docs/why/judge.md.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from attrs import frozen

from ale.errors import GradingError, NoVerdictError, SandboxDamagedError, UnsupportedError
from ale.protocols import Judge, OpensJudge, Sandbox
from ale.types import Score, replace
from ale_grading.judging.tools import Scope, tools_among

ROUNDS = 4
"""Looks without the agent's tools; each may use others than the one before."""
_NEVER = ("__pycache__",)
"""Never carried: Python writes it anew."""
_NAMED = 8
"""Paths that a detail lists."""


@frozen(kw_only=True)
class Place:
    """Where a check is to be run."""

    sandbox: Sandbox
    kind: Literal["judge", "without-tools", "own"]
    """A fresh sandbox with all changes; one without those to tools; the agent's own."""
    judge: Judge | None = None


Check = Callable[[Place], Awaitable[Score]]


async def judged(
    sandbox: Sandbox, check: Check, scope: Scope, without: Sequence[str] = ()
) -> Score:
    """The score of a check, in a fresh sandbox with the agent's changes if that can be had.

    Args:
        sandbox: the agent's.
        check: raises `NoVerdictError` where it comes to none.
        without: paths that are never carried.

    Raises:
        What the check raises.
    """
    if "judge" not in sandbox.capabilities.features or not isinstance(sandbox, OpensJudge):
        return await _in_place(sandbox, check, "this sandbox has no other way")
    try:
        return await _Judging(sandbox, check, scope, (*_NEVER, *without)).score()
    except UnsupportedError as error:
        return await _in_place(sandbox, check, str(error))


async def _in_place(sandbox: Sandbox, check: Check, why: str) -> Score:
    count = await sandbox.left_running() if isinstance(sandbox, OpensJudge) else 0
    score = await check(Place(sandbox=sandbox, kind="own"))
    note = f"judged in the agent's own sandbox, whose programs it could change: {why}"
    if count and score.value > 0:
        score = replace(score, contested=0.0)
        note += f"; contested: beside its {count} running processes, which could have done it"
    return _noted(score, note)


@frozen
class _Judging:
    sandbox: OpensJudge
    check: Check
    scope: Scope
    without: Sequence[str]

    async def score(self) -> Score:
        tools: list[str] = []
        failure: NoVerdictError | None = None
        score: Score | None = None
        async with self.sandbox.open_judge(self.without) as judge:
            try:
                score = await self._in(judge, "judge")
            except NoVerdictError as error:
                failure = error
            if score is not None and score.value > 0:
                score = _noted(score, await self._used(judge))
                tools = await tools_among(judge, self.scope)
        if score is None or score.value <= 0:
            return await self._beside(score, failure)
        return await self._without(tools, score) if tools else score

    async def _in(self, judge: Judge, kind: Literal["judge", "without-tools"]) -> Score:
        return await self.check(Place(sandbox=judge.sandbox, kind=kind, judge=judge))

    async def _used(self, judge: Judge) -> str:
        used = [change.path for change in await judge.used() if change.kind != "removed"]
        return f"files of the agent that were used: {_listed(used)}" if used else ""

    async def _without(self, tools: list[str], score: Score) -> Score:
        """Look again without the changed tools, until none of the agent's is used."""
        left_out = list(tools)
        clean: Score | None = None
        for _ in range(ROUNDS):
            clean, tools = await self._clean(left_out)
            left_out += tools
            if not tools or clean is None or clean.value < score.value:
                break
        value = 0.0 if clean is None else clean.value
        said = f"changes to what the check itself uses: {_listed(left_out)}"
        if clean is None or tools or value < score.value:
            said = f"contested: {score.value:g} with, {value:g} without the agent's {said}"
            return _noted(replace(score, contested=value), said)
        return _noted(
            replace(score, contested=clean.contested), f"the same without the agent's {said}"
        )

    async def _clean(self, left_out: Sequence[str]) -> tuple[Score | None, list[str]]:
        """The score without some changes, None if there is none; and what tools were used still."""
        try:
            async with self.sandbox.open_judge((*self.without, *left_out)) as judge:
                score = await self._in(judge, "without-tools")
                tools = await tools_among(judge, self.scope)
        except (NoVerdictError, SandboxDamagedError, GradingError):
            return None, []
        return score, [path for path in tools if path not in left_out]

    async def _beside(self, score: Score | None, failure: NoVerdictError | None) -> Score:
        """Look beside the agent's processes, which a judge reaches over the network alone."""
        count = await self.sandbox.left_running()
        if not count:
            if score is None:
                raise failure or NoVerdictError("the check came to no verdict")
            return score
        assert isinstance(self.sandbox, Sandbox)
        there = await self.check(Place(sandbox=self.sandbox, kind="own"))
        value = 0.0 if score is None else score.value
        if score is not None and there.value <= value:
            return score
        said = f"beside the agent's {count} running processes, which could have done it"
        note = f"contested: {there.value:g} {said}; {value:g} in a fresh sandbox"
        return _noted(replace(there, contested=value), note)


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def _noted(score: Score, note: str) -> Score:
    return replace(score, detail="\n".join(filter(None, (score.detail, note and f"[{note}]"))))
