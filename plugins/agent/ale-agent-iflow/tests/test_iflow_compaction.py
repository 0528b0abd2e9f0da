"""Folding: what is kept, what goes first, and that a call never loses its result."""

import itertools
import json
import random

import pytest

from ale.testing.agent import answer
from ale.types import Message, Observation, ToolCall
from ale_agent_iflow.context import Exchange, Gauge, History, compact, rough_tokens

HEAD = (Message(role="system", content="You act."), Message(role="user", content="The task."))


def exchange(
    n_calls: int = 1, size: int = 400, *, role="tool", start: int = 0, error: str | None = None
) -> Exchange:
    calls = tuple(
        ToolCall(id=f"c{start + i}", name="shell", arguments=json.dumps({"command": f"run {i}"}))
        for i in range(n_calls)
    )
    return Exchange(
        answer=Message(
            role="assistant",
            content=f"step {start}",
            reasoning="because " * 5,
            tool_calls=calls if role == "tool" else (),
        ),
        calls=calls,
        observations=tuple(
            Observation(
                call_id=call.id,
                tool="shell",
                role=role,
                content="x" * size,
                error=error,
                exit_code=0,
            )
            for call in calls
        ),
        reminder=() if calls else (Message(role="user", content="Call a tool."),),
    )


def history(*exchanges: Exchange) -> History:
    return History(head=HEAD, exchanges=exchanges)


def compact_to(compacted: History, limit: int, *, target: int | None = None, keep: int = 2):
    return compact(compacted, rough_tokens, limit=limit, target=target or limit, keep=keep)


def size(compacted: History) -> int:
    return rough_tokens(compacted.messages)


def test_old_observations_go_first_and_the_latest_turns_stay_whole():
    before = history(*(exchange(start=i) for i in range(5)))
    after = compact_to(before, size(before) - 150)
    assert [e.observations[0].content for e in after.exchanges] == [
        "[400 bytes left out]",
        "[400 bytes left out]",
        "x" * 400,
        "x" * 400,
        "x" * 400,
    ]
    assert after.exchanges[2:] == before.exchanges[2:]
    assert after.digest == ()


def test_then_old_turns_go_and_a_line_for_each_call_is_left():
    before = history(exchange(2), exchange(error="exit code 1"), exchange(), exchange())
    after = compact_to(before, size(before), target=1)
    assert after.exchanges == before.exchanges[2:]
    assert after.messages[1].content == (
        "The task.\n\n[Earlier steps are left out here to save space. Their effects remain. "
        "The calls were:\n"
        "- shell run 0 -> exit code 0\n"
        "- shell run 1 -> exit code 0\n"
        "- shell run 0 -> exit code 1\n]"
    )


def test_an_error_is_still_seen_where_its_observation_is_left_out():
    before = history(exchange(error="timed out after 60 s"), exchange(), exchange())
    after = compact_to(before, size(before) - 10)
    assert after.exchanges[0].observations[0].content == (
        "[400 bytes left out] [timed out after 60 s]"
    )


def test_the_latest_turns_are_cut_only_where_nothing_else_helps():
    before = history(exchange(size=100), exchange(size=9000))
    after = compact_to(before, 700, keep=1)
    assert after.exchanges[-1].observations[0].content.startswith("x" * 1024 + "\n[6952 bytes")


def test_a_single_huge_answer_is_reduced_to_its_facts():
    huge = exchange()
    arguments = json.dumps({"path": "big.txt", "content": "y" * 90_000})
    calls = (ToolCall(id="c", name="write_file", arguments=arguments),)
    answer = Message(role="assistant", tool_calls=calls)
    done = Observation(call_id="c", tool="write_file", content="[wrote 90000 bytes]")
    huge = Exchange(answer=answer, calls=calls, observations=(done,))
    after = compact_to(history(huge), 400)
    assert after.exchanges == ()
    assert after.digest == ("- write_file big.txt -> ok",)


def test_compaction_stops_as_soon_as_the_target_is_met():
    before = history(*(exchange(start=i) for i in range(8)))
    mild = compact_to(before, 2000, target=size(before) - 90)
    assert sum(e.observations[0].content != "x" * 400 for e in mild.exchanges) == 1


def test_a_digest_that_grows_too_long_loses_its_oldest_lines():
    before = history(*(exchange(4, size=10, start=i) for i in range(100)))
    after = compact_to(before, 1000, target=1)
    assert 0 < len(after.digest) < 392
    assert sum(len(line) + 1 for line in after.digest) <= 1000


