"""Reading: what is found, what it becomes, and every way in which it can be wrong."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ale.errors import InputError, Problem
from ale.plugin import BuildContext
from ale.strict import parse_yaml, structure
from ale.types import Constraints, CriterionSpec, Environment, Task
from ale_tasks_tbp.options import TbpOptions
from ale_tasks_tbp.plugin import ale_task_sources
from ale_tasks_tbp.source import TbpSource

FULL = """\
id: full
description: For people.
goal: |
  Say hello.
tags: [files, easy]
setup_steps: ["mkdir data"]
success_criteria:
  - {type: command_exit_code, command: "test -f out.txt", exit_code: 0, timeout_s: 60}
  - type: file_contains
    weight: 2
    path: out.txt
    text: hello
constraints: {network: false, time_limit_s: 120, max_steps: 20, max_turns: 40}
environment: {image: "debian:12", build: docker, env: {A: b}, cpus: 1, memory_mb: 64, storage_mb: 9}
keep_processes: true
solution: ["echo hello > out.txt"]
metadata: {difficulty: easy, minutes: 2}
"""

SMALL = "id: {id}\ngoal: go\ntags: [{tag}]\nsuccess_criteria: [{{type: t, command: c}}]\n"


def small(task_id: str, tag: str = "any") -> str:
    return SMALL.format(id=task_id, tag=tag)


def load(path: Path, **options: object) -> list[Task]:
    return list(TbpSource(TbpOptions(path=path, **options)).load())  # type: ignore[arg-type]


def problems(path: Path, **options: object) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        load(path, **options)
    return list(caught.value.problems)


def problems_of(path: Path, text: str) -> list[str]:
    """What is reported of one task file, without the name of its folder."""
    file = path / "t.yaml"
    file.write_text(text)
    return [str(problem).replace(f"{path}/", "") for problem in problems(file)]


def test_every_field_of_a_task_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "full"
    for name in ("files", "tests", "docker"):
        (folder / name).mkdir(parents=True)
    (folder / "task.yaml").write_text(FULL)
    file = str(folder / "task.yaml")
    assert load(folder) == [
        Task(
            id="full",
            goal="Say hello.\n",
            description="For people.",
            origin=file,
            tags=("files", "easy"),
            files=str(folder / "files"),
            setup_steps=("mkdir data",),
            criteria=(
                CriterionSpec(
                    type="command_exit_code",
                    options={"command": "test -f out.txt", "exit_code": 0, "timeout_s": 60},
                    weight=1.0,
                    file=file,
                    line=8,
                ),
                CriterionSpec(
                    type="file_contains",
                    options={"path": "out.txt", "text": "hello"},
                    weight=2.0,
                    file=file,
                    line=9,
                ),
            ),
            constraints=Constraints(network=False, time_limit_s=120, max_steps=20, max_turns=40),
            environment=Environment(
                image="debian:12",
                build=str(folder / "docker"),
                env={"A": "b"},
                cpus=1,
                memory_mb=64,
                storage_mb=9,
            ),
            keep_processes=True,
            solution=("echo hello > out.txt",),
            metadata={"difficulty": "easy", "minutes": 2},
        )
    ]


def test_what_is_left_out_has_the_defaults_of_a_task(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(small("a"))
    (task,) = load(tmp_path)
    assert task.constraints == Constraints()
    assert task.environment == Environment()
    assert task.files is None
    assert task.solution is None


def test_folders_are_searched_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "task.yaml").write_text(small("second"))
    (tmp_path / "b" / "files").mkdir()
    (tmp_path / "b" / "files" / "data.yaml").write_text("not: a task\n")
    (tmp_path / "c" / "d").mkdir(parents=True)
    (tmp_path / "c" / "d" / "x.yml").write_text(small("third"))
    (tmp_path / "a.yaml").write_text(small("first"))
    (tmp_path / "e.txt").write_text("not YAML")
    assert [task.id for task in load(tmp_path)] == ["first", "second", "third"]


def test_hidden_folders_and_circular_links_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "t.yaml").write_text(small("one"))
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "t.yaml").write_text("broken: [")
    (tmp_path / ".t.yaml").write_text("broken: [")
    assert [task.id for task in load(tmp_path)] == ["one"]


def test_a_pipe_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(small("one"))
    (tmp_path / "b").mkdir()
    for name in ("pipe.yaml", "b/task.yaml"):
        os.mkfifo(tmp_path / name)
    found = [(problem.file, problem.message) for problem in problems(tmp_path)]
    message = "is a pipe or a device, not a file"
    files = [str(tmp_path / name) for name in ("b/task.yaml", "pipe.yaml")]
    assert found == [(file, message) for file in files]


def test_a_linked_folder_is_searched(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "t.yaml").write_text(small("far"))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "link").symlink_to(tmp_path / "elsewhere")
    assert [task.id for task in load(tmp_path / "tasks")] == ["far"]


def test_a_solution_script_is_one_command(tmp_path: Path) -> None:
    script = "#!/bin/bash\nset -e\nfor i in 1 2; do\n  echo $i\ndone\n"
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "task.yaml").write_text(small("t"))
    (tmp_path / "t" / "solution.sh").write_text(script)
    assert load(tmp_path)[0].solution == (script,)


def test_a_solution_in_two_places_is_refused(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(small("t") + "solution: [ls]\n")
    (tmp_path / "solution.sh").write_text("ls\n")
    (problem,) = problems(tmp_path)
    assert problem.message == "a solution is here and in solution.sh"
    assert (problem.line, problem.path) == (5, "solution")


def test_a_solution_in_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(small("t"))
    (tmp_path / "solution.sh").write_text("#!/usr/bin/env python3\nprint()\n")
    (problem,) = problems(tmp_path)
    assert problem.file == str(tmp_path / "solution.sh")
    assert problem.message == "expected a script for sh or bash, found '#!/usr/bin/env python3'"


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"include": ("git-*",)}, ["git-a", "git-b"]),
        ({"include": ("git-*",), "exclude": ("*-b",)}, ["git-a"]),
        ({"tags": ("text", "none")}, ["sed"]),
        ({"limit": 2}, ["git-a", "git-b"]),
        ({"exclude": ("git-a",), "limit": 1}, ["git-b"]),
    ],
)
def test_tasks_are_selected_by_id_tag_and_count(
    tmp_path: Path, options: dict[str, object], ids: list[str]
) -> None:
    for task_id, tag in (("git-a", "git"), ("git-b", "none"), ("sed", "text")):
        (tmp_path / f"{task_id}.yaml").write_text(small(task_id, tag))
    if options.get("tags") == ("text", "none"):
        ids = ["git-b", *ids]
    assert [task.id for task in load(tmp_path, **options)] == ids


def test_a_selection_without_a_match_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(small("basics-ls", "files"))
    found = problems(tmp_path, include=("basics-sl",), tags=("fiels",))
    assert [str(problem) for problem in found] == [
        "include: no task has an id that matches 'basics-sl'\n"
        "    hint      did you mean 'basics-ls'?",
        "tags: no task has the tag 'fiels'\n"
        "    expected  one of files\n"
        "    hint      did you mean 'files'?",
    ]


def test_an_empty_selection_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(small("a"))
    (problem,) = problems(tmp_path, exclude=("*",))
    assert problem.message == "the options select none of 1 tasks"


def test_every_problem_of_every_file_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "id: a/b\ngaol: go\nsuccess_criteria:\n  - {typ: t}\n  - {type: t, weight: 0}\n"
        "constraints: {max_step: 3, time_limit_s: -1}\n"
    )
    (tmp_path / "b.yaml").write_bytes(b"id: \xff\n")
    (tmp_path / "c.yaml").write_text("id: [\n")
    (tmp_path / "d.yaml").write_text(small("d"))
    (tmp_path / "e.yaml").write_text("- a list\n")
    found = "\n".join(str(problem) for problem in problems(tmp_path)).replace(f"{tmp_path}/", "")
    expected = """\
