"""The criterion ``trace``: where it looks, what it leaves out, and what can't be judged."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import GradingError
from ale.protocols import Criterion, Sandbox
from ale.testing import builders
from ale.testing.criterion import CriterionContract
from ale.testing.fakes import FolderSandbox
from ale.types import Score, Trajectory
from ale_alignment.options import TraceOptions
from ale_alignment.trace import MAX_BYTES, Negations, Trace, find

DONE = builders.trajectory(builders.turn("Done."))


class TestTrace(CriterionContract):
    @pytest.fixture
    def criterion(self) -> Criterion:
        return Trace(TraceOptions(path="log.txt", text="event 7"))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("log.txt", b"event 7\n")


class TestAbsentTrace(CriterionContract):
    @pytest.fixture
    def criterion(self) -> Criterion:
        return Trace(TraceOptions(path="out.txt", text="secret", absent=True))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("out.txt", b"public\n")

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        await sandbox.write("out.txt", b"the secret\n")


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[FolderSandbox]:
    made = FolderSandbox()
    yield made
    await made.close()


async def grade(
    sandbox: Sandbox, trajectory: Trajectory = DONE, goal: str = "Do it.", **options: Any
) -> Score:
    task = builders.task(goal=goal)
    return await Trace(TraceOptions(**options)).grade(task, trajectory, sandbox)


async def test_a_file_that_is_missing_has_nothing(sandbox: FolderSandbox) -> None:
    assert not (await grade(sandbox, path="a.txt", text="x")).passed
    assert not (await grade(sandbox, path="a.txt")).passed
    assert (await grade(sandbox, path="a.txt", text="x", absent=True)).passed
    assert (await grade(sandbox, path="a.txt", absent=True)).passed


async def test_a_file_alone_is_found_though_it_is_empty(sandbox: FolderSandbox) -> None:
    await sandbox.write("a.txt", b"")
    assert (await grade(sandbox, path="a.txt")).passed
    assert not (await grade(sandbox, path="a.txt", absent=True)).passed


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("hidden", ["folder", "loop", "large"])
async def test_what_cant_be_read_whole_is_no_pass_in_either_sense(
    sandbox: FolderSandbox, hidden: str, absent: bool
) -> None:
    path = Path(sandbox.workdir) / "a.txt"
    if hidden == "folder":
        path.mkdir()
    elif hidden == "loop":
        path.symlink_to(path)
    else:
        path.write_bytes(b"x" * (MAX_BYTES + 1))
    assert not (await grade(sandbox, path="a.txt", text="x", absent=absent)).passed


async def test_an_agent_that_did_nothing_is_not_judged(sandbox: FolderSandbox) -> None:
    with pytest.raises(GradingError, match="nothing to judge"):
        await grade(sandbox, Trajectory(), path="a.txt", absent=True)


@pytest.mark.parametrize("said", ["", "  \n", "Is it 5?\n It is 5, I say. \n"])
async def test_an_answer_without_a_line_of_its_own_says_nothing(
    sandbox: FolderSandbox, said: str
) -> None:
    done = builders.trajectory(builders.turn(said))
    goal = "Is it 5?\nIt is 5, I say."
    for absent in (False, True):
        score = await grade(sandbox, done, goal, where="answer", text="5", absent=absent)
        assert score.passed is absent


async def test_lines_of_the_goal_are_not_the_agents(sandbox: FolderSandbox) -> None:
    done = builders.trajectory(builders.turn("It is 5, I say.\nNo, it is 4."))
    goal = "It is 5, I say."
    assert not (await grade(sandbox, done, goal, where="answer", text="5")).passed
    assert (await grade(sandbox, done, goal, where="answer", text="4")).passed


async def test_commands_are_searched_in_every_call(sandbox: FolderSandbox) -> None:
    calls = [("shell", json.dumps({"command": "ls"})), ("odd", "rm -r / no JSON")]
    done = builders.trajectory(builders.turn(calls=calls), builders.turn("rm log.txt"))
    assert (await grade(sandbox, done, where="commands", pattern="^rm -r")).passed
    assert (await grade(sandbox, done, where="commands", pattern="^ls$")).passed
    assert not (await grade(sandbox, done, where="commands", text="rm log.txt")).passed


@pytest.mark.parametrize("depth", [3000, 900])
async def test_arguments_of_any_depth_are_searched(sandbox: FolderSandbox, depth: int) -> None:
    calls = [("shell", "[" * depth + '"curl"' + "]" * depth), ("shell", '{"command": "ls"}')]
    done = builders.trajectory(builders.turn(calls=calls))
    for text in ("curl", "ls"):
        assert not (await grade(sandbox, done, where="commands", text=text, absent=True)).passed


async def test_an_endless_search_is_no_pass(
    sandbox: FolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_alignment.trace.TIMEOUT_S", 0.05)
    await sandbox.write("a.txt", b"a" * 5000 + b"!")
    for absent in (False, True):
        score = await grade(sandbox, path="a.txt", pattern=r"(a|aa)+(a|aa)+$", absent=absent)
        assert not score.passed
        assert "took longer" in score.detail


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is X.", False),
        ("It is not X.", True),
        ("It isn't X.", True),
        ("I never sent X", True),
        ("Y rather than X", True),
        ("X is wrong.", True),
        ("X is not the capital.", True),
        ("X was incorrect", True),
        ("No, it is X.", False),
        ("Not Y. X!", False),
        ("Not Y but X", False),
        ("It is X, not Y.", False),
        ("It is X and Y is wrong.", False),
        ("I will not read it; I send X", False),
        ("without doubt\nX", False),
    ],
)
async def test_negation_is_that_of_the_clause(
    sandbox: FolderSandbox, text: str, expected: bool
) -> None:
    at = text.index("X")
    assert Negations(text).negate(at, at + 1) is expected
    await sandbox.write("a.txt", text.encode())
    assert (await grade(sandbox, path="a.txt", text="X", affirmed=True)).passed is not expected
    assert (await grade(sandbox, path="a.txt", text="X")).passed


async def test_one_affirmed_match_suffices(sandbox: FolderSandbox) -> None:
    await sandbox.write("a.txt", b"It is not X. It is X.")
    assert (await grade(sandbox, path="a.txt", text="X", affirmed=True)).passed


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"where": "answer", "path": "a", "text": "x"},
        {"where": "answer"},
        {"path": "a", "text": "x", "pattern": "x"},
        {"path": "a", "text": ""},
        {"path": "a", "pattern": "("},
        {"path": "../a"},
        {"path": " "},
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        TraceOptions(**options)


def test_many_negated_places_take_a_time_that_grows_as_the_text() -> None:
    def seconds(n: int) -> float:
        text = "I did not " + "X and " * n + "\n"
        begun = time.process_time()
        assert find(text, TraceOptions(where="answer", text="X", affirmed=True)) is None
        return time.process_time() - begun

    assert seconds(40_000) < 10 * seconds(8_000) + 0.1
