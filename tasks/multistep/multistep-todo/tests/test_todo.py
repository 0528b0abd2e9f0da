"""Uses the program in folders of its own."""

import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = str(Path("todo.py").resolve())


class Todo:
    """The program in one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def run(self, *arguments: str) -> tuple[str, int]:
        done = subprocess.run(
            [sys.executable, SCRIPT, *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        assert bool(done.stderr) == bool(done.returncode), done.stderr
        return done.stdout, done.returncode

    def out(self, *arguments: str) -> str:
        text, code = self.run(*arguments)
        assert code == 0, arguments
        return text


def filled(folder: str) -> Todo:
    todo = Todo(folder)
    assert todo.out("add", "water the plants") == "added 1\n"
    assert todo.out("add", "pay, now!", "--priority", "1") == "added 2\n"
    assert todo.out("add", "read [a book]", "--priority", "5") == "added 3\n"
    assert todo.out("add", "Zürich") == "added 4\n"
    return todo


def test_items_are_listed_by_priority_and_id() -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert filled(folder).out("list") == (
            "2 [1] pay, now!\n1 [3] water the plants\n4 [3] Zürich\n3 [5] read [a book]\n"
        )


def test_done_items_follow_with_all() -> None:
    with tempfile.TemporaryDirectory() as folder:
        todo = filled(folder)
        assert todo.out("done", "4") + todo.out("done", "2") + todo.out("done", "4") == ""
        assert todo.out("list") == "1 [3] water the plants\n3 [5] read [a book]\n"
        assert todo.out("list", "--all") == (
            "1 [3] water the plants\n3 [5] read [a book]\n"
            "2 [1] pay, now! (done)\n4 [3] Zürich (done)\n"
        )
        assert todo.out("stats") == "open 2, done 2\n"


def test_ids_are_never_used_again() -> None:
    with tempfile.TemporaryDirectory() as folder:
        todo = filled(folder)
        assert todo.out("remove", "4") + todo.out("remove", "1") == ""
        assert todo.out("add", "next") == "added 5\n"
        assert todo.out("list") == "2 [1] pay, now!\n5 [3] next\n3 [5] read [a book]\n"


def test_an_empty_list() -> None:
    with tempfile.TemporaryDirectory() as folder:
        todo = Todo(folder)
        assert (todo.out("list"), todo.out("list", "--all")) == ("", "")
        assert todo.out("stats") == "open 0, done 0\n"


def test_wrong_use_changes_nothing() -> None:
    wrong = [
        (),
        ("jump",),
        ("add",),
        ("add", ""),
        ("add", "x", "--priority", "0"),
        ("add", "x", "--priority", "6"),
        ("add", "x", "--priority", "high"),
        ("done",),
        ("done", "9"),
        ("done", "two"),
        ("remove", "0"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        todo = filled(folder)
        before = todo.out("list", "--all")
        for arguments in wrong:
            assert todo.run(*arguments) == ("", 2), arguments
        assert todo.out("list", "--all") == before
        assert todo.out("add", "fifth") == "added 5\n"


def test_items_with_two_digits_are_sorted_by_number() -> None:
    with tempfile.TemporaryDirectory() as folder:
        todo = Todo(folder)
        for i in range(1, 12):
            assert todo.out("add", f"item {i}") == f"added {i}\n"
        assert todo.out("list").splitlines()[-2:] == ["10 [3] item 10", "11 [3] item 11"]
