"""The criterion ``task_tests``: a task's own tests, run after the agent."""

import asyncio
import json
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from ale.errors import GradingError, NoVerdictError, UnsupportedError
from ale.files import write_whole
from ale.judging import Place, Scope, judged, named_in
from ale.plugin import BuildContext
from ale.protocols import (
    HasServiceContainers,
    Judge,
    ListsSessions,
    OpensJudge,
    Sandbox,
    SwitchesUser,
)
from ale.types import ExecResult, Score, Task, Trajectory, replace
from ale_tasks_harbor import artifacts, parsers, phases, reward, separate_verifier
from ale_tasks_harbor.capabilities import MAIN, unable
from ale_tasks_harbor.options import (
    KEPT_PROCESSES,
    Artifact,
    SeparateVerifier,
    TaskTestsOptions,
)
from ale_tasks_harbor.paths import DEFAULT_PATHS, SandboxPaths
from ale_tasks_harbor.preparation import PreparedSandbox, TestPreparation, Verdict
from ale_tasks_harbor.variables import resolved

NAME = "task_tests"
KEPT = "verifier"
"""Folder of the run for what is kept."""
ORACLE = "oracle"
"""Model name in the turns of a reference solution, which needs nothing that a model is given."""
_OUTPUT = 4 << 20
"""Bytes of output that a parser sees: head and tail."""
_EXCERPT = 800
_SILENT = (130, 141)
"""Exit codes of signals that no shell reports."""
_KILLED = 137
_NAMED = 128
"""Characters of a task's id in the name of a folder, which may have 255 bytes."""
_SCANNED = 1 << 20
_NAMES_JSON = re.compile(rb"reward.{0,40}json|\breward[-_]?kit\b", re.S)

# $1 a line that is for bash, as in Harbor, where there is one.
_IN_BASH = 'exec "$(command -v bash || echo sh)" -c "$1"'
# $1 the script, $2 a user's name or "", $3 "bash" where it is for bash whatever its first line
# says, then variables. The shell reads no profile. It stays, and alone writes to stderr: that a
# signal has ended the script, whose exit code may also be that of a command that one has ended.
_RUN = """
script=$1 user=$2 shell=$3 && shift 3
case $user in
'') ;;
*[!a-z0-9_-]* | [!a-z_]*) ;;
*) eval "home=~$user" && set -- "$@" "HOME=$home" ;;
esac
IFS= read -r first <"$script"
if [ "$shell" ] && command -v "$shell" >/dev/null; then first=; fi
case $first in
'#!'*) command -p env -i "$@" /bin/sh -c 'exec "$0" 2>&1' "$script" ;;
*) command -p env -i "$@" /bin/sh -c 'exec bash "$0" 2>&1' "$script" ;;
esac
code=$?
exit $code
"""


