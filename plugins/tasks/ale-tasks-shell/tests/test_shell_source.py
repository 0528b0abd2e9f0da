"""The source: the same tasks everywhere, splits that share nothing, errors that help."""

import hashlib
import itertools
import os
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from ale.errors import InputError
from ale.strict import from_plain, structure
from ale.types import Task
from ale_tasks_shell import corpus
from ale_tasks_shell.kinds import BY_NAME, KINDS
from ale_tasks_shell.options import ShellTasksOptions, Split
from ale_tasks_shell.planner import held_out_pair_of_kinds
from ale_tasks_shell.source import ShellTasks
from ale_tasks_shell.words import VOCABULARY, held_out_pair

SPLITS = get_args(Split)
README = Path(__file__).parents[1] / "README.md"
_DIGEST = """
import hashlib, msgspec
from ale_tasks_shell.options import ShellTasksOptions
from ale_tasks_shell.source import ShellTasks

made = hashlib.sha256()
for split in {splits!r}:
    options = ShellTasksOptions(seed=5, count=200, split=split, length=(2, 10))
    for task in ShellTasks(options).load():
        made.update(msgspec.json.encode(task))
print(made.hexdigest())
"""


def load(**options: Any) -> Iterator[Task]:
    return iter(ShellTasks(ShellTasksOptions(**options)).load())


def kinds_of(task: Task) -> list[str]:
    kinds: list[str] = task.metadata["kinds"]
    return kinds


def sentences(split: str, **options: Any) -> set[str]:
    """What the goals of a split say, sentence by sentence."""
    tasks = [task for seed in range(3) for task in load(seed=seed, split=split, **options)]
    return {sentence for task in tasks for sentence in task.goal.split("\n")}


