"""`ale workers manage`: assigns, waits, grades by criteria or by a model, and says why."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale.errors import AleError, InputError
from ale.recording import Recording
from ale.runs import Registry, RunReader
from ale.testing.builders import task as made_task
from ale.testing.fakes import FolderBackend
from ale.types import Completion, CriterionSpec, LLMCapabilities, Message, Score, Task
from ale_proxy.bridge.api import Keys
from ale_proxy.bridge.running import BridgeOptions, bridging
from ale_proxy.manager.client import BridgeClient
from ale_proxy.manager.grading import Grade, Grader
from ale_proxy.manager.running import Counts, ManagerOptions, _managing, _report, run
from ale_proxy.running import ProxyOptions
from ale_proxy.sessions import Sessions

from .conftest import CONFIG


class Contains:
    """A criterion: the answer has a word."""

    def __init__(self, word: str) -> None:
        self.word = word

    async def grade(self, task: Task, trajectory: Any, sandbox: Any) -> Score:
        """As a criterion does."""
        answer = trajectory.turns[-1].completion.message.content
        right = answer == self.word
        detail = "right" if right else f"expected {self.word}, found {answer}"
        return Score(criterion="contains", passed=right, value=float(right), detail=detail)


class Judge:
    """A model that gives these answers, and keeps what it was asked."""

    capabilities = LLMCapabilities()

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def complete(self, request: Any) -> Completion:
        """The next answer."""
        self.asked.append(request.messages[-1].content)
        return Completion(message=Message(role="assistant", content=self.answers.pop(0)))

    async def aclose(self) -> None:
        """Nothing is open."""


@contextlib.asynccontextmanager
async def bridge(path: Path, port: int = 0, keys: Keys | None = None) -> AsyncIterator[str]:
    recording = Recording(path, CONFIG, Registry())
    sessions = Sessions(recording, idle_s=600)
    options = BridgeOptions(proxy=ProxyOptions(upstream="", port=port))
    async with bridging(options, sessions, keys) as url:
        yield url
    recording.close()


async def work(url: str, answers: dict[str, str]) -> None:
    """A worker that answers by task, for ever."""
    client = BridgeClient(url, None)
    try:
        while True:
            form = {"worker": "ada", "wait_s": 60}
            async with client._session.post("tasks/take", json=form) as reply:
                if reply.status != 200:
                    continue
                taken = await reply.json()
            done = {"id": taken["id"], "worker": "ada", "result": answers[taken["task_id"]]}
            await client._ask("POST", "tasks/result", done)
    finally:
        await client.aclose()


@contextlib.asynccontextmanager
async def working(url: str, answers: dict[str, str]) -> AsyncIterator[None]:
    """With a worker that works meanwhile."""
    worker = asyncio.create_task(work(url, answers))
    yield
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker


async def manage(
    url: str, tasks: list[Task], grader: Grader, said: list[str] | None = None, **options: Any
) -> Counts:
    chosen = ManagerOptions(config=Path("manager.yaml"), bridge=url, **options)
    say = (said if said is not None else []).append
    return await _managing(chosen, None, tasks, grader, say)


def by_criteria(*tasks: Task, details: bool = True, llm: Any = None) -> Grader:
    criteria = {task.id: [(1.0, Contains("Paris"))] for task in tasks if task.criteria}
    return Grader(criteria=criteria, backend=FolderBackend(), llm=llm, details=details)


def graded_task(name: str) -> Task:
    return made_task(name, goal=f"Do {name}.", criteria=(CriterionSpec(type="contains"),))


async def test_results_are_graded_by_criteria_and_what_they_say_is_the_feedback(
    tmp_path: Path,
) -> None:
    tasks = [graded_task("right"), graded_task("wrong")]
    answers = {"right": "Paris", "wrong": "Lyon"}
    async with bridge(tmp_path / "run") as url, working(url, answers):
        counts = await manage(url, tasks, by_criteria(*tasks), rollouts=2)
    assert (counts.graded, counts.total, counts.not_graded) == (4, 2.0, 0)
    episodes = {each.id: each for each in RunReader(tmp_path / "run").episodes}
    assert {name: each.reward for name, each in episodes.items()} == {
        "0-right-0": 1.0,
        "0-right-1": 1.0,
        "0-wrong-0": 0.0,
        "0-wrong-1": 0.0,
    }
    (said,) = episodes["0-wrong-0"].metadata["feedback"]
    assert said["text"] == "expected Paris, found Lyon"


async def test_what_criteria_say_is_not_sent_unless_asked_for(tmp_path: Path) -> None:
    task = graded_task("wrong")
    async with bridge(tmp_path / "run") as url, working(url, {"wrong": "Lyon"}):
        await manage(url, [task], by_criteria(task, details=False))
    (episode,) = RunReader(tmp_path / "run").episodes
    assert (episode.reward, episode.metadata.get("feedback")) == (0.0, None)


@pytest.mark.parametrize(
    "answer",
    [
        "SCORE: 0.25\nFEEDBACK: Name the country.\nAnd be short.",
        "FEEDBACK: Name the country.\nAnd be short.\nSCORE: 0.25",
    ],
)
async def test_a_model_grades_a_task_without_criteria_and_says_why(
    tmp_path: Path, answer: str
) -> None:
    judge = Judge("Let me see.", answer)
    task = made_task("open", goal="Say something.")
    async with bridge(tmp_path / "run") as url, working(url, {"open": "Hm."}):
        counts = await manage(url, [task], by_criteria(llm=judge))
    assert counts.graded == 1
    (episode,) = RunReader(tmp_path / "run").episodes
    assert episode.reward == 0.25
    assert episode.metadata["feedback"][0]["text"] == "Name the country.\nAnd be short."
    assert "Say something." in judge.asked[0]
    assert "Hm." in judge.asked[0]


async def test_with_criteria_a_model_writes_the_text_and_the_criteria_give_the_score() -> None:
    from ale_proxy.assignment import Result

    task = graded_task("wrong")
    judge = Judge("SCORE: 1\nFEEDBACK: Look at a map.")
    grader = by_criteria(task, llm=judge)
    grade = await grader.grade(task, Result(text="Lyon", steps=("It is in France.",)), 0)
    assert grade == Grade(score=0.0, text="Look at a map.")
    assert "expected Paris, found Lyon" in judge.asked[0]
    assert "<step>It is in France.</step>" in judge.asked[0]
    assert "SCORE" not in judge.asked[0], "the model is not asked for a score"


@pytest.mark.parametrize("answer", ["Good.", "SCORE: 2\nFEEDBACK: x", "SCORE: .\nFEEDBACK: x"])
async def test_a_grade_that_can_not_be_read_is_no_grade_and_a_later_manager_grades(
    tmp_path: Path, answer: str
) -> None:
    task = made_task("open", goal="Say something.")
    said: list[str] = []
    async with bridge(tmp_path / "run") as url, working(url, {"open": "Hm."}):
        failing = by_criteria(llm=Judge(answer, answer))
        counts = await manage(url, [task], failing, said, name="first")
        assert (counts.graded, counts.not_graded) == (0, 1)
        assert "have another form" in said[0]
        grader = by_criteria(llm=Judge("SCORE: 1\nFEEDBACK: Good."))
        assert (await manage(url, [task], grader, name="first")).graded == 1
        # And once more: nothing is assigned or graded again.
        counts = await manage(url, [task], by_criteria(llm=Judge()), name="first")
        assert (counts.graded, counts.total) == (1, 1.0)
    assert [each.reward for each in RunReader(tmp_path / "run").episodes] == [1.0]


async def test_an_assignment_without_a_result_is_ended_without_a_score(tmp_path: Path) -> None:
    task = graded_task("slow")
    async with bridge(tmp_path / "run") as url:
        counts = await manage(url, [task], by_criteria(task), timeout_s=0.01)
    assert (counts.graded, counts.late) == (0, 1)
    (episode,) = RunReader(tmp_path / "run").episodes
    assert episode.broken


async def test_an_assignment_that_has_ended_already_is_counted(tmp_path: Path) -> None:
    task = graded_task("slow")
    said: list[str] = []
    async with bridge(tmp_path / "run") as url:
        await manage(url, [task], by_criteria(task), timeout_s=0.01, name="one")
        counts = await manage(url, [task], by_criteria(task), said, name="one")
    assert (counts.graded, counts.late, counts.ended) == (0, 0, 1)
    assert said == ["ended   one.slow.0"]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (Counts(late=2), "0 graded, 2 without a result in time"),
        (Counts(ended=1), "0 graded, 1 ended without a score"),
    ],
)
def test_no_score_at_all_is_an_error(counts: Counts, said: str) -> None:
    printed: list[str] = []
    with pytest.raises(AleError, match="no assignment has a score; is a worker running"):
        _report(counts, printed.append)
    assert printed == [said]
    _report(evolve(counts, graded=1, total=0.5), printed.append)


def test_a_name_that_no_assignment_may_have_is_refused(tmp_path: Path) -> None:
    options = ManagerOptions(config=tmp_path, bridge="http://127.0.0.1:1", name="a b")
    with pytest.raises(InputError, match=r"--name: expected letters, digits and .*found 'a b'"):
        run(options, Registry(), print)


async def test_a_manager_without_the_key_is_told_which_option_names_it(tmp_path: Path) -> None:
    match = "the key of a manager is missing or wrong; --key-env names the variable that has it"
    async with bridge(tmp_path / "run", keys=Keys(manager="of-the-managers")) as url:
        for key in (None, "another"):
            client = BridgeClient(url, key)
            with pytest.raises(AleError, match=match):
                await client.assign(prompt="?")
            await client.aclose()


def test_a_bridge_that_is_no_url_is_named_by_its_option(tmp_path: Path) -> None:
    options = ManagerOptions(config=tmp_path, bridge="127.0.0.1:8100")
    with pytest.raises(InputError) as refused:
        run(options, Registry(), print)
    (problem,) = refused.value.problems
    assert (problem.path, problem.expected) == ("--bridge", "http://127.0.0.1:8100")


async def test_a_manager_waits_for_a_bridge_that_is_started_again(tmp_path: Path) -> None:
    task = graded_task("right")
    async with bridge(tmp_path / "run") as url:
        port = int(url.rpartition(":")[2])
        managing = asyncio.create_task(manage(url, [task], by_criteria(task)))
        client = BridgeClient(url, None)
        while not (await client._ask("GET", "status"))["open"]:
            pass
        await client.aclose()
    assert not managing.done()
    async with bridge(tmp_path / "run", port) as url, working(url, {"right": "Paris"}):
        assert (await managing).graded == 1


async def test_a_bridge_that_does_not_answer_or_refuses_is_an_error(tmp_path: Path) -> None:
    client = BridgeClient("http://127.0.0.1:1", None, patience_s=0.01)
    match = r"http://127.0.0.1:1 does not answer \(Connection refused\): start it by `ale workers"
    with pytest.raises(AleError, match=match):
        await client.assign(prompt="?")
    await client.aclose()
    said: list[str] = []
    client = BridgeClient("http://127.0.0.1:1", None, patience_s=0.5, report=said.append)
    with pytest.raises(AleError):
        await client.assign(prompt="?")
    await client.aclose()
    silence = "the bridge at http://127.0.0.1:1 does not answer (Connection refused)"
    assert said == [f"{silence}; it is asked again for 0.5 s"]
    async with bridge(tmp_path / "run") as url:
        client = BridgeClient(url, None)
        with pytest.raises(AleError, match="Expected `str`"):
            await client.assign(prompt=1)
        match = r"Expected a letter or digit, and then up to 79 letters, digits and \. _ : - - at"
        with pytest.raises(AleError, match=match):
            await client.assign(prompt="?", task_id="a b")
        await client.aclose()


def test_tasks_that_nobody_could_grade_or_work_on_are_refused(tmp_path: Path) -> None:
    from ale_proxy.manager.running import _each_once, _problems

    config = tmp_path / "manager.yaml"
    no_grade = _problems(made_task("open"), None, config)
    assert "no model could grade it" in no_grade[0].message
    with_setup = made_task("s", setup_steps=("touch x",), criteria=(CriterionSpec(type="c"),))
    assert "does not get" in _problems(with_setup, None, config)[0].message
    tasks = [evolve(with_setup, id=f"s{number}") for number in range(6)]
    first, other = _each_once(
        [problem for task in tasks[:3] for problem in _problems(task, None, config)] + no_grade
    )
    assert first.message.endswith("does not get (2 other tasks too: s1, s2)")
    assert other == no_grade[0]
    (first,) = _each_once(problem for task in tasks for problem in _problems(task, None, config))
    assert first.path == "task s0"
    assert first.message.endswith("(5 other tasks too: s1, s2, s3, ...)")
    strange = made_task("g", metadata={"environment": "guy"}, criteria=(CriterionSpec(type="c"),))
    assert "one of chat, terminal, swe, gui" in str(_problems(strange, None, config)[0].expected)