class TaskTests:
    """Copies the tests into the sandbox, runs them, and reads their verdict.

    The value is 0, with the cause in the detail, if the tests fail or reach their time limit. If
    they give no verdict, `NoVerdictError` is raised: the run decides whether that is the agent's
    doing.

    Their output and artifacts are kept in the run directory, if there is one.
    """

    def __init__(
        self,
        options: TaskTestsOptions,
        context: BuildContext,
        *,
        places: SandboxPaths = DEFAULT_PATHS,
    ) -> None:
        self.options = options
        self._environ = context.environ
        self._run = context.run_directory
        self._places = places

    @property
    def needs_workspace(self) -> bool:
        """True. See `ale.protocols.RunsPrograms`."""
        return True

    @property
    def opens_judge(self) -> bool:
        """Unless the tests have a container of their own. See `ale.protocols.JudgesItself`."""
        return self.options.separate_verifier is None

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Run the tests once. Raises as `Criterion.grade`."""
        if posixpath.isabs(self._places.tests) and not sandbox.capabilities.filesystem_isolation:
            raise GradingError(
                f"the tests would be put in {self._places.tests} of this machine; "
                "use a sandbox with files of its own, such as 'docker'"
            )
        self._check_agent(trajectory)
        grading = _Grading(
            options=self.options,
            task=task,
            sandbox=sandbox,
            variables=self._variables(),
            places=self._inside(sandbox),
            folder=None
            if self._run is None
            else self._run / KEPT / f"{task.id[:_NAMED]}-{sandbox.id}",
        )
        score = await grading.score(trajectory)
        folder = grading.folder
        return score if folder is None else replace(score, kept=f"{KEPT}/{folder.name}")

    def _check_agent(self, trajectory: Trajectory) -> None:
        """Raise if a model has worked without what the task gives to its agent."""
        asked = [turn for turn in trajectory.turns if turn.completion.model != ORACLE]
        if self.options.agent_needs and asked:
            named = ", ".join(self.options.agent_needs)
            raise GradingError(f"the task gives its agent {named}, which the agent does not take")

    def _variables(self) -> Mapping[str, str]:
        missing: list[str] = []
        made = resolved(self.options.env, self._environ, lambda _, why: missing.append(why))
        if missing:
            raise GradingError("; ".join(missing))
        return made

    def _inside(self, sandbox: Sandbox) -> SandboxPaths:
        def path(place: str) -> str:
            return posixpath.normpath(posixpath.join(sandbox.workdir, place))

        return SandboxPaths(
            tests=path(self._places.tests),
            logs=path(self._places.logs),
            records=tuple(map(path, self._places.records)),
        )


@frozen(kw_only=True)
class _Tested:
    """The outcome of the tests."""

    result: ExecResult
    verdict: Verdict
    notes: Sequence[str]
    foreign: Sequence[str] = ()
    """Who else may have written the verdict."""


@frozen(kw_only=True)
class _Grading:
    """The grading of one episode."""

    options: TaskTestsOptions
    task: Task
    sandbox: Sandbox
    """The agent's."""
    variables: Mapping[str, str]
    """Environment variables of the tests."""
    places: SandboxPaths
    folder: Path | None
    """For what is kept."""

    async def score(self, trajectory: Trajectory) -> Score:
        """Run the tests, and make the sandbox ready for what follows."""
        options, sandbox = self.options, self.sandbox
        if isinstance(sandbox, SwitchesUser):
            await sandbox.switch_user(None)
        kept, ended = await self._kept(trajectory)
        await self._collect()
        if self.folder is not None:
            # Before the tests, which may change what they look at.
            await artifacts.keep(sandbox, await self._listed(), self.folder / "artifacts")
        if options.separate_verifier is not None:
            score = await self._score(await self._separately(options.separate_verifier))
        elif kept is not None:
            score = await self._score(await self._here(kept))
        else:
            score = await self._judged()
        if ended:
            were = "process of the agent was" if ended == 1 else "processes of the agent were"
            note = f"{score.detail}\n[{ended} {were} ended before the tests]"
            score = replace(score, detail=note)
        if options.remove_tests:
            await TestPreparation(sandbox, self.places, options.record_key).clear()
            if kept is None:
                await sandbox.end_processes()
        await phases.enter(sandbox, options.next_agent_network)
        return score

    async def _judged(self) -> Score:
        """Run the tests in a fresh sandbox with the agent's changes, if that can be had."""
        proxies = await phases.enter(self.sandbox, self.options.tests_network)
        places = self.places
        names = named_in((), map(Path, self.options.tests))
        scope = Scope(
            workdir=self.sandbox.workdir,
            own=(places.tests,),
            names=names,
            reference=self.task.reference_used,
            reference_contested=self.task.reference_contested,
        )

        async def check(place: Place) -> Sequence[Score]:
            if place.judge is None:
                return [await self._score(await self._here(None))]
            grading = self
            if place.kind == "without-tools" and self.folder is not None:
                grading = replace(self, folder=self.folder / place.kind)
            tested = await grading._fresh(place.sandbox, place.judge, proxies)
            return [await grading._score(tested)]

        never = (places.tests, f"{places.logs}/verifier")
        (score,) = await judged(self.sandbox, check, scope, never)
        return score

    async def _fresh(self, sandbox: Sandbox, judge: Judge, env: Mapping[str, str]) -> _Tested:
        """Run the tests in a judge."""
        options = self.options
        preparation = TestPreparation(sandbox, self.places, None)
        own = await judge.has(self.places.tests, image=True)
        prepared = await preparation.fresh(tests_in_image=own)
        await preparation.put(options.tests, options.script)
        await judge.settled()
        given = {**self.task.environment.env, **env}
        try:
            async with judge.guarded(f"{self.places.logs}/verifier") as guard:
                tested = await self._run(sandbox, preparation, prepared, given, end_processes=True)
        except UnsupportedError as error:
            tested = await self._run(sandbox, preparation, prepared, given, end_processes=True)
            return replace(tested, notes=(*tested.notes, str(error)))
        names = ("reward.json", "reward.txt") if options.result == "reward" else ()
        foreign = [who for name in names for who in guard.foreign(name)]
        if _was_killed(tested.result):
            foreign.append("the tests were killed")
        return replace(tested, foreign=tuple(dict.fromkeys(foreign)))

    async def _collect(self) -> None:
        """Run the task's hooks, which may fail. Their processes end with them."""
        sandbox = self.sandbox
        for hook in self.options.collect:
            if hook.service in (None, MAIN):
                argv = ["/bin/sh", "-c", _IN_BASH, "ale", hook.command]
                await sandbox.exec(argv, timeout_s=hook.timeout_s, user=hook.user)
        for hook in self.options.collect:
            if hook.service not in (None, MAIN):
                if not isinstance(sandbox, HasServiceContainers):
                    raise unable("service-containers")
                other = await sandbox.service(str(hook.service))
                await other.exec(hook.command, timeout_s=hook.timeout_s, user=hook.user)

    async def _kept(self, trajectory: Trajectory) -> tuple[str | None, int]:
        """A note if the tests run beside the agent's processes, whatever these may do; and how many
        were ended."""
        ended = 0
        late = trajectory.stop.reason == "time_limit"
        why = self.task.metadata.get(KEPT_PROCESSES)
        separate = self.options.separate_verifier is not None
        apart = not separate and isinstance(self.sandbox, OpensJudge)
        if late or (why is None and not apart):
            # Otherwise the agent could finish its work while it is graded.
            left = self.sandbox.left_running if isinstance(self.sandbox, OpensJudge) else None
            known = None if left is None else await left()  # without the shells of sessions
            killed = await self.sandbox.end_processes()
            ended = killed if known is None else known
            if self.options.restart_command is not None:
                await self._background(self.options.restart_command)
        if late or why is None:
            return None, ended
        return f"the agent's processes kept running: {why}", ended

    async def _listed(self) -> Sequence[Artifact]:
        """The artifacts to store: of the agent's sandbox, and of other services."""
        listed = self.options.artifacts
        # For a separate container that folder is listed already.
        if self.options.separate_verifier is not None:
            return listed
        if not await TestPreparation(self.sandbox, self.places, None).has_artifacts():
            return listed
        return (Artifact(source=f"{self.places.logs}/artifacts"), *listed)

    async def _here(self, kept: str | None) -> _Tested:
        """Run the tests in the agent's sandbox."""
        options, sandbox = self.options, self.sandbox
        preparation = TestPreparation(sandbox, self.places, options.record_key, self.task.goal)
        prepared = await preparation.ready()
        if kept is not None:
            prepared = replace(prepared, notes=(*prepared.notes, kept))
        proxies = await phases.enter(sandbox, options.tests_network)
        await preparation.put(options.tests, options.script)
        env = {**self.task.environment.env, **proxies}
        # What the code under test has started must not write a verdict either. Kept processes may
        # be needed by the tests of a later step.
        end = kept is None or not options.remove_tests
        return await self._run(sandbox, preparation, prepared, env, end_processes=end)

    async def _background(self, script: str) -> None:
        """Start the container's own processes again: they were ended with the agent's."""
        result = await self.sandbox.exec(script, timeout_s=self.options.restart_timeout_s)
        if result.exit_code != 0 or result.timed_out:
            raise NoVerdictError(
                f"the container's own processes could not be started again{_tail(result)}"
            )

    async def _separately(self, wanted: SeparateVerifier) -> _Tested:
        """Run the tests in a separate container."""
        options = self.options
        async with separate_verifier.opened(self.sandbox, wanted, options.artifacts) as other:
            preparation = TestPreparation(other, self.places, None)
            prepared = await preparation.fresh(tests_in_image=wanted.tests_in_image)
            if not wanted.tests_in_image:
                await preparation.put(options.tests, options.script)
            return await self._run(other, preparation, prepared, {}, end_processes=True)

    async def _run(
        self,
        sandbox: Sandbox,
        preparation: TestPreparation,
        prepared: PreparedSandbox,
        env: Mapping[str, str],
        *,
        end_processes: bool,
    ) -> _Tested:
        if self.options.same_shell:
            result = await self._in_same_shell(sandbox)
        else:
            result = await self._in_clean_shell(sandbox, prepared, env)
        if end_processes:
            await sandbox.end_processes()
        verdict = await preparation.verdict()
        if self.folder is not None:
            await self._write("test-stdout.txt", result.stdout)
            await artifacts.had(sandbox, f"{self.places.logs}/verifier", self.folder / "logs")
        return _Tested(result=result, verdict=verdict, notes=prepared.notes)

    async def _in_clean_shell(
        self, sandbox: Sandbox, prepared: PreparedSandbox, env: Mapping[str, str]
    ) -> ExecResult:
        options = self.options
        merged = {**prepared.environment, **env, **self.variables}
        if "PATH" not in self.variables:
            merged["PATH"] = prepared.environment.get("PATH", "")
        pairs = [f"{name}={value}" for name, value in merged.items()]
        # Terminal-Bench's harness types `bash run-tests.sh` in a terminal of root's.
        bench = options.result != "reward"
        user = options.user or (prepared.root if bench else None)
        shell = "bash" if bench else ""
        return await sandbox.exec(
            ["/bin/sh", "-c", _RUN, "ale", self._script, user or "", shell, *pairs],
            env={"PATH": prepared.environment.get("PATH", ""), "BASH_ENV": "", "ENV": ""},
            user=user,
            timeout_s=options.timeout_s,
            max_output_bytes=_OUTPUT,
        )

    async def _in_same_shell(self, sandbox: Sandbox) -> ExecResult:
        """Run the tests in the shell that the agent has left open, or in a new one."""
        if not isinstance(sandbox, ListsSessions):
            raise unable("list-sessions")
        left = list(sandbox.sessions)
        session = left[-1] if left else await sandbox.session()
        return await session.run(
            f"bash {shlex.quote(self._script)} 2>&1",
            timeout_s=self.options.timeout_s,
            max_output_bytes=_OUTPUT,
        )

    @property
    def _script(self) -> str:
        return posixpath.join(self.places.tests, self.options.script)

    async def _write(self, name: str, data: bytes | str) -> None:
        """Keep a file."""
        if self.folder is not None:
            await asyncio.to_thread(write_whole, self.folder / name, data)

    async def _score(self, tested: _Tested) -> Score:
        result = tested.result
        notes = "".join(f"\n[{note}]" for note in tested.notes)
        if result.timed_out:
            limit = f"the tests did not end within {self.options.timeout_s:g} s and were ended"
            return replace(_made(0.0, limit + notes + _tail(result)), ends_task=True)
        below: list[str] = []
        if self.options.result == "reward":
            rewards, detail = await self._rewards(tested)
            await self._write("rewards.json", json.dumps(dict(rewards), indent=2) + "\n")
            below = reward.below(rewards, self.options.min_rewards)
            notes = "".join(f"; no further step: {problem}" for problem in below) + notes
            value = reward.single(rewards)
        else:
            value, detail = self._parsed(result)
        made = _made(value, detail + notes + ("" if value == 1.0 else _tail(result)))
        if tested.foreign and value > 0:
            said = f"{made.detail}\n[contested: others may have written it: {_all(tested.foreign)}]"
            made = replace(made, contested=0.0, detail=said)
        return replace(made, ends_task=bool(below))

    async def _rewards(self, tested: _Tested) -> tuple[Mapping[str, float], str]:
        as_json, note = tested.verdict.as_json, ""
        if as_json is not None and not await asyncio.to_thread(self._writes_json):
            # Then only the code under test can have written it.
            note, as_json = "; reward.json was ignored: no file of the tests mentions it", None
        where = f"{self.places.logs}/verifier{note}"
        try:
            rewards = reward.of_files(as_json, tested.verdict.as_text, where)
        except reward.RewardError as error:
            raise _no_verdict(error, tested.result) from None
        listed = ", ".join(f"{name} {value:g}" for name, value in rewards.items())
        return rewards, f"rewards: {listed}{note}"

    def _writes_json(self) -> bool:
        """Whether a file of the tests mentions reward.json, or is too long to search.

        Always true in a separate container: the tests may be in the image, and no agent was there.
        """
        if self.options.separate_verifier is not None:
            return True
        for source in map(Path, self.options.tests):
            for path in source.rglob("*") if source.is_dir() else [source]:
                if path.is_file() and _may_name(path):
                    return True
        return False

    def _parsed(self, result: ExecResult) -> tuple[float, str]:
        output = parsers.shown(result.stdout.decode("utf-8", "replace"))
        try:
            results = parsers.PARSERS[self.options.result](output)
        except parsers.UnparsableError as error:
            raise _no_verdict(error, result) from None
        failed = [name for name, passed in results.items() if not passed]
        if failed:
            return 0.0, f"{len(failed)} of {len(results)} tests failed: {', '.join(failed[:10])}"
        return 1.0, f"{len(results)} tests passed"


