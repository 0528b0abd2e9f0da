"""Chat step by step: what is added is added, what was written is never touched."""

import copy

import pytest

from ale.errors import InputError
from ale.types import Message, ToolCall, ToolSpec
from ale_llm_policy.pretrained import TinyShape, TorchPolicy, tiny_policy
from ale_training.chat import ChatTemplate

SHELL = ToolSpec(name="shell", description="Run.", parameters={"type": "object", "properties": {}})
GOAL = (Message(role="system", content="You act."), Message(role="user", content="List é."))
CALL = ToolCall(id="call_0_0", name="shell", arguments='{"command": "ls é"}')
ACT = Message(role="assistant", content="I list.", reasoning="hm", tool_calls=(CALL,))
SEEN = Message(role="tool", content="a.txt\n", tool_call_id="call_0_0")


@pytest.fixture(scope="module")
def policy() -> TorchPolicy:
    shape = TinyShape(layers=1, width=16, heads=2, kv_heads=1, head_dim=8, mlp=16, vocabulary=320)
    return tiny_policy(["list the files\n"], shape)


def text(policy: TorchPolicy, ids: tuple[int, ...]) -> str:
    return policy.template.token_bytes.text(ids).text


def test_a_conversation_starts_with_the_names_of_the_tools(policy: TorchPolicy) -> None:
    ids = policy.template.prompt(GOAL, (SHELL,))
    assert text(policy, ids) == (
        "<|tools|>shell<|end|><|system|>You act.<|end|><|user|>List é.<|end|><|assistant|>"
    )


def test_the_next_prompt_is_what_was_there_and_what_was_added(policy: TorchPolicy) -> None:
    prompt = policy.template.prompt(GOAL)
    odd = (
        *prompt,
        300,
        301,
        *policy.template.end_ids,
    )  # ids no tokenizer would give for their text
    later = policy.template.extend(odd, (SEEN,))
    assert later[: len(odd)] == odd
    assert text(policy, later[len(odd) :]) == "<|tool|>a.txt\n<|end|><|assistant|>"


def test_an_answer_that_was_cut_off_is_ended_in_the_next_prompt(policy: TorchPolicy) -> None:
    cut = (*policy.template.prompt(GOAL), 300)
    later = policy.template.extend(cut, (Message(role="user", content="x"),))
    assert text(policy, later[len(cut) :]) == "<|end|><|user|>x<|end|><|assistant|>"


def test_added_turns_give_the_same_ids_as_the_whole(policy: TorchPolicy) -> None:
    answer = policy.template.answer(ACT)
    grown = policy.template.extend((*policy.template.prompt(GOAL, (SHELL,)), *answer), (SEEN,))
    assert grown == policy.template.prompt((*GOAL, ACT, SEEN), (SHELL,))


def test_an_answer_is_read_as_it_was_written(policy: TorchPolicy) -> None:
    ids = policy.template.answer(ACT)
    assert ids[-1] in policy.template.end_ids
    assert policy.template.read(ids, turn=0, tools=(SHELL,)).message == ACT


def test_every_token_knows_where_in_the_content_it_starts(policy: TorchPolicy) -> None:
    ids = policy.template.answer(ACT)
    offsets = policy.template.read(ids, turn=0, tools=(SHELL,)).text_offsets
    assert offsets is not None
    assert len(offsets) == len(ids)
    assert list(offsets) == sorted(offsets)
    first = next(i for i, at in enumerate(offsets) if at > 0) - 1
    assert text(policy, ids[first:]).startswith("I list.<tool_call>")
    call = ids.index(policy.tokenizer.convert_tokens_to_ids("<tool_call>"))
    assert set(offsets[call:]) == {len("I list.")}


def test_half_a_character_is_shown_and_counted(policy: TorchPolicy) -> None:
    ids = [policy.tokenizer.convert_tokens_to_ids(letter) for letter in ("a", "Ã", "b")]
    read = policy.template.read(ids, turn=0)
    assert read.message.content == "a\ufffdb"
    assert read.text_offsets == (0, 1, 1)


def test_the_text_after_a_stop_is_left_out(policy: TorchPolicy) -> None:
    ids = policy.template.answer(Message(role="assistant", content="one STOP two"))
    read = policy.template.read(ids, turn=0, limit=4)
    assert read.message.content == "one "
    assert read.text_offsets is not None
    assert max(read.text_offsets) == 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (  # strips the reasoning of earlier turns, as some reasoning models' templates do
            "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content and loop.last %}"
            "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}",
            "does not extend its own prefix",
        ),
        (  # numbers its turns from the end
            "{% for m in messages %}<|{{ m.role }}|>{{ loop.revindex }}{{ m.content }}<|end|>"
            "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
            "does not extend its own prefix",
        ),
        (  # numbers its turns from the start
            "{% for m in messages %}<|{{ m.role }}|>{{ loop.index if m.role == 'user' }}"
            "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>"
            "{% endif %}",
            "in two ways",
        ),
        ("{{ nothing.at.all }}", "fails"),
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}",
            "does not end with a token of its own",
        ),
    ],
)
def test_a_template_that_does_not_add_up_is_refused(
    policy: TorchPolicy, source: str, message: str
) -> None:
    tokenizer = copy.deepcopy(policy.tokenizer)
    tokenizer.chat_template = source
    with pytest.raises(InputError, match=message) as raised:
        ChatTemplate(tokenizer)
    assert "chatml" in (raised.value.problems[0].hint or "")


def test_a_tokenizer_without_a_template_is_refused(policy: TorchPolicy) -> None:
    tokenizer = copy.deepcopy(policy.tokenizer)
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        ChatTemplate(tokenizer)
