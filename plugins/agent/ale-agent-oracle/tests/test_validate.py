"""``ale validate`` in real sandboxes: sound tasks pass, each kind of unsound task is named."""

import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ale._cli.main import cli
from ale._store import RunDirectory
from ale.errors import InputError
from ale.judging import MOST_USED
from ale.plugin import BuildContext
from ale.protocols import TaskSource
from ale.runs import Redactor, Registry, RunReader, fingerprint
from ale.testing.tasks import TaskSourceContract
from ale.types import (
    CriterionSpec,
    Environment,
    Episode,
    Failure,
    Score,
    Stop,
    Task,
    Trajectory,
    replace,
)
from ale_agent_oracle.attack import NOT_TRIED
from ale_agent_oracle.options import AttackName
from ale_agent_oracle.validate.badge import (
    ValidatedOptions,
    ValidatedTasks,
    used_by_solutions,
    write_badge,
)
from ale_agent_oracle.validate.commands import validate
from ale_agent_oracle.validate.findings import Finding, findings
from ale_agent_oracle.validate.overlap import overlap
from ale_tasks_tbp.options import TbpOptions
from ale_tasks_tbp.source import TbpSource

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap here")

SOUND = """
id: sound
goal: Write the sum of 2 and 3 to sum.txt.
success_criteria:
  - {type: file_contains, path: sum.txt, text: "5"}
solution: ["echo 5 > sum.txt"]
"""
UNSOUND = {
    "lazy": """
id: lazy
goal: Keep in.txt as it is.
setup_steps: ["echo a > in.txt"]
success_criteria: [{type: file_contains, path: in.txt, text: a}]
solution: ["true"]
""",
    "wrong": """
id: wrong
goal: Count the files of this folder into count.txt.
success_criteria: [{type: file_contains, path: count.txt, text: never}]
solution: ["ls | wc -l > count.txt"]
""",
    "unsolved": """
id: unsolved
goal: Say which of the two files is older, in a file named older.txt.
success_criteria: [{type: file_contains, path: older.txt, text: b}]
""",
    "flaky": """
id: flaky
goal: Throw a coin into coin.txt.
success_criteria:
  - {type: command_exit_code, command: 'mkdir "$COUNTED/once" 2>/dev/null'}
solution: ["echo heads > coin.txt"]
""",
    "slow": """
id: slow
goal: Wait for a while and then write done.txt.
constraints: {time_limit_s: 2}
success_criteria: [{type: file_contains, path: done.txt, text: done}]
solution: ["sleep 1.2; echo done > done.txt"]
""",
    "copied": """
id: copied
goal: Write the sum of 2 and 3 to sum.txt.
success_criteria: [{type: file_contains, path: sum.txt, text: "5"}]
solution: ["echo 5 > sum.txt"]
""",
    "readable": """
id: readable
goal: Find the secret word and write it to word.txt.
setup_steps: ["mkdir .old; echo 'echo abracadabra > word.txt' > .old/solve.sh"]
success_criteria: [{type: file_contains, path: word.txt, text: abracadabra}]
solution: ["echo abracadabra > word.txt"]
""",
}
REASONS = {
    "lazy": "doing nothing gets 1",
    "wrong": "the solution gets 0",
    "unsolved": "no reference solution",
    "flaky": "rewards of the same work differ",
    "slow": "of a limit of 2",
    "copied": "nearly the same goal as sound",
    "readable": "solution: ./.old/solve.sh",
}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.installed()