def test_the_tasks_are_the_same_to_the_byte_in_any_process() -> None:
    digests = set()
    for seed in ("0", "4711"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        script = _DIGEST.format(splits=SPLITS)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    here = hashlib.sha256()
    for split in SPLITS:
        for task in load(seed=5, count=200, split=split, length=(2, 10)):
            here.update(msgspec.json.encode(task))
    assert digests == {here.hexdigest()}


def test_the_first_tasks_do_not_depend_on_how_many_are_asked_for() -> None:
    few = list(load(count=20))
    assert list(itertools.islice(load(count=500), 20)) == few


def test_another_seed_gives_other_tasks_under_other_names() -> None:
    one, other = (list(load(seed=seed, count=50, length=6)) for seed in (0, 1))
    assert not {task.goal for task in one} & {task.goal for task in other}
    assert not {task.id for task in one} & {task.id for task in other}


def test_an_id_has_split_commands_seed_and_index() -> None:
    (task,) = load(seed=7, count=1, length=3, split="held_out_parameters")
    assert task.id == "parameters-3-seed7-00000"


def test_a_task_looks_like_this() -> None:
    """Written down, so that nobody changes the tasks of a seed without noticing."""
    (task,) = load(seed=1, count=1, length=3, kinds=("line", "copy_named"))
    assert task.goal == ("Copy the file that queen names to jar.\nWrite line 4 of jar to bell.")
    assert task.solution == ("cat queen", "cp wagon jar", "sed -n 4p jar > bell")
    assert task.environment_kind == "terminal"


@pytest.mark.parametrize("split", SPLITS)
def test_the_smallest_vocabulary_suffices_for_the_longest_tasks(split: str) -> None:
    assert len(list(load(count=500, length=10, words=48, split=split))) == 500


@pytest.mark.parametrize("length", range(1, 11))
def test_a_task_takes_the_requested_number_of_commands(length: int) -> None:
    for task in load(count=100, length=length):
        assert task.solution is not None
        assert len(task.solution) == length == task.metadata["commands"]


def test_every_length_of_a_range_occurs() -> None:
    assert {task.metadata["commands"] for task in load(length=(2, 5))} == {2, 3, 4, 5}


@pytest.mark.parametrize("split", SPLITS)
def test_every_kind_occurs_in_every_split(split: str) -> None:
    tasks = load(count=2000, length=(1, 5), split=split)
    found = {kind for task in tasks for kind in kinds_of(task)}
    assert found == set(BY_NAME)


def test_only_the_requested_kinds_occur() -> None:
    wanted = ("copy", "sort", "append")
    tasks = list(load(kinds=wanted))
    assert {kind for task in tasks for kind in kinds_of(task)} == set(wanted)
    assert list(load(kinds=wanted[::-1])) == tasks


@pytest.mark.parametrize("length", [1, (1, 4), (8, 10)])
def test_training_and_held_out_parameters_share_no_sentence(length: Any) -> None:
    trained = sentences("train", count=600, length=length)
    trained |= sentences("train", count=200, length=length, words=128)
    held_out = sentences("held_out_parameters", count=600, length=length)
    held_out |= sentences("held_out_parameters", count=200, length=length, words=48)
    assert len(trained) > 1500
    assert not trained & held_out


def neighbours(split: str, **options: Any) -> Iterator[set[tuple[str, str]]]:
    for task in load(split=split, **options):
        yield set(itertools.pairwise(kinds_of(task)))


def test_every_task_of_held_out_compositions_has_steps_that_training_never_has_in_a_row() -> None:
    trained = set().union(*neighbours("train", count=1500, length=(2, 10)))
    parameters = set().union(*neighbours("held_out_parameters", count=1500, length=(2, 10)))
    assert len(trained) > 400
    for pairs in neighbours("held_out_compositions", count=1000, length=(2, 10)):
        assert pairs - trained - parameters


def test_held_out_compositions_join_only_words_that_training_joins() -> None:
    """What is new there is the order of the steps, and nothing else."""
    composed = sentences("held_out_compositions", count=500, length=(2, 6))
    assert not composed & sentences("held_out_parameters", count=600, length=(1, 6))


def test_a_quarter_of_the_partners_of_each_word_is_held_out() -> None:
    for word in VOCABULARY:
        held_out = [other for other in VOCABULARY if held_out_pair(word, other)]
        assert len(held_out) == len(VOCABULARY) / 4
        assert word not in held_out
        assert all(held_out_pair(other, word) for other in held_out)


def test_a_fifth_of_the_successors_of_each_kind_is_held_out() -> None:
    for kind in KINDS:
        held_out = [other for other in KINDS if held_out_pair_of_kinds(kind.name, other.name)]
        assert len(KINDS) // 5 <= len(held_out) <= len(KINDS) // 5 + 1


def test_no_word_occurs_in_another_or_in_a_sentence_of_a_kind() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 128
    digests = " ".join(re.sub(r"{\w}", "", kind.goal + " ".join(kind.commands)) for kind in KINDS)
    for word in VOCABULARY:
        assert re.fullmatch("[a-z]{3,6}", word)
        assert [other for other in VOCABULARY if word in other] == [word]
        assert word not in re.findall("[a-z]+", digests.lower())


def test_names_and_words_of_a_task_come_from_the_vocabulary_asked_for() -> None:
    allowed = set(VOCABULARY[:48])
    rest = set(VOCABULARY[48:])
    text = "".join(corpus(1, 500, words=48))
    found = set(re.findall("[a-z]+", text))
    assert allowed < found
    assert not rest & found


def test_what_a_task_names_without_making_it_is_set_up_by_one_command() -> None:
    for task in load(count=300, length=(1, 10)):
        assert len(task.setup_steps) <= 1


def test_the_corpus_is_goals_and_commands_of_training_tasks() -> None:
    texts = list(corpus(2, 5, length=3))
    tasks = load(seed=2, count=5, length=3)
    assert texts == ["\n".join((task.goal, *(task.solution or ()))) + "\n" for task in tasks]


def test_a_corpus_of_some_thousand_tasks_has_every_word_and_every_kind() -> None:
    text = "".join(corpus(0, 4000))
    assert not set(VOCABULARY[:64]) - set(re.findall("[a-z]+", text))
    for kind in KINDS:
        start = re.escape(kind.commands[-1]).replace(r"\{\{", "{").replace(r"\}\}", "}")
        assert re.search(re.sub(r"\\{(\w)\\}", r"[a-z0-9./]+", start), text), kind.name


def test_ten_thousand_tasks_load_in_seconds_and_are_not_held_in_memory() -> None:
    source = ShellTasks(ShellTasksOptions(count=10_000))
    before = time.process_time()
    assert sum(1 for _ in source.load()) == 10_000
    assert time.process_time() - before < 5  # measured: 0.4; CI machines are slower
    tracemalloc.start()
    for _ in itertools.islice(source.load(), 2000):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"kinds": ["copy", "sorrt"]}, "there is no kind of step 'sorrt'; did you mean 'sort'?"),
        ({"kinds": ["copy", "copy"]}, "a kind of step is named twice"),
        ({"length": 0}, "expected a number from 1 to 10, or [least, most]"),
        ({"length": [4, 2]}, "found [4, 2]"),
        ({"length": [1, 11]}, "found [1, 11]"),
        ({"length": "long"}, "found the text"),
        ({"count": 0}, "expected a value >= 1, found 0"),
        ({"count": 10_000_000}, "expected a value <= 1000000, found 10000000"),
        ({"seed": -1}, "expected a value >= 0, found -1"),
        ({"words": 10}, "expected a number from 48 to 128, found 10"),
        ({"split": "heldout"}, "expected one of train, held_out_parameters, held_out_compositions"),
    ],
)
def test_a_wrong_option_is_reported_with_its_path(written: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        structure(from_plain(written), ShellTasksOptions, path="tasks")
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.path is not None
    assert problem.path.startswith(f"tasks.{next(iter(written))}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kinds": ("copy_named",), "length": 3},
            "no task of split 'train' takes 3 commands with copy_named",
        ),
        (
            {"split": "held_out_compositions", "length": 1},
            "no task of split 'held_out_compositions' takes 1 commands with all kinds",
        ),
    ],
)
def test_impossible_options_are_rejected_before_the_first_task(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        ShellTasks(ShellTasksOptions(**options))
    (problem,) = caught.value.problems
    assert problem.message == message
    assert problem.path == "tasks.length"
    assert problem.hint


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_readme_describes_each_kind(kind: Any) -> None:
    commands = "; ".join(kind.commands).replace("{{", "(").replace("}}", ")")
    new = "fox/map" if kind.name in ("write_inside", "make_inside") else "map"
    places = {"a": "fox", "b": new, "c": "oak", "w": "cup", "v": "hat", "n": 3}
    commands = commands.format_map(places).replace("(", "{").replace(")", "}").replace("|", r"\|")
    row = f"| `{kind.name}` | {kind.goal.format_map(places)} | `{commands}` |"
    assert row in README.read_text()