a.yaml:1: 'goal' is missing
    expected  Prompt for the agent.
a.yaml:1: id: expected letters, digits, '.', '_' and '-', with a letter, a digit or '_' first, \
found the text "a/b"
a.yaml:2: gaol: unknown option
    expected  one of constraints, description, environment, goal, id, keep_processes, metadata, \
setup_steps, solution, success_criteria, tags
    hint      did you mean 'goal'?
a.yaml:4: success_criteria[0]: 'type' is missing
    expected  type: name of the criterion
    hint      'typ' is not 'type'
a.yaml:5: success_criteria[1].weight: expected a finite number above 0, found the number 0.0
a.yaml:6: constraints.max_step: unknown option
    expected  one of max_steps, max_turns, network, time_limit_s
    hint      did you mean 'max_steps'?
a.yaml:6: constraints.time_limit_s: expected a finite number above 0, found the number -1.0
b.yaml:1: not UTF-8: byte 5 of the line is 0xff
    hint      if it is WINDOWS-1252: iconv -f WINDOWS-1252 -t UTF-8 b.yaml > NEW
c.yaml:2: not valid YAML: did not find expected node content (while parsing a flow node)
e.yaml:1: expected a task: a mapping of 'id', 'goal', ..."""
    assert found == expected


CRITERIA = "success_criteria: [{type: t}]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "t.yaml:1: expected a task: a mapping of 'id', 'goal', ..."),
        (f"id: a\ngoal: ' '\n{CRITERIA}", 't.yaml:2: goal: expected some text, found the text " "'),
        (
            "id: a\ngoal: go\nsuccess_criteria: []\n",
            "t.yaml:3: success_criteria: expected at least one, found none",
        ),
        (
            "id: a\ngoal: go\nsuccess_criteria: {type: t}\n",
            "t.yaml:3: success_criteria: expected a list, found a mapping\n"
            "    hint      write [...], or one '- item' a line",
        ),
        (
            "id: a\ngoal: go\nsuccess_criteria: [t]\n",
            't.yaml:3: success_criteria[0]: expected a mapping, found the text "t"',
        ),
        (
            f"id: 7\ngoal: go\n{CRITERIA}",
            "t.yaml:1: id: expected text, found the number 7\n    hint      put it in quotes",
        ),
        (
            f"id: a\ngoal: go\n{CRITERIA}setup_steps: mkdir a\n",
            't.yaml:4: setup_steps: expected a list, found the text "mkdir a"\n'
            "    hint      write [...], or one '- item' a line",
        ),
        (
            f"id: a\ngoal: go\n{CRITERIA}keep_processes: yes\n",
            't.yaml:4: keep_processes: expected true or false, found the text "yes"\n'
            "    hint      write true",
        ),
        (
            f"id: a\ngoal: go\n{CRITERIA}metadata: {{ratio: .nan}}\n",
            "t.yaml:4: metadata: expected finite numbers only, found a mapping",
        ),
        (
            "id: a\ngoal: go\nsuccess_criteria: [{type: t, weight: .inf}]\n",
            "t.yaml:3: success_criteria[0].weight: expected a finite number, found the number inf",
        ),
        (
            f"id: a\ngoal: go\ngoal: stay\n{CRITERIA}",
            "t.yaml:3: 'goal' is given twice, first on line 2",
        ),
        (
            f"id: a\ngoal: go\n{CRITERIA}environment:\n  build: dcoker\n",
            "t.yaml:5: environment.build: no such folder: dcoker\n"
            "    hint      did you mean 'docker'?",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "docker").mkdir()
    assert problems_of(tmp_path, text) == [expected]


def test_a_duplicate_id_names_both_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(small("same"))
    (tmp_path / "b.yaml").write_text("# below a comment\n" + small("same"))
    (problem,) = problems(tmp_path)
    assert problem.message == f"'same' is already the id of {tmp_path}/a.yaml:1"
    assert (problem.file, problem.line) == (f"{tmp_path}/b.yaml", 2)


def test_a_missing_path_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "basics").mkdir()
    (problem,) = problems(tmp_path / "basic")
    assert str(problem) == (
        f"{tmp_path}/basic: no such file or folder\n    hint      did you mean 'basics'?"
    )


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path)
    assert problem.message == "no tasks in here"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_reported_with_the_others(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0)
    (tmp_path / "t.yaml").write_text("id: a\n")
    assert len(problems(tmp_path)) == 3


def test_three_thousand_task_folders_are_read_in_under_two_seconds(tmp_path: Path) -> None:
    for i in range(3000):
        folder = tmp_path / f"task-{i:04}"
        (folder / "files").mkdir(parents=True)
        (folder / "task.yaml").write_text(small(f"task-{i:04}"))
    started = time.process_time()
    tasks = load(tmp_path)
    assert time.process_time() - started < 2
    assert [tasks[0].id, tasks[-1].id, len(tasks)] == ["task-0000", "task-2999", 3000]


def test_options_are_read_from_a_config_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "t.yaml").write_text(small("a"))
    config = parse_yaml("path: tasks\ninclude: [a]\nlimit: 1\n", file=str(tmp_path / "c.yaml"))
    (component,) = ale_task_sources()
    assert component.options is not None
    source = component.build(structure(config, component.options), BuildContext())
    assert [task.id for task in source.load()] == ["a"]


def test_a_limit_of_none_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"limit: expected a value >= 1 or null, found 0"):
        structure(parse_yaml("path: .\nlimit: 0\n"), TbpOptions)


def test_listing_the_plugin_reads_no_reader() -> None:
    code = (
        "import sys, ale_tasks_tbp.plugin as p; p.ale_task_sources();"
        "print(sorted(m for m in sys.modules if m in ('yaml', 'cattrs', 'ale.strict')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