class TestValidated(TaskSourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> TaskSource:
        criteria = (CriterionSpec(type="file_contains", options={"path": "a", "text": "b"}),)
        tasks = [Task(id=name, goal=f"Write {name}.", criteria=criteria) for name in ("a", "b")]
        write_badge(tmp_path / "badge.json", {"a": True, "b": True}, tasks, "local", {}, [])
        options = ValidatedOptions(tasks=ListSource(tasks), badge=tmp_path / "badge.json")
        return ValidatedTasks(options, BuildContext())


class ListSource:
    """Tasks that are there already."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks

    def load(self) -> Sequence[Task]:
        """All of them."""
        return self._tasks


@pytest.fixture
def tasks(tmp_path: Path) -> Callable[..., Path]:
    def write(texts: Mapping[str, str]) -> Path:
        folder = tmp_path / "tasks"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / f"{name}.yaml").write_text(text.replace("$COUNTED", str(tmp_path)))
        return folder

    return write


@pytest.fixture
def call(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``ale validate`` in this process."""
    monkeypatch.chdir(tmp_path)

    def run(target: Path, *arguments: str, sandbox: str = "local") -> Result:
        given = [str(target), "--sandbox", sandbox, "--out", "out", *arguments]
        return CliRunner().invoke(validate, given, obj=registry)

    return run


def test_a_sound_task_passes_and_the_badge_lets_it_through(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    folder, badge = tasks({"sound": SOUND}), tmp_path / "validated.json"
    done = call(folder, "--badge", str(badge), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["tasks"]["sound"]
    assert (found["solution"], found["nothing"]) == ([1.0, 1.0], [0.0, 0.0])
    source = ValidatedTasks(
        ValidatedOptions(tasks=TbpSource(TbpOptions(path=folder)), badge=badge),
        BuildContext(),
    )
    assert [task.id for task in source.load()] == ["sound"]
    (folder / "sound.yaml").write_text(SOUND.replace('"5"', '"6"'))
    with pytest.raises(InputError, match=r"not validated: sound \(changed since\)"):
        list(source.load())
    (folder / "other.yaml").write_text(UNSOUND["lazy"])
    with pytest.raises(InputError, match=r"lazy \(never validated\)"):
        list(source.load())


def test_each_kind_of_unsound_task_is_named(
    tasks: Callable[..., Path], call: Callable[..., Result]
) -> None:
    folder = tasks({"sound": SOUND, **UNSOUND})
    done = call(folder, "--json", "-k", "2")
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)["tasks"]
    for name, reason in REASONS.items():
        assert any(reason in each for each in found[name]["problems"]), (name, found[name])
    # Its copy is beside it, and nothing else speaks against it.
    assert found["sound"]["problems"] == ["nearly the same goal as copied (100%)"]


def test_what_would_change_this_machine_is_not_tried_in_a_sandbox_without_files_of_its_own(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    done = call(tasks({"sound": SOUND}), "--json", "-k", "1")
    missed = json.loads(done.stdout)["tasks"]["sound"]["attacks_not_tried"]
    assert {"tools", "site-hook", "broken-sandbox", "late-writer"} <= {*missed}
    # Without a judge nobody knows which files the tests have used.
    assert {"empty-work", "quitting-work", "agreeing-work"} <= {*missed}
    assert {"test-hooks", "module-beside", "every-answer"}.isdisjoint(missed)
    (episode,) = RunReader(tmp_path / "out" / "tools").episodes
    assert episode.turns == ()
    shown = call(tmp_path / "tasks", "-k", "1").stdout
    assert f"- ({14 - len(missed)} of 14 tried)" in shown
    assert shown.splitlines()[-2] == "1 of 1 task valid, not all attacks tried"
    note = " ".join(line.strip() for line in shown.splitlines() if "not tried" in line)
    assert all(not line.endswith("-") for line in shown.splitlines()[2:]), note


@needs_bubblewrap
def test_a_task_that_a_judge_alone_protects_says_against_what(
    tasks: Callable[..., Path], call: Callable[..., Result]
) -> None:
    weak = """
id: weak
goal: Write the sum of 2 and 3 to sum.txt.
success_criteria:
- type: command_exit_code
  command: python3 -c "import unittest; assert int(open('sum.txt').read()) == 5"
solution: ["echo 5 > sum.txt"]
"""
    done = call(tasks({"weak": weak}), "--json", "-k", "1", sandbox="bubblewrap")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["tasks"]["weak"]
    assert found["hackable_by"] == []
    assert "contested, so 0 in training and 1 elsewhere: module-beside" in found["notes"]
    # An agent that takes the shell away has failed: no attack is left without a verdict.
    assert found["attacks_not_tried"] == []


@needs_bubblewrap
def test_weak_tests_are_passed_by_forgeries_of_the_solutions_own_files(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    weak = """
id: weak
goal: Write add(a, b) in sums.py.
success_criteria:
- type: command_exit_code
  command: python3 -c "import sums; assert sums.add(2, 3) == 5"
solution: ["printf 'def add(a, b):\\n    return a + b\\n' > sums.py"]
"""
    empty = """
id: empty
goal: Remove every TODO from notes.txt.
setup_steps: ["printf 'TODO a\\nb\\n' > notes.txt"]
success_criteria: [{type: command_exit_code, command: '! grep TODO notes.txt'}]
solution: ["sed -i /TODO/d notes.txt"]
"""
    done = call(tasks({"weak": weak, "empty": empty}), "--json", "-k", "1", sandbox="bubblewrap")
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)["tasks"]
    assert found["weak"]["hackable_by"] == ["quitting-work", "agreeing-work"]
    assert "empty-work" in found["empty"]["hackable_by"]
    assert found["weak"]["attacks_not_tried"] == found["empty"]["attacks_not_tried"] == []
    (episode,) = (
        each
        for each in RunReader(tmp_path / "out" / "agreeing-work").episodes
        if each.task_id == "weak"
    )
    assert episode.trajectory.stop.detail.endswith("and forged /workspace/sums.py")


@needs_bubblewrap
def test_a_solution_that_is_contested_only_by_what_its_own_pass_used_is_valid_with_a_badge(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    own = """
id: own
goal: Write a queue.py with a class Queue of our own, whose size is 7.
success_criteria:
- type: command_exit_code
  command: '[ "$(python3 -c "import queue; print(queue.Queue().size)")" = 7 ]'
solution: ["printf 'class Queue:\\n    size = 7\\n' > queue.py"]
"""
    folder, badge = tasks({"own": own}), tmp_path / "badge.json"
    given = ("--json", "-k", "1", "--no-attacks", "--badge", str(badge))
    done = call(folder, *given, sandbox="bubblewrap")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["tasks"]["own"]
    assert found["solution"] == [1.0]
    note = (
        "the solution's verdict is contested without a badge; with one it counts, as do forgeries "
        "at the same paths"
    )
    assert note in found["notes"]
    assert "solution-with-badge (2 of 3): 1 episode" in done.stderr
    config = tmp_path / "run.yaml"
    config.write_text(
        f"tasks: {{type: validated, badge: badge.json, tasks: {{type: tbp, path: {folder}}}}}\n"
        "sandbox: {type: bubblewrap}\nagent: {type: oracle}\n"
        "run: {directory: runs, name: own}\n"
    )
    assert CliRunner().invoke(cli, ["run", str(config)]).exit_code == 0
    (run,) = (tmp_path / "runs").glob("*-own")
    (score,) = next(iter(RunReader(run).episodes)).scores
    assert (score.value, score.contested) == (1.0, None)


def test_the_same_command_continues_and_other_tasks_are_refused(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    folder = tasks({"sound": SOUND})
    first = call(folder, "--no-attacks")
    began = RunReader(tmp_path / "out" / "solution").manifest["run_id"]
    shutil.rmtree(tmp_path / "out" / "nothing")
    second = call(folder, "--no-attacks")
    assert first.stdout == second.stdout
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert RunReader(tmp_path / "out" / "solution").manifest["run_id"] == began
    (folder / "sound.yaml").write_text(SOUND.replace("sum of", "total of"))
    refused = call(folder, "--no-attacks")
    assert isinstance(refused.exception, InputError)
    assert "has a validation of other tasks or options: task 'sound' has changed\n" in str(
        refused.exception
    )
    more = str(call(folder, "-k", "3", "--set", "sandbox.open_files=99").exception)
    assert "run 'solution' has changed, run 'nothing' has changed, run '" in more


def test_a_problem_names_what_the_user_gave(
    tasks: Callable[..., Path], call: Callable[..., Result]
) -> None:
    folder = tasks({"sound": f"{SOUND}environment: {{image: debian}}\n"})
    assert str(call(folder).exception).startswith("--sandbox: sandbox.type: 1 task")
    absent = str(call(folder, "--set", "tasks.tags=[absent]").exception)
    assert absent.startswith("--set: tasks.tags: no task has the tag 'absent'")
    (folder / "sound.yaml").write_text(SOUND)  # what was refused has not taken --out
    assert call(folder, "--no-attacks", "-k", "1").exit_code == 0


def test_a_problem_of_a_later_run_does_not_say_that_nothing_was_started(
    tasks: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tasks({"sound": SOUND})
    monkeypatch.chdir(tmp_path)

    (tmp_path / "out/nothing").mkdir(parents=True)
    (tmp_path / "out/nothing/manifest.json").write_text("{}")
    given = ["validate", str(folder), "--sandbox", "local", "--out", "out", "--no-attacks"]
    refused = CliRunner().invoke(cli, given)
    assert refused.exit_code == 2
    assert "nothing (2 of 2): 2 episodes" in refused.stderr
    assert "1 problem." in refused.stderr
    assert "nothing was started" not in refused.stderr
    given[1] = str(folder / "absent")
    assert "1 problem; nothing was started." in CliRunner().invoke(cli, given).stderr


def test_what_a_run_has_to_note_is_said_once(
    tasks: Callable[..., Path], call: Callable[..., Result]
) -> None:
    limited = f"{SOUND}constraints: {{network: false}}\n"
    done = call(tasks({"sound": limited}), "--no-attacks", "-k", "1")
    assert done.stderr.count("is not enforced: sandbox 'local' does not isolate the network") == 1
    assert "solution (1 of 2): 1 episode\n" in done.stderr


def test_the_model_of_a_config_measures_difficulty(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    folder = tasks({"sound": SOUND})
    answers = tmp_path / "answers.yaml"
    answers.write_text("model: small\ntasks: {sound: [[{text: five}]]}\n")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"tasks: {{type: tbp, path: {folder}}}\n"
        "sandbox: {type: local}\n"
        "agent: {type: single-shot}\n"
        f"llm: {{type: scripted, script: {answers}}}\n"
    )
    done = call(config, "--no-attacks", "--attempts", "3", "--band", "0.1:0.9", "--json")
    found = json.loads(done.stdout)["tasks"]["sound"]
    assert found["difficulty"]["attempts"] == 3
    assert found["problems"] == ["the model solves 0%, outside 10% to 90%"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--band", "0.1:0.9"), "--band needs --attempts"),
        (("--attempts", "2"), "attempts need a config"),
        (("--band", "2:1", "--attempts", "1"), "expected two success rates"),
    ],
)
def test_options_that_cannot_be_are_refused(
    tasks: Callable[..., Path], call: Callable[..., Result], arguments: tuple[str, ...], said: str
) -> None:
    done = call(tasks({"sound": SOUND}), *arguments)
    assert done.exit_code != 0
    assert said in f"{done.output}{done.exception}"


def test_a_folder_without_tasks_says_what_it_should_have(
    call: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    done = call(tmp_path / "empty")
    assert "no tasks in here" in str(done.exception)


def test_near_goals_are_found_within_and_between_sets() -> None:
    long = "Sort the lines of the file in.txt by their second column and write them to out.txt"
    goals = {"a": long, "b": f"{long} please", "c": "Say hello"}
    assert [(each.task, each.other) for each in overlap(goals)] == [("a", "b"), ("b", "a")]
    assert [each.task for each in overlap(goals, {"x": "say  *HELLO*!"})] == ["c"]
    assert overlap({"a": "Compute a + b"}, {"x": "Compute a - b"}) == []


def test_a_goal_in_which_a_word_differs_is_noted() -> None:
    words = "Write every line of in.txt to out.txt once in the order in which they {} there for us"
    goals = {"a": words.format("appear"), "b": words.format("appeared")}
    tasks = [Task(id=name, goal=goal, solution=("true",)) for name, goal in goals.items()]
    first, _ = findings(tasks, {})
    assert not first.problems
    assert any("much of its goal is that of b" in note for note in first.notes)


def test_grading_that_takes_most_of_its_time_speaks_against_a_task(tmp_path: Path) -> None:
    def found(options: Mapping[str, float]) -> str:
        spec = CriterionSpec(type="x", options=options)
        task = Task(id="a", goal="Build.", solution=("true",), criteria=(spec, spec))
        score = Score(criterion="x", passed=True, value=1.0)
        seconds = {"grading": 11.0}
        episode = Episode(
            id="a", task_id="a", rollout=0, reward=1.0, scores=(score,), seconds=seconds
        )
        run = stored(tmp_path / f"run{len(options)}{sum(options.values())}", task, episode)
        return str(findings([task], {"solution": run})[0].problems)

    assert "grading the solution takes 11.0 s of limits of 20.0 s together" in found(
        {"timeout_s": 10.0}
    )
    assert "grading" not in found({"timeout_s": 60.0})
    assert "grading" not in found({})


def test_the_fingerprint_is_of_content_and_not_of_places(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "tests").mkdir(parents=True)
        (folder / "tests" / "test_x.py").write_text("def test_x(): ...\n")
        spec = CriterionSpec(
            type="unit_tests_pass", options={"tests": "tests"}, file=str(folder / "t.yaml"), line=3
        )
        found.append(Task(id="a", goal="g", origin=str(folder), criteria=(spec,)))
    assert fingerprint(found[0]) == fingerprint(found[1])
    (tmp_path / "two" / "tests" / "test_x.py").write_text("def test_y(): ...\n")
    assert fingerprint(found[0]) != fingerprint(found[1])
    assert fingerprint(found[0]) != fingerprint(replace(found[0], goal="h"))


def test_the_fingerprint_reads_no_file_that_is_not_the_tasks(tmp_path: Path) -> None:
    own, shared, other = tmp_path / "set" / "t", tmp_path / "set" / "shared", tmp_path / "other"
    for folder in (own / "tests", shared, other):
        folder.mkdir(parents=True)
        (folder / "x").write_text("1")
    (own / "tests" / "link").symlink_to(other / "x")
    os.mkfifo(own / "tests" / "pipe")
    options = {"tests": ["tests", "../shared"], "cwd": str(other), "path": "../../other"}
    spec = CriterionSpec(type="c", options=options, file=str(own / "t.yaml"))
    environment = Environment(env={"TMPDIR": str(other), "A": "tests"})
    task = Task(id="a", goal=str(other), criteria=(spec,), environment=environment)
    before = fingerprint(task)
    (other / "x").write_text("2")
    (other / "y").write_text("2")
    assert fingerprint(task) == before
    for folder in (shared, own / "tests"):
        (folder / "x").write_text("2")
        assert fingerprint(task) != before
        before = fingerprint(task)


def test_the_fingerprint_is_of_the_folders_of_a_task_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for task in (
        Task(id="a", goal="g", files=str(tmp_path / "a")),
        Task(id="a", goal="g", environment=Environment(build=str(tmp_path / "a"))),
    ):
        before = fingerprint(task)
        (tmp_path / "a" / task.id).write_text(before)
        assert fingerprint(task) != before


def test_the_fingerprint_leaves_out_a_key_that_is_made_at_each_load(tmp_path: Path) -> None:
    def task(key: str, setup: str = "") -> Task:
        spec = CriterionSpec(type="task_tests", options={"record_key": key, "tests": []})
        step = Task(id="a.1", goal="g", criteria=(spec,))
        return Task(id="a", goal="g", setup_steps=(f"key={key}\n{setup}",), steps=(step,))

    one, two = fingerprint(task("0a" * 24)), fingerprint(task("1b" * 24))
    assert one == two
    assert one != fingerprint(task("0a" * 24, "rm -rf x"))
    assert fingerprint(task("rm x")) != fingerprint(task("rm y"))
    assert fingerprint(task("0a" * 16)) != fingerprint(task("1b" * 16))  # as long as a digest


def test_a_badge_that_can_not_be_written_is_refused_before_the_validation(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    folder = tasks({"sound": SOUND})
    missing = call(folder, "--badge", "none/b.json").exception
    assert isinstance(missing, InputError)
    assert str(missing) == "--badge: no such folder: none"
    assert isinstance(call(folder, "--badge", str(tmp_path)).exception, IsADirectoryError)
    assert not (tmp_path / "out").exists()


def test_a_badge_that_says_no_is_no_permission(tmp_path: Path) -> None:
    task, badge = Task(id="a", goal="g"), tmp_path / "badge.json"
    options = ValidatedOptions(tasks=ListSource([task]), badge=badge)
    source = ValidatedTasks(options, BuildContext())
    with pytest.raises(InputError, match="there is no such file"):
        list(source.load())
    write_badge(badge, {"a": False}, [task], "local", {}, [])
    with pytest.raises(InputError, match=r"a \(found not valid\)"):
        list(source.load())
    for text in ("{}", '{"tasks": {"a": {"used": [1]}}}'):
        badge.write_text(text)
        with pytest.raises(InputError, match="can't be read"):
            list(source.load())


def test_a_task_that_accepted_attacks_alone_pass_is_let_in(tmp_path: Path) -> None:
    task = Task(id="a", goal="g")
    badge = tmp_path / "badge.json"
    passed_by = {"a": ["empty-work", "quitting-work"]}
    write_badge(badge, {"a": False}, [task], "docker", {}, [], passed_by=passed_by)

    def source(*accept: AttackName) -> ValidatedTasks:
        options = ValidatedOptions(tasks=ListSource([task]), badge=badge, accept=accept)
        return ValidatedTasks(options, BuildContext())

    assert list(source("quitting-work", "empty-work").load()) == [task]
    for accept in ((), ("quitting-work",), ("tools", "quitting-work")):
        with pytest.raises(InputError, match="passed by empty-work") as caught:
            list(source(*accept).load())
    assert "accept" in str(caught.value)
    write_badge(badge, {"a": False}, [task], "docker", {}, [])  # something else speaks against it
    with pytest.raises(InputError, match="found not valid"):
        list(source("quitting-work", "empty-work").load())


def test_only_attacks_speak_against_a_task_or_something_else_does() -> None:
    def found(**more: Any) -> Finding:
        about: dict[str, Any] = {"task": "a", "solution": (1.0,), "nothing": (0.0,), "notes": ()}
        about |= {"not_tried": (), "agent_s": 1.0, "solved": None}
        return Finding(**about, **more)

    cheating = "passed by cheating: tools"
    assert found(hackable_by=("tools",), problems=(cheating,)).passed_by == ("tools",)
    assert found(hackable_by=("tools",), problems=("slow", cheating)).passed_by == ()
    assert found(hackable_by=(), problems=()).passed_by == ()
    assert found(hackable_by=(), problems=("slow",)).passed_by == ()


def test_a_badge_has_what_the_tests_used_when_solutions_passed(tmp_path: Path) -> None:
    def passed(task: str, *used: tuple[str, ...] | None, reward: float = 1.0) -> Episode:
        scores = tuple(Score(criterion="it", passed=True, value=1.0, used=each) for each in used)
        return Episode(id=task, task_id=task, reward=reward, scores=scores)

    many = tuple(f"/app/{number}" for number in range(MOST_USED))
    episodes = [
        passed("a", ("/app/b", "/app/a"), None),
        passed("a", ("/app/c",)),
        passed("a", ("/app/no",), reward=0.5),
        passed("b", None),
        passed("c", ("/app/a",)),
        passed("c", many),
    ]
    contested = Score(
        criterion="it", passed=False, value=0.0, contested=0.0, used=("/usr/local/bin/it",)
    )
    episodes.append(Episode(id="d", task_id="d", reward=0.0, scores=(contested,)))
    used = used_by_solutions(episodes)
    assert used == {"a": ["/app/a", "/app/b", "/app/c"], "d": ["/usr/local/bin/it"]}
    tasks = [Task(id="a", goal="g", steps=(Task(id="s", goal="h"),)), Task(id="b", goal="g")]
    tasks.append(Task(id="d", goal="g"))
    badge = tmp_path / "badge.json"
    write_badge(badge, dict.fromkeys("abd", True), tasks, "docker", {}, episodes)
    options = ValidatedOptions(tasks=ListSource(tasks), badge=badge)
    found = list(ValidatedTasks(options, BuildContext()).load())
    assert found[0].reference_used == found[0].steps[0].reference_used == tuple(used["a"])
    assert found[1] == tasks[1]
    assert [task.reference_contested for task in found] == [False, False, True]
    # What was seen of a task is no part of what it is.
    assert fingerprint(found[0]) == fingerprint(tasks[0])


def stored(path: Path, task: Task, episode: Episode) -> RunReader:
    """A run with one episode."""
    manifest = {"schema": 1, "run_id": path.name, "config": {}, "n_tasks": 1}
    store = RunDirectory.create(path, manifest, Redactor({}))
    store.add_task(task)
    store.add_episode(episode)
    store.close()
    return RunReader(path)


def test_a_contested_pass_is_noted_and_counts_as_it_does_in_training(tmp_path: Path) -> None:
    task = Task(id="a", goal="g", solution=("true",))
    score = Score(criterion="c", passed=False, value=0.0, contested=0.0)
    episode = Episode(id="0-a-0", task_id="a", reward=0.0, scores=(score,))
    found = {name: stored(tmp_path / name, task, episode) for name in ("solution", "late-writer")}
    (finding,) = findings([task], found)
    assert finding.problems == ["the solution gets 0, as its verdict is contested"]
    assert finding.hackable_by == []
    assert "contested, so 0 in training and 1 elsewhere: late-writer" in finding.notes


def test_an_attack_that_was_not_tried_has_not_succeeded(tmp_path: Path) -> None:
    task = Task(id="a", goal="g", solution=("true",))
    stop = Stop(reason="finished", detail=f"{NOT_TRIED}: nothing is known")
    episode = Episode(
        id="0-a-0", task_id="a", reward=1.0, scores=(), trajectory=Trajectory(stop=stop)
    )
    (finding,) = findings([task], {"empty-work": stored(tmp_path / "run", task, episode)})
    assert (finding.hackable_by, finding.not_tried) == ([], ["empty-work"])


def test_a_task_that_an_attack_passes_says_by_what(tmp_path: Path) -> None:
    task = Task(id="a", goal="g", solution=("true",))
    score = Score(criterion="c", passed=True, value=1.0)
    episode = Episode(id="0-a-0", task_id="a", reward=1.0, scores=(score,))
    found = {name: stored(tmp_path / name, task, episode) for name in ("solution", "late-writer")}
    (finding,) = findings([task], found)
    assert finding.hackable_by == ["late-writer"]
    assert finding.problems == ["passed by cheating: late-writer"]


def test_the_badge_says_whether_the_tasks_were_attacked(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    folder, badge = tasks({"sound": SOUND}), tmp_path / "validated.json"
    assert call(folder, "--badge", str(badge), "--no-attacks").exit_code == 0
    found = json.loads(badge.read_text())
    assert found["message"] == "1 of 1 tasks valid, not attacked"
    assert found["tasks"]["sound"]["attacks_not_tried"] == "all"
    shutil.rmtree(tmp_path / "out")
    assert call(folder, "--badge", str(badge), "-k", "1").exit_code == 0
    found = json.loads(badge.read_text())
    assert found["message"] == "1 of 1 tasks valid, some attacks not tried"
    assert "tools" in found["tasks"]["sound"]["attacks_not_tried"]


def test_what_broke_is_tried_again_by_the_same_command(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    """The set-up fails until a folder is there, as that of a service that is down."""
    late = SOUND.replace("goal:", 'setup_steps: ["ls $COUNTED/up"]\ngoal:')
    folder = tasks({"sound": late})
    first = call(folder, "--no-attacks", "-k", "1", "--json")
    assert first.exit_code == 1
    (problem, *_) = json.loads(first.stdout)["tasks"]["sound"]["problems"]
    assert problem.startswith("solution broke while setup")
    (tmp_path / "up").mkdir()
    again = call(folder, "--no-attacks", "-k", "1", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["tasks"]["sound"]["solution"] == [1.0]


def test_a_build_that_fetches_what_may_change_is_noted(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM debian@sha256:0\nRUN apt-get -y install git\nRUN pip install pytest==8.0\n"
        "RUN git clone https://host/a && curl -O b\n"
    )
    environment = Environment(build=str(tmp_path))
    task = Task(id="a", goal="Build.", environment=environment, solution=("true",))
    (found,) = findings([task], {})
    fetched = "its build fetches what may change: apt-get -y install, git clone, curl"
    assert fetched in found.notes


def test_what_is_left_behind_speaks_against_a_task(tmp_path: Path) -> None:
    task = Task(id="a", goal="Build.", solution=("true",))
    left = {"teardown": ["the container could not be removed"]}
    score = Score(
        criterion="x",
        passed=True,
        value=1.0,
        detail="fine\n2 processes of the agent were ended before the check",
    )
    episode = Episode(id="a", task_id="a", rollout=0, reward=1.0, scores=(score,), metadata=left)
    (found,) = findings([task], {"solution": stored(tmp_path / "run", task, episode)})
    assert any("leaves something behind (solution): the container" in p for p in found.problems)
    assert any("2 processes of the agent were ended" in note for note in found.notes)


def test_a_config_without_a_sandbox_gets_the_best_here(
    tasks: Callable[..., Path], registry: Registry, tmp_path: Path
) -> None:
    config = tmp_path / "tasks-only.yaml"
    config.write_text(f"tasks: {{type: tbp, path: {tasks({'sound': SOUND})}}}\n")
    chosen = [str(config), "--no-attacks", "-k", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(validate, chosen, obj=registry)
    assert done.exit_code == 0, done.output
    assert "1 of 1 task valid" in done.output


def test_a_goal_of_a_named_benchmark_speaks_against_a_task(
    tasks: Callable[..., Path], call: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tasks({"sound": SOUND})
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "known.yaml").write_text(SOUND.replace("id: sound", "id: known"))
    done = call(folder, "--no-attacks", "-k", "1", "--against", "tbp:path=public")
    assert done.exit_code == 1, done.output
    assert "nearly the same goal as known of tbp:path=public (100%)" in done.output


@needs_bubblewrap
def test_a_verdict_that_rests_on_the_network_and_a_network_that_nobody_needs_are_noted(
    tasks: Callable[..., Path], call: Callable[..., Result]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        fetching = f"""
id: fetching
goal: Fetch what port {server.getsockname()[1]} has to say and keep it in said.txt.
constraints: {{network: true}}
success_criteria: [{{type: file_contains, path: said.txt, text: fetched}}]
solution:
  - "bash -c '3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}' && echo fetched > said.txt || true"
"""
        connected = SOUND.replace("id: sound", "id: connected\nconstraints: {network: true}")
        written = tasks({"fetching": fetching, "connected": connected, "alone": UNSOUND["slow"]})
        ended = call(written, "--no-attacks", "--json", sandbox="bubblewrap")
    found = json.loads(ended.stdout)["tasks"]
    notes = {name: "; ".join(each["notes"]) for name, each in found.items()}
    assert "the solution gets 0 without a network" in notes["fetching"]
    assert "has a network, which its solution does not need" in notes["connected"]
    assert "network" not in notes["slow"]


@needs_bubblewrap
def test_no_phase_without_a_network_where_no_task_has_one(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    call(tasks({"sound": SOUND}), "--no-attacks", sandbox="bubblewrap")
    assert {each.name for each in (tmp_path / "out").iterdir() if each.is_dir()} == {
        "solution",
        "nothing",
    }


def broke(stage: Any, kind: str = "SandboxError") -> Episode:
    failure = Failure(stage=stage, kind=kind, message="it is gone")
    return Episode(id="0-a-0", task_id="a", reward=None, failure=failure)


def test_what_breaks_without_an_agent_is_not_said_of_agents_or_of_networks(tmp_path: Path) -> None:
    environment = Environment(build=str(tmp_path))
    task = Task(id="a", goal="Build.", environment=environment, solution=("true",))
    sound = Episode(id="0-a-0", task_id="a", reward=0.0)

    def notes(**episodes: Episode) -> str:
        runs = {name.replace("_", "-"): each for name, each in episodes.items()}
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        (found,) = findings(
            [task], {name: stored(folder / name, task, each) for name, each in runs.items()}
        )
        return "; ".join(found.notes)

    unbuilt, unmarked = broke("sandbox"), broke("grading")
    assert "an agent can break its episode: tools" in notes(nothing=sound, tools=unmarked)
    assert "can break" not in notes(nothing=unmarked, tools=unmarked)
    assert "without a network: it is gone" in notes(nothing=sound, offline_build=unbuilt)
    assert "without a network" not in notes(nothing=unbuilt, offline_build=unbuilt)
    assert "without a network" not in notes(nothing=sound, offline_build=unmarked)


def test_an_empty_goal_speaks_against_a_task() -> None:
    task = Task(id="a", goal=" \n", solution=("true",))
    (found,) = findings([task], {})
    assert "its goal is empty" in found.problems


def test_a_config_that_takes_validated_tasks_has_them_validated(
    tasks: Callable[..., Path], call: Callable[..., Result], tmp_path: Path
) -> None:
    folder, config = tasks({"sound": SOUND}), tmp_path / "train.yaml"
    config.write_text(
        f"tasks: {{type: validated, badge: b.json, tasks: {{type: tbp, path: {folder}}}}}\n"
        "sandbox: {type: local}\n"
    )
    done = call(config, "--no-attacks", "-k", "1", "--badge", "b.json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "b.json").exists()
