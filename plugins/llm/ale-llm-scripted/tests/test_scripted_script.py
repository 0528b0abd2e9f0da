"""What a script may say, and what is said about a wrong one."""

from pathlib import Path

import pytest

from ale.errors import InputError
from ale_llm_scripted.script import Line, Script, read_script

DEMO = """\
model: demo
default: [Nothing to do.]
tasks:
  basics-ls:
    - - {text: I list., calls: [{name: shell, arguments: {command: ls, n: 2}}]}
      - Done.
    - - {shell: ls -a}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "script.yaml"


def read(file: Path, text: str, *, tools: bool = True) -> Script:
    file.write_text(text)
    return read_script(file, tools=tools)


def problems(file: Path, text: str, *, tools: bool = True) -> list[str]:
    with pytest.raises(InputError) as raised:
        read(file, text, tools=tools)
    return [str(problem).removeprefix(f"{file}:") for problem in raised.value.problems]


def plain(lines: tuple[Line, ...] | None) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(line.text, [(c.name, c.text) for c in line.all_calls]) for line in lines or ()]


def test_a_script_gives_each_task_and_rollout_its_lines(file: Path) -> None:
    script = read(file, DEMO)
    first = [("I list.", [("shell", '{"command": "ls", "n": 2}')]), ("Done.", [])]
    second = [("", [("shell", '{"command": "ls -a"}')])]
    assert script.model == "demo"
    assert [plain(script.lines("basics-ls", r)) for r in range(4)] == [first, second, first, second]
    assert plain(script.lines("another", 5)) == [("Nothing to do.", [])]


def test_without_a_default_an_unnamed_task_has_no_lines(file: Path) -> None:
    assert read(file, "tasks: {a: [[hi]]}").lines("b", 0) is None


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{\n\t"default": [{"text": "caf\\u00e9", "finish_reason": "length"}]\n}\n')
    (line,) = read_script(path).default or ()
    assert (line.text, line.finish_reason) == ("café", "length")


def test_raw_arguments_stay_as_they_are_written(file: Path) -> None:
    script = read(file, "default: [{calls: [{name: shell, arguments: '{not json'}]}]")
    assert plain(script.default) == [("", [("shell", "{not json")])]


def test_arguments_keep_their_order_and_their_letters(file: Path) -> None:
    script = read(file, "default: [{calls: [{name: f, arguments: {z: ä, a: null, on: true}}]}]")
    assert plain(script.default) == [("", [("f", '{"z": "ä", "a": null, "on": true}')])]


def test_every_problem_is_named_at_once_with_line_and_path(file: Path) -> None:
    text = """\
modle: demo
default:
  - {txt: hello}
tasks:
  a:
    - - {calls: [{nmae: shell}]}
      - 7
  b: []
"""
    assert problems(file, text) == [
        "1: modle: unknown option\n"
        "    expected  one of default, model, tasks, tokens\n"
        "    hint      did you mean 'model'?"
    ]
    found = problems(file, text.replace("modle", "model"))
    assert [line.splitlines()[0] for line in found] == [
        "3: default[0].txt: unknown option",
        "6: tasks.a[0][0].calls[0].nmae: unknown option",
        "6: tasks.a[0][0].calls[0]: 'name' is missing",
        "7: tasks.a[0][1]: expected a turn: text, or a mapping with text, shell, calls or error, "
        "found the number 7",
        "8: tasks.b: expected at least one script, found an empty list",
    ]
    assert "did you mean 'text'?" in found[0]
    assert "did you mean 'name'?" in found[1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "1: a script needs 'tasks', 'default' or both"),
        (
            "tasks: [a]",
            "1: tasks: expected a mapping of task ids to lists of scripts, found a list",
        ),
        (
            "tasks:\n  a: [hi, there]",
            "2: tasks.a: expected a list of scripts, one per rollout, found a list of turns\n"
            "    hint      a script is itself a list of turns: put one '- ' more before it",
        ),
        (
            "tasks: {a: hi}",
            '1: tasks.a: expected a list of scripts, one per rollout, found the text "hi"\n'
            "    hint      a script is itself a list of turns: put one '- ' more before it",
        ),
        (
            "default: [null]",
            "1: default[0]: expected a turn: text, or a mapping with text, shell, "
            "calls or error, found nothing",
        ),
        (
            "default: [{sleep_s: 1}]",
            "1: default[0]: a turn without text, reasoning, shell, calls or error",
        ),
        (
            "default: [{shell: ls, calls: [{name: a}]}]",
            "1: default[0]: 'shell' is short for 'calls': write one of them",
        ),
        (
            "default: [{error: down, text: hi}]",
            "1: default[0]: a turn with an 'error' has no text, shell or calls",
        ),
        (
            "default: [{text: hi, transient: true}]",
            "1: default[0]: 'transient' needs an 'error'",
        ),
        (
            "default: [{text: hi, sleep_s: -1}]",
            "1: default[0].sleep_s: expected a value >= 0, found -1.0",
        ),
        (
            "default: [{text: hi, finish_reason: stopp}]",
            "1: default[0].finish_reason: expected one of stop, tool_calls, length, "
            'content_filter, other or null, found the text "stopp"\n'
            "    hint      did you mean 'stop'?",
        ),
        (
            "default: [{calls: [{name: f, arguments: {x: .nan}}]}]",
            "1: default[0].calls[0]: nan and infinity are not JSON: write the arguments as text",
        ),
        (
            "tokens: true\ndefault: [{text: hi, tokens: 3}]",
            "2: default[0]: a number of tokens, where 'tokens: true' counts those of the trace",
        ),
    ],
)
def test_the_problem_of_a_wrong_script_is_reported(file: Path, text: str, problem: str) -> None:
    assert problems(file, text) == [problem]


def test_a_call_is_a_problem_for_a_model_without_tools(file: Path) -> None:
    assert problems(file, "default: [{shell: ls}]", tools=False) == [
        "1: default[0]: calls a tool, and the option 'tools' of the model is off"
    ]


def test_a_missing_file_is_named_with_a_similar_one(file: Path) -> None:
    file.write_text(DEMO)
    with pytest.raises(InputError, match=r"did you mean 'script\.yaml'") as caught:
        read_script(file.with_name("scipt.yaml"))
    assert "llm.script: no such file\n    expected  a script: a YAML file" in str(caught.value)