def _may_name(path: Path) -> bool:
    """Whether a file has both words, as names may be composed, or Harbor's program for it."""
    with path.open("rb") as file:
        data = file.read(_SCANNED + 1)
    return len(data) > _SCANNED or _NAMES_JSON.search(data) is not None


def _was_killed(result: ExecResult) -> bool:
    """Whether a signal has ended the script of the tests."""
    code = result.exit_code
    told = code > 128 and bool(result.stderr.strip())
    return not result.timed_out and (told or code == _KILLED or code in _SILENT)


def _no_verdict(error: Exception, result: ExecResult) -> NoVerdictError:
    return NoVerdictError(f"{error} (the tests ended with {result.exit_code}){_tail(result)}")


def _all(who: Sequence[str]) -> str:
    return ", ".join("".join(c if c.isprintable() else "?" for c in each) for each in who[:5])


def _tail(result: ExecResult) -> str:
    text = result.stdout[-4 * _EXCERPT :].decode("utf-8", "replace")
    plain = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text).strip()
    return f"\n{plain[-_EXCERPT:] or '(the tests printed nothing)'}"


def _made(value: float, detail: str) -> Score:
    beyond = not 0.0 <= value <= 1.0
    return Score(criterion=NAME, passed=value == 1.0, value=value, detail=detail, unbounded=beyond)
