"""What Harbor's own reader takes, though it is oddly written, and what it refuses."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ale.errors import InputError
from ale.types import Task
from ale_tasks_harbor.checks import health_step
from ale_tasks_harbor.solution import LARGEST
from ale_tasks_harbor.source import HarborSource
from ale_tasks_harbor.values import Values

from .conftest import BENCH, HARBOR, Write

Source = Callable[..., HarborSource]

WRITTEN_BY_HARBOR = """\
schema_version = "1.4"
artifacts = []

[task]
name = "me/hello"
description = ""
keywords = []
[[task.authors]]
name = "Me"
email = "me@x"

[metadata]

[verifier]
timeout_sec = 600.0
collect = []

[verifier.env]

[agent]

[environment]
network_mode = "public"
build_timeout_sec = 600.0
os = "linux"
mcp_servers = []

[environment.env]

[solution.env]
"""
"""Letter by letter what ``TaskConfig(...).model_dump_toml()`` of harbor 0.24 gives."""


def _toml(text: str) -> Mapping[str, str]:
    return {**HARBOR, "task.toml": text}


def only(source: HarborSource) -> Task:
    (task,) = source.load()
    assert source.refused == []
    return task


def test_what_harbor_itself_writes_is_taken(write: Write, source: Source) -> None:
    folder = write("one", _toml(WRITTEN_BY_HARBOR))
    (folder / "instruction.md").write_text("")
    task = only(source())
    assert (task.metadata["name"], task.description, task.goal) == ("me/hello", "", "")
    assert task.metadata["ignored_keys"] == []
    assert task.metadata["agent_needs"] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('docker_image = ""\nworkdir = ""', {"workdir": ".", "image": None}),
        ('memory_mb = 2048.0\ncpus = "2"', {"memory_mb": 2048, "cpus": 2.0}),
        ("cpus = 0\nmemory_mb = 0", {"cpus": None, "memory_mb": None}),
        ("memory = 2048", {"memory_mb": None}),
        ('memory = " 2 g "', {"memory_mb": 2048}),
    ],
)
def test_an_environment_is_read_as_in_harbor(
    text: str, wanted: Mapping[str, object], write: Write, source: Source
) -> None:
    folder = write("one", _toml(f"[environment]\n{text}\n"))
    task = only(source())
    found = {name: getattr(task.environment, name) for name in wanted}
    assert found == wanted
    assert (task.environment.build, task.files) == (str(folder / "environment"), None)


def test_a_size_without_a_unit_is_named_among_what_is_ignored(write: Write, source: Source) -> None:
    write("one", _toml("[environment]\nmemory = 2048\nstorage = '1G'\n"))
    assert only(source()).metadata["ignored_keys"] == ["environment.memory"]


@pytest.mark.parametrize("value", ['"no"', "0", '"False"', "false"])
def test_a_flag_may_be_a_word(value: str, write: Write, source: Source) -> None:
    write("one", _toml(f"[environment]\nallow_internet = {value}\n"))
    assert only(source()).constraints.network is False


def test_numbers_may_be_texts(write: Write, source: Source) -> None:
    toml = (
        '[agent]\ntimeout_sec = "600"\n[verifier]\ntimeout_sec = " 6e1 "\n'
        '[environment]\ngpus = "0"\n[environment.healthcheck]\ncommand = "x"\nretries = "2"\n'
        "start_interval_sec = 0\ninterval_sec = 0.5\n"
        '[[steps]]\nname = "a"\nmin_reward = "0.5"\n'
    )
    write("one", {**_toml(toml), "steps/a/instruction.md": "Do.\n"})
    task = only(source())
    (step,) = task.steps
    assert step.constraints.time_limit_s == 600.0
    assert step.criteria[0].options["min_rewards"] == {"reward": 0.5}
    assert "sleep 0\n" in task.setup_steps[-1]
    assert "sleep 0.5" in task.setup_steps[-1]
    assert "failed 2 times" in task.setup_steps[-1]


def test_a_blank_health_check_passes_at_once() -> None:
    values = Values({"command": "", "retries": 1}, file="f", problems=[])
    assert (health_step(values), values.problems) == ((), [])
    values = Values({"retries": 1}, file="f", problems=[])
    health_step(values)
    assert values.problems[0].path == "command"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[environment]\nmemory = "2048"', "environment.memory"),
        ('[environment]\nmemory = ""', "environment.memory"),
        ('[environment]\ncpus = "many"', "environment.cpus"),
        ("[environment]\ncpus = nan", "environment.cpus"),
        ("[environment]\nmemory_mb = 0.5", "environment.memory_mb"),
        ('[environment]\nallow_internet = "maybe"', "environment.allow_internet"),
        ("[verifier]\ntimeout_sec = 0", "verifier.timeout_sec"),
        ('[agent]\ntimeout_sec = "nan"', "agent.timeout_sec"),
    ],
)
def test_what_harbor_could_not_run_is_refused(
    text: str, key: str, write: Write, source: Source
) -> None:
    write("one", _toml(text + "\n"))
    with pytest.raises(InputError) as caught:
        list(source().load())
    assert [problem.path for problem in caught.value.problems] == [key]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!-- harbor-canary GUID 1 -->\n\n# Task\n", "# Task\n"),
        ("# Canary: x\n  <!-- a canary -->  \n\n \nDo it.\n# canary\n", "Do it.\n# canary\n"),
        ("\n\nDo it.\n", "Do it.\n"),
        ("Keep the canary alive.\n", "Keep the canary alive.\n"),
        ("<!-- canary -->", ""),
    ],
)
def test_a_canary_is_not_shown_to_the_agent(
    text: str, shown: str, write: Write, source: Source
) -> None:
    write("one", {**HARBOR, "instruction.md": text})
    write("two", {**_toml('[[steps]]\nname = "a"\n'), "steps/a/instruction.md": text})
    one, two = source().load()
    assert (one.goal, two.steps[0].goal) == (shown, shown)


def _of_steps(*names: str) -> Mapping[str, str]:
    toml = "".join(f'[[steps]]\nname = "{name}"\n' for name in names)
    return {**_toml(toml), **{f"steps/{name}/instruction.md": "Do.\n" for name in names}}


def test_a_step_has_any_name_that_a_folder_can_have(write: Write, source: Source) -> None:
    write("one", _of_steps("_s1", "a b", "a-b", "é", ".x"))
    steps = only(source()).steps
    assert [step.metadata["step"] for step in steps] == ["_s1", "a b", "a-b", "é", ".x"]
    ids = [step.id.removeprefix("one.") for step in steps]
    assert ids == ["_s1", "a-b-2", "a-b", "task-4", "x-5"]


def test_folders_may_have_names_in_any_script(write: Write, source: Source) -> None:
    for name in ("任务", "作业", "plan für a", "a b"):
        write(name, HARBOR)
    found = {task.metadata["name"]: task.id for task in source(invalid="error").load()}
    assert found["a b"] == "a-b"
    assert found["plan für a"].startswith("plan-f-r-a-")
    assert len(set(found.values())) == len(found) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", each) for each in found.values())


@pytest.mark.parametrize("name", ["", " ", "..", "a/b", "a.", "a ", "a:b"])
def test_no_other_name(name: str, write: Write, source: Source) -> None:
    write("one", {**_toml(f'[[steps]]\nname = "{name}"\n'), "steps/x/instruction.md": "Do.\n"})
    with pytest.raises(InputError, match=r"steps\[0\]\.name: expected the name of a folder"):
        list(source().load())


def test_a_link_to_a_task_folder_is_one_and_no_link_leads_in_a_circle(
    write: Write, source: Source, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    write("one", HARBOR).rename(elsewhere)
    write("set/own", HARBOR)
    (tmp_path / "tasks" / "set" / "linked").symlink_to(elsewhere)
    (tmp_path / "tasks" / "set" / "up").symlink_to("..")
    (tmp_path / "tasks" / "set" / "dangling").symlink_to("nowhere")
    (tmp_path / "tasks" / "set" / "itself").symlink_to("itself")
    assert [task.id for task in source().load()] == ["linked", "own"]


def test_a_solution_that_is_too_large_for_commands_goes_in_as_a_folder(
    write: Write, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    large = "x" * (LARGEST + 1)
    one = write("one", {**HARBOR, "solution/solve.sh": "true\n", "solution/data": large})
    two = write("two", {**_of_steps("a"), "steps/a/solution/solve.sh": large})
    write("three", {**BENCH, "solution.sh": large})
    read = {task.id: task for task in source(invalid="error").load()}
    for part, folder in ((read["one"], one), (read["two"].steps[0], two / "steps/a")):
        assert part.metadata["solution_files"] == str(folder / "solution")
        assert part.solution is not None
        assert len(part.solution[0]) < 200
    assert read["three"].solution is None
    assert read["three"].metadata["no_solution"].endswith("larger than 8 MiB")
    assert [record.getMessage().split()[0] for record in caplog.records] == ["three"]


def test_a_solution_whose_interpreter_would_not_be_found_is_left_out(
    write: Write, source: Source
) -> None:
    crlf = "#!/bin/bash\r\ntouch done\r\n"
    write("one", {**HARBOR, "solution/solve.sh": crlf})
    write("other", {**HARBOR, "solution/solve.sh": "#!/bin/bash\ntouch done\r\n"})
    write("three", {**BENCH, "solution.sh": crlf})  # is for bash, whatever this line says
    one, other, three = source(invalid="error").load()
    assert one.solution is None
    assert "solution/solve.sh: line 1 ends in CR LF" in one.metadata["no_solution"]
    assert other.solution is not None
    assert three.solution is not None
