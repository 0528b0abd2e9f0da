"""The branches of an episode: what each turn continues, and the tree on the page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ale.testing.builders import turn
from ale.types import Episode, Message, Replaced, Stop, Trajectory, Turn, replace
from ale_look.view.branches import Branch, branches

from .conftest import Page, attempt, begin_run
from .test_view_browser import HOSTILE, address

SYSTEM = Message(role="system", content="You are an agent.")
GOAL = Message(role="user", content="Fix the failing test.")


def made(*turns: Turn, **fields: Any) -> Episode:
    return attempt(0, trajectory=Trajectory(turns=turns, stop=Stop(reason="finished")), **fields)


def called(text: str, tool: str = "shell", **arguments: str) -> Turn:
    return turn(text, calls=[(tool, json.dumps(arguments))])


def answer(of: Turn) -> Sequence[Message]:
    """What a request that continues a turn has of it."""
    return of.completion.message, *(each.as_message() for each in of.observations)


def fresh(of: Turn, *prompt: Message) -> Turn:
    return replace(of, fresh_context=True, prompt=prompt)


FIRST = fresh(called("I look.", command="ls"), SYSTEM, GOAL)
SECOND = called("I run the test.", command="pytest")


def test_a_conversation_that_only_grows_has_no_branches() -> None:
    assert branches(made(FIRST, SECOND, turn("Done."))) == []
    assert branches(made()) == []


def test_a_compacted_conversation_comes_after_the_turn_before_it() -> None:
    summary = Message(role="user", content="So far: the test fails.")
    compacted = fresh(turn("I fix it."), SYSTEM, GOAL, summary)
    assert branches(made(FIRST, SECOND, compacted, turn("Done."))) == [
        Branch(0, 1, None, "first", ""),
        Branch(2, 3, 1, "compacted", "So far: the test fails."),
    ]


def test_a_conversation_with_the_words_of_a_call_is_that_of_the_call() -> None:
    task = "Find where the cache is written."
    asking = called("I ask another.", "task", prompt=task)
    other = Message(role="system", content="You only search.")
    sub = fresh(turn("In cache.py."), other, Message(role="user", content=f"{task} Be brief."))
    assert branches(made(FIRST, asking, sub, turn("Line 3."))) == [
        Branch(0, 1, None, "first", ""),
        Branch(2, 3, 1, "called", f"task: {task} Be brief."),
    ]


def test_a_short_word_of_a_call_proves_nothing() -> None:
    asking = called("I look.", command="test")
    title = Message(role="user", content="A title for: Fix the failing test.")
    beside = fresh(turn("Fixing a test"), title)
    [_, found] = branches(made(fresh(asking, SYSTEM, GOAL), beside))
    assert (found.kind, found.after) == ("other", 0)


def test_a_side_conversation_and_the_return_from_it() -> None:
    """The third turn continues the first with all of its conversation, stored as a whole."""
    beside = fresh(turn("Fixing a test"), Message(role="user", content="Name this."))
    more = Message(role="user", content="And then?")
    again = fresh(turn("Done."), SYSTEM, GOAL, *answer(FIRST), more)
    assert branches(made(FIRST, beside, again)) == [
        Branch(0, 0, None, "first", ""),
        Branch(1, 1, 0, "other", "Name this."),
        Branch(2, 2, 0, "again", "And then?"),
    ]


def test_what_was_asked_again_continues_the_earlier_turn() -> None:
    """As `ale proxy` stores it: told from the turn before, whose answer is gone."""
    other = replace(turn("I try another way."), replaced=(Replaced(start=4, stop=6),))
    assert branches(made(FIRST, SECOND, other, turn("Done."))) == [
        Branch(0, 1, None, "first", ""),
        Branch(2, 3, 0, "again", ""),
    ]


def test_a_result_that_was_cut_is_no_branch() -> None:
    cut = (Replaced(start=3, stop=4, messages=(Message(role="tool", content="..."),)),)
    assert branches(made(FIRST, SECOND, replace(turn("Done."), replaced=cut))) == []


def test_a_conversation_is_after_what_was_answered_before_it() -> None:
    """The turns of a conversation stand together; `answered_as` says what came between them."""
    beside = fresh(turn("Fixing a test"), Message(role="user", content="Name this."))
    episode = made(FIRST, SECOND, beside, metadata={"answered_as": [0, 2, 1]})
    assert branches(episode)[1].after == 0
    for wrong in ([0, 1], ["a", "b", "c"], [0, 0, 1], "abc", 3):
        assert branches(replace(episode, metadata={"answered_as": wrong}))[1].after == 1


def test_an_episode_that_was_forked_has_its_own_turns_as_a_branch() -> None:
    forced = replace(FIRST, completion=replace(FIRST.completion, forced=True))
    assert branches(made(forced, SECOND, start="expert/1")) == [
        Branch(0, 0, None, "first", "start expert/1"),
        Branch(1, 1, 0, "own", ""),
    ]


def test_the_page_has_the_tree_with_links_and_keys(page: Page, served: str, runs: Path) -> None:
    store = begin_run(runs / "tree")
    summary = Message(role="user", content=f"So far: {HOSTILE}")
    beside = fresh(turn("Fixing a test"), Message(role="user", content="Name this."))
    store.add_episode(made(FIRST, beside, fresh(turn("I fix it."), SYSTEM, GOAL, summary)))
    store.close()
    page.open(address(served, "/run/tree/e/0/0-rename-0?calls=folded"))
    links = "document.querySelectorAll('nav.branches a')"
    page.until(f"{links}.length === 3")
    assert page.value("document.querySelectorAll('nav.branches ul ul li').length") == 2
    assert "another conversation, begun after turn 0: Name this." in page.text()
    assert page.value(f"{links}[0].getAttribute('aria-current')") == "true"
    page.value(f"{links}[1].click()")
    page.until("document.querySelector('#turn-1.current')")
    assert page.value("location.hash").endswith("?calls=folded&turn=1")
    page.press("]")
    page.until("document.querySelector('#turn-2.current')")
    page.until(f"{links}[2].getAttribute('aria-current') === 'true'")
    for key, shown in (("]", 2), ("[", 1), ("[", 0), ("[", 0)):
        page.press(key)
        page.until(f"document.querySelector('#turn-{shown}.current')")
    assert not page.value("window.owned")


def test_an_episode_of_one_conversation_shows_no_tree(page: Page, served: str) -> None:
    page.open(address(served, "/run/first/e/0/0-rename-0"))
    page.until("document.querySelector('#turn-0.current')")
    assert not page.value("Boolean(document.querySelector('nav.branches'))")