def test_a_second_compaction_keeps_the_facts_of_the_first():
    once = compact_to(history(exchange(error="first"), exchange(), exchange()), 1000, target=1)
    twice = compact_to(once.add(exchange()).add(exchange()), 1000, target=1)
    assert once.digest[0] == twice.digest[0] == "- shell run 0 -> first"
    assert (len(once.digest), len(twice.digest)) == (1, 3)


def test_where_the_head_alone_is_too_long_nothing_can_be_done():
    assert compact_to(history(exchange()), rough_tokens(HEAD) - 1) is None
    assert compact_to(history(), rough_tokens(HEAD) - 1) is None


def test_a_call_that_can_not_be_read_still_leaves_a_line():
    call = ToolCall(id="c", name="", arguments="{\ud800 " + "[" * 90_000)
    seen = Observation(call_id="c", tool="", content="[error: ...]", error="not valid\nJSON")
    bad = Exchange(answer=Message(role="assistant"), calls=(call,), observations=(seen,))
    assert bad.facts() == ("- unreadable call -> not valid JSON",)


# -- random conversations


def random_history(rng: random.Random) -> History:
    role = rng.choice(["tool", "user"])
    return history(
        *(
            exchange(
                rng.choice([0, 1, 1, 1, 3] if role == "tool" else [0, 1, 1]),
                rng.choice([0, 5, 300, 3000]),
                role=role,
                start=100 * i,
                error=rng.choice([None, "exit code 2"]),
            )
            for i in range(rng.randrange(12))
        )
    )


def answered(messages: tuple[Message, ...]) -> bool:
    """Every call is followed at once by its result, and no result stands without its call."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if not waiting or waiting.pop(0) != message.tool_call_id:
                return False
        elif waiting:
            return False
        waiting.extend(call.id for call in message.tool_calls)
    return not waiting


def alternates(messages: tuple[Message, ...]) -> bool:
    """After the system, no role but ``tool`` comes twice in a row: many templates insist."""
    pairs = itertools.pairwise(messages[1:])
    return all(a.role != b.role or a.role == "tool" for a, b in pairs)


@pytest.mark.parametrize("seed", range(300))
def test_any_conversation_is_compacted_soundly(seed):
    rng = random.Random(seed)
    before = random_history(rng)
    limit, keep = rng.randrange(20, 4000), rng.randrange(1, 4)
    after = compact_to(before, limit, target=rng.randrange(10, limit), keep=keep)
    if after is None:
        assert rough_tokens(HEAD) > limit
        return
    messages = after.messages
    assert size(after) <= limit
    assert answered(messages)
    assert alternates(messages)
    assert messages[0] == HEAD[0]
    assert messages[1].role == "user"
    assert messages[1].content.startswith("The task.")
    # What is left are the latest exchanges, in order.
    texts = [e.answer.content for e in before.exchanges]
    assert [e.answer.content for e in after.exchanges] == texts[len(texts) - len(after.exchanges) :]


def test_the_checks_of_this_file_can_fail():
    whole = history(exchange(2)).messages
    assert answered(whole)
    assert not answered(whole[:-1])
    assert not answered((*whole[:2], *whole[3:]))
    assert not alternates((*HEAD, HEAD[1]))


# -- how long a conversation is


def test_without_a_providers_count_four_bytes_are_a_token():
    messages = (Message(role="user", content="x" * 40),)
    assert Gauge().size(messages) == 14  # 40 / 4, and 4 for the message


def test_the_providers_count_is_taken_and_only_what_is_new_is_estimated():
    sent = (Message(role="user", content="x" * 40),)
    gauge = Gauge().after(sent, answer("y" * 80, usage=(100, 20)))
    new = Message(role="user", content="z" * 40)
    reply = Message(role="assistant", content="y" * 80)
    assert gauge.size((*sent, reply)) == 120
    assert gauge.size((*sent, reply, new)) == 120 + 14


def test_after_compaction_the_estimate_is_scaled_by_what_the_provider_counted():
    sent = (Message(role="user", content="x" * 40),)
    gauge = Gauge().after(sent, answer(usage=(28, 5))).anew()
    assert gauge.size(sent) == 28


def test_a_providers_odd_count_does_not_run_away_with_the_estimate():
    sent = (Message(role="user", content="x" * 40),)
    assert Gauge().after(sent, answer(usage=(10_000, 0))).anew().size(sent) == 4 * 14
    assert Gauge().after(sent, answer(usage=(1, 0))).anew().size(sent) == 7


def test_tool_specifications_count_until_the_provider_has_counted_them():
    assert Gauge(tools=50).size(()) == 50
