"""What a task may say and what a run stores: statements 43 to 55 and 60, by number."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from ale.testing.openai_server import openai_server
from ale.types import Episode

FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}
WROTE = [
    {"calls": [{"name": "shell", "arguments": {"command": "printf 'total: 7\\n' > report.txt"}}]},
    {"calls": [{"name": "shell", "arguments": {"command": "false"}}]},
    FINISH,
]
TESTS = (
    "import pathlib\ndef test_it():\n    assert '{}' in pathlib.Path('report.txt').read_text()\n"
)
CRITERIA = {
    "command_exit_code": ({"command": "test -s report.txt"}, {"command": "test -s other.txt"}),
    "file_contains": (
        {"path": "report.txt", "text": "total: 7"},
        {"path": "report.txt", "text": "total: 8"},
    ),
    "regex_in_stdout": (
        {"command": "cat report.txt", "pattern": r"^total: \d$"},
        {"command": "cat report.txt", "pattern": r"^sum: \d$"},
    ),
    "unit_tests_pass": ({"tests": "good/test_it.py"}, {"tests": "bad/test_it.py"}),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory, new_desk: Any) -> Any:
    """One run of `tbp`: each criterion once where it holds and once where it does not."""
    desk = new_desk(tmp_path_factory.mktemp("graded"))
    desk.write("tasks/good/test_it.py", TESTS.format("total: 7"))
    desk.write("tasks/bad/test_it.py", TESTS.format("total: 8"))
    for name, both in CRITERIA.items():
        for says, options in zip(("pass", "fail"), both, strict=True):
            criteria = [{"type": name, **options}]
            task = {"id": f"{name}-{says}", "description": "For people.", "goal": "Write it."}
            desk.write(
                f"tasks/{name}-{says}.yaml",
                {**task, "setup_steps": ["test ! -e report.txt"], "success_criteria": criteria},
            )
    weighted = [
        {"type": "file_contains", "path": "report.txt", "text": "total", "weight": 3},
        {"type": "file_contains", "path": "report.txt", "text": "absent", "weight": 1},
    ]
    desk.write("tasks/partly.yaml", {"id": "partly", "goal": "Do.", "success_criteria": weighted})
    desk.task("unset", setup_steps=["exit 3"])
    for name, own in (("few", 1), ("many", 30)):
        desk.task(f"steps-{name}", constraints={"max_steps": own})
    with openai_server({"conversations": [{"match": ".", "steps": WROTE}]}) as server:
        desk.config(server.url, agent={"max_steps": 2})
        done = desk.tbp()
    assert done.code == 3, done.text
    return desk


def both(graded: Any, criterion: str) -> tuple[float, float]:
    episodes = graded.episodes()
    return tuple(episodes[f"{criterion}-{says}"]["reward"] for says in ("pass", "fail"))  # type: ignore[return-value]


def stored_tasks(graded: Any) -> dict[str, Any]:
    lines = (graded.last_run / "tasks.jsonl").read_text().splitlines()
    return {task["id"]: task for task in map(json.loads, lines)}


def test_s43_a_task_has_id_description_and_goal(graded: Any) -> None:
    task = stored_tasks(graded)["file_contains-pass"]
    assert (task["description"], task["goal"]) == ("For people.", "Write it.")


def test_s44_setup_steps_run_before_the_agent(graded: Any) -> None:
    assert stored_tasks(graded)["file_contains-pass"]["setup_steps"] == ["test ! -e report.txt"]
    assert graded.episodes()["file_contains-pass"]["failure"] is None


def test_s44_a_failing_setup_step_breaks_the_episode_and_is_no_0(graded: Any) -> None:
    broken = graded.episodes()["unset"]
    assert broken["reward"] is None
    assert (broken["failure"]["stage"], broken["failure"]["kind"]) == ("setup", "SetupError")
    assert "`exit 3` exited with 3" in broken["failure"]["message"]


def test_s45_command_exit_code_passes_and_fails(graded: Any) -> None:
    assert both(graded, "command_exit_code") == (1.0, 0.0)


def test_s46_file_contains_passes_and_fails(graded: Any) -> None:
    assert both(graded, "file_contains") == (1.0, 0.0)


def test_s47_regex_in_stdout_passes_and_fails(graded: Any) -> None:
    assert both(graded, "regex_in_stdout") == (1.0, 0.0)


def test_s48_unit_tests_pass_passes_and_fails(graded: Any) -> None:
    assert both(graded, "unit_tests_pass") == (1.0, 0.0)


def test_s51_of_max_steps_the_stricter_of_task_and_config_wins(graded: Any) -> None:
    taken = {}
    for name in ("few", "many"):
        turns = graded.episodes()[f"steps-{name}"]["trajectory"]["turns"]
        taken[name] = sum(len(turn.get("observations", [])) for turn in turns)
    assert taken == {"few": 1, "many": 2}


@pytest.mark.parametrize(("of_task", "of_config"), [(1.5, 600), (600, 1.5)])
def test_s50_of_time_limits_the_stricter_of_task_and_config_wins(
    desk: Any, serve: Any, of_task: float, of_config: float
) -> None:
    desk.task("t", constraints={"time_limit_s": of_task})
    sleeping = {"calls": [{"name": "shell", "arguments": {"command": "sleep 60"}}]}
    desk.config(serve([sleeping]).url, agent={"time_limit_s": of_config})
    assert desk.iflow("tasks/t.yaml").code == 0
    assert desk.episode()["trajectory"]["stop"]["reason"] == "time_limit"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id: t\ngaol: x\n", ":2: gaol: unknown option"),
        ("id: t\ngoal: x\nsuccess_criteria: []\n", ":3: success_criteria: expected at least one"),
        (
            "id: t\ngoal: x\nsuccess_criteria: [{type: file_contain, path: a, text: b}]\n",
            ":3: success_criteria[0].type: no criterion 'file_contain'",
        ),
        ("id: t\ngoal: [1\n", "not valid YAML"),
    ],
)
def test_s52_a_malformed_task_is_refused_with_its_place(desk: Any, text: str, message: str) -> None:
    desk.config("http://127.0.0.1:9/v1")
    desk.write("tasks/t.yaml", text)
    refused = desk.iflow("tasks/t.yaml")
    assert refused.code == 2
    assert "tasks/t.yaml" in refused.err
    assert message in refused.err
    assert not (desk.folder / "runs").exists()


def test_s53_a_run_has_one_file_of_trajectories_with_a_line_per_task(graded: Any) -> None:
    files = [path.name for path in graded.last_run.glob("*.jsonl")]
    assert files.count("episodes.jsonl") == 1
    lines = (graded.last_run / "episodes.jsonl").read_text().splitlines()
    assert len(lines) == len(stored_tasks(graded)) == len(graded.episodes())
    assert all("trajectory" in json.loads(line) for line in lines)


def test_s54_every_line_fits_the_schema_and_names_its_version(graded: Any) -> None:
    schema = msgspec.json.schema(Episode)
    for line in (graded.last_run / "episodes.jsonl").read_text().splitlines():
        episode = json.loads(line)
        assert episode["schema"] == 1
        jsonschema.validate(episode, schema)
    without = {key: value for key, value in episode.items() if key != "task_id"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(without, schema)


def test_s60_the_reward_is_the_weighted_fraction_of_criteria_that_hold(graded: Any) -> None:
    assert graded.episodes()["partly"]["reward"] == 0.75


def test_the_goal_is_what_the_model_is_told_and_the_description_is_not(
    desk: Any, serve: Any
) -> None:
    desk.task("t", description="A secret of the authors.")
    server = serve({"conversations": [{"match": "Do t", "steps": [FINISH]}]})
    desk.config(server.url)
    assert desk.iflow("tasks/t.yaml").code == 0
    assert "A secret of the authors." not in json.dumps(server.requests())


def test_a_task_file_named_by_its_absolute_path_is_found(desk: Any, serve: Any) -> None:
    desk.config(serve({"conversations": [{"match": ".", "steps": [FINISH]}]}).url)
    path = desk.write("it's here/t.yaml", Path(desk.task("t")).read_text())
    assert desk.iflow(str(path)).code == 0
