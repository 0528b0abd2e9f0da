import itertools
import time

import pytest

from ale_chunkers.micro_steps import micro_steps, pieces


def cut(text: str) -> list[tuple[str, str]]:
    found = []
    position = 0
    for kind, stop in pieces(text):
        found.append((kind, text[position:stop]))
        position = stop
    assert position == len(text)
    return found


def test_a_message_without_tags_is_one_piece() -> None:
    assert cut("Look around.") == [("message", "Look around.")]


def test_an_empty_message_is_one_piece() -> None:
    assert cut("") == [("message", "")]


def test_tags_split_a_message_into_steps_and_what_is_between() -> None:
    assert cut("First <micro-step>a</micro-step> then <micro-step>b</micro-step> done") == [
        ("message", "First "),
        ("micro-step", "<micro-step>a</micro-step>"),
        ("message", " then "),
        ("micro-step", "<micro-step>b</micro-step>"),
        ("message", " done"),
    ]


def test_white_space_between_steps_is_no_piece_of_its_own() -> None:
    assert cut("\n<micro-step>a</micro-step>\n<micro-step>b</micro-step>\n") == [
        ("micro-step", "\n<micro-step>a</micro-step>\n"),
        ("micro-step", "<micro-step>b</micro-step>\n"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<micro-step>never closed",
        "stray</micro-step>",
        "</micro-step>wrong way round<micro-step>",
        "<micro-step/>",
        "<Micro-Step>a</Micro-Step>",
    ],
)
def test_tags_that_do_not_match_are_plain_text(text: str) -> None:
    assert cut(text) == [("message", text)]


def test_an_unclosed_tag_does_not_swallow_the_steps_after_it() -> None:
    assert cut("<micro-step>a <micro-step>b</micro-step> c") == [
        ("message", "<micro-step>a "),
        ("micro-step", "<micro-step>b</micro-step>"),
        ("message", " c"),
    ]


def test_a_stray_closing_tag_does_not_end_the_next_step() -> None:
    assert cut("a</micro-step><micro-step>b</micro-step>") == [
        ("message", "a</micro-step>"),
        ("micro-step", "<micro-step>b</micro-step>"),
    ]


def test_a_step_inside_another_belongs_to_the_outer_one() -> None:
    text = "<micro-step>a<micro-step>b</micro-step><micro-step>c</micro-step></micro-step>"
    assert cut(text) == [("micro-step", text)]


def test_deep_nesting_takes_linear_time() -> None:
    depth = 40_000
    text = "<micro-step>" * depth + "</micro-step>" * depth
    start = time.process_time()
    assert micro_steps(text) == [(0, len(text))]
    assert time.process_time() - start < 2.0


def steps(text: str) -> list[tuple[str, str]]:
    ends = [("", 0), *pieces(text, ("step", "answer"))]
    return [(kind, text[start:stop]) for (_, start), (kind, stop) in itertools.pairwise(ends)]


def test_steps_and_the_answer_are_pieces_with_names_of_their_own() -> None:
    assert steps("Well. <step>6 * 7</step>\n<step>is 42</step> <answer>42</answer>") == [
        ("message", "Well. "),
        ("step", "<step>6 * 7</step>\n"),
        ("step", "<step>is 42</step> "),
        ("answer", "<answer>42</answer>"),
    ]


def test_a_step_that_is_never_closed_does_not_take_the_answer() -> None:
    assert steps("<step>hm <answer>42</answer>") == [
        ("message", "<step>hm "),
        ("answer", "<answer>42</answer>"),
    ]


def test_an_answer_in_a_step_is_part_of_it_and_tags_that_cross_close_the_inner_one() -> None:
    inside = "<step>so <answer>42</answer></step>"
    assert steps(inside) == [("step", inside)]
    assert steps("<step>so <answer>42</step></answer>") == [
        ("step", "<step>so <answer>42</step>"),
        ("message", "</answer>"),
    ]
