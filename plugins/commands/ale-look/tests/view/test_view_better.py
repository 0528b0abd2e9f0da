"""What the better attempt at a task did, beside the attempts."""

import json
from pathlib import Path
from typing import Any

from ale.testing.builders import turn
from ale.types import Episode, Stop, Trajectory, Turn

from .conftest import Page, attempt, begin_run
from .test_view_browser import HOSTILE, address

SECTION = "document.querySelector('#better')"


def acted(tool: str, error: str | None = None, seen: str = "ok", **arguments: str) -> Turn:
    return turn("", calls=[(tool, json.dumps(arguments))], observations=[seen], errors=[error])


def made(number: int, reward: float | None, *turns: Turn) -> Episode:
    trajectory = Trajectory(turns=turns, stop=Stop(reason="finished"))
    return attempt(number, reward=reward, trajectory=trajectory)


def write(path: Path, *episodes: Episode) -> None:
    store = begin_run(path)
    for each in episodes:
        store.add_episode(each)
    store.close()


def shown(page: Page, served: str) -> Any:
    """Of each side, its calls, and the rows of files."""
    page.open(address(served, "/run/group/task/rename"))
    page.until(SECTION)
    texts = "(nodes) => [...nodes].map((node) => node.innerText.replace(/\\s+/g, ' ').trim())"
    return page.value(
        f"(() => {{ const texts = {texts}; const section = {SECTION};"
        " return [[...section.querySelectorAll('.apart')].map((list) => texts(list.children)),"
        " texts(section.querySelectorAll('tbody tr'))]; })()"
    )


LOOK = acted("shell", command="ls")


def test_calls_and_files_of_the_best_and_the_worst(page: Page, served: str, runs: Path) -> None:
    printed = "--- a/log\n+++ b/log\n@@ -1 +1 @@\n-a\n+b\n"
    best = made(
        0,
        1.0,
        LOOK,
        acted("shell", command="pytest"),
        acted("edit", path="a.py", old_str="1", new_str="2"),
        acted("shell", command="git diff", seen=printed),
        acted("write", path="same.py", content="x"),
    )
    worst = made(
        1,
        0.0,
        LOOK,
        acted("edit", path="a.py", old_str="1", new_str="3"),
        acted("shell", error="exit code 1", command="pytest -x"),
        acted("write", path="same.py", content="x"),
        acted("write", error="no space", path="never.py", content="x"),
    )
    middle = made(3, 0.5, LOOK, acted("shell", command="neither of them"))
    write(runs / "group", middle, worst, best, made(2, None, LOOK))
    sides, files = shown(page, served)
    assert sides == [
        ["turn 1 shell pytest", "turn 2 edit a.py 1 2", "turn 3 shell git diff"],
        ["turn 1 edit a.py 1 3", "turn 2 shell pytest -x failed", "turn 4 write never.py x failed"],
    ]
    assert files == ["a.py turn 2 turn 1", "log turn 3 -"]
    assert "part in turn 1" in page.value(f"{SECTION}.innerText")
    page.value(f"{SECTION}.querySelectorAll('.apart')[1].querySelector('a').click()")
    page.until("document.querySelector('#turn-1.current')")
    assert "/0-rename-1?turn=1" in page.value("location.hash")


def test_a_call_that_is_made_more_often_is_told(page: Page, served: str, runs: Path) -> None:
    again, other = acted("shell", command="pytest"), acted("shell", command="true")
    best = made(0, 1.0, LOOK, again, again, again)
    write(runs / "group", best, made(1, 0.0, LOOK, other, again))
    sides, _ = shown(page, served)
    assert sides == [["turn 2 shell pytest", "turn 3 shell pytest"], ["turn 1 shell true"]]


def test_what_differs_by_reward_alone_is_said(page: Page, served: str, runs: Path) -> None:
    write(runs / "group", made(0, 1.0, LOOK), made(1, 0.0, LOOK))
    shown(page, served)
    assert "The best attempt and the worst do the same." in page.text()


def test_the_best_of_a_large_group_is_read_too(page: Page, served: str, runs: Path) -> None:
    """Eight attempts stand side by side."""
    others = [made(n, 0.0, LOOK) for n in range(11)]
    write(runs / "group", *others, made(11, 1.0, LOOK, acted("shell", command=HOSTILE)))
    sides, _ = shown(page, served)
    assert [len(side) for side in sides] == [1, 0]
    assert page.value("document.querySelectorAll('.grid.head > div').length") == 8
    assert not page.value("window.owned")


def test_of_equal_rewards_none_is_better(page: Page, served: str, runs: Path) -> None:
    write(runs / "group", made(0, 1.0, LOOK), made(1, 1.0, LOOK, LOOK), made(2, None, LOOK))
    page.open(address(served, "/run/group/task/rename"))
    page.until("document.querySelector('.grid.parts')")
    assert not page.value(f"Boolean({SECTION})")
