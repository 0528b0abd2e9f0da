"""Conversations of each family: ids are added to, answers end once, calls are read.

The templates are those of the package trl. What models write is written here by a function for each
family, and a tiny tokenizer has the family's special tokens.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from random import Random
from typing import Any

import pytest
from attrs import evolve, frozen
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ale.errors import InputError, ToolsUnsupportedError
from ale.types import Message, ToolCall, ToolSpec, replace
from ale_llm_policy.build import wrap_policy
from ale_llm_policy.options import PolicyOptions
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.pretrained.tiny import make_model
from ale_llm_policy.testing import SHAPE, request
from ale_training.chat import FORMATS, ChatTemplate
from ale_training.chat.calls import read

Write = Callable[[str, str, list[ToolCall]], str]
"""The text of an answer from reasoning, content and calls, without the token that ends it."""


def templates() -> Path:
    """The folder of chat templates of the package trl, which is not imported."""
    return Path(str(distribution("trl").locate_file("trl/chat_templates")))


def _values(call: ToolCall) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call.arguments)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _thinking(reasoning: str) -> str:
    return f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""


def _hermes(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    written = [
        f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
        for call in calls
    ]
    return _thinking(reasoning) + "\n".join(filter(None, [content, *written]))


def _xml(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    """The template has opened the reasoning in the prompt."""
    written = []
    for call in calls:
        inner = "".join(
            f"<parameter={key}>\n{_text(value)}\n</parameter>\n"
            for key, value in _values(call).items()
        )
        written.append(f"<tool_call>\n<function={call.name}>\n{inner}</function>\n</tool_call>")
    return f"{reasoning}\n</think>\n\n" + "\n\n".join(filter(None, [content, *written]))


def _glm(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    written = []
    for call in calls:
        inner = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_text(value)}</arg_value>\n"
            for key, value in _values(call).items()
        )
        written.append(f"<tool_call>{call.name}\n{inner}</tool_call>")
    return f"\n<think>{reasoning}</think>\n" + "\n".join(filter(None, [content, *written]))


def _llama(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    written = [f'{{"name": "{c.name}", "parameters": {c.arguments}}}' for c in calls]
    return "; ".join(written) or content


def _mistral(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    written = [
        f'{{"name": "{call.name}", "arguments": {call.arguments}, "id": "{index:09}"}}'
        for index, call in enumerate(calls)
    ]
    return f"[TOOL_CALLS] [{', '.join(written)}]" if calls else content


def _harmony(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    parts = [f"<|channel|>analysis<|message|>{reasoning}<|end|>"] if reasoning else []
    if content:
        channel = "commentary" if calls else "final"
        parts.append(f"<|channel|>{channel}<|message|>{content}{'<|end|>' if calls else ''}")
    parts += [
        f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>"
        f"{call.arguments}"
        for call in calls
    ]
    return "<|start|>assistant".join(parts)


def _deepseek(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    written = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{call.arguments}\n```"
        "<｜tool▁call▁end｜>"
        for call in calls
    ]
    thought = f"{reasoning}</think>\n\n" if reasoning else ""
    many = f"<｜tool▁calls▁begin｜>{chr(10).join(written)}<｜tool▁calls▁end｜>" if calls else ""
    return thought + content + many


def _gemma(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    def value(each: Any) -> str:
        return f'<|"|>{each}<|"|>' if isinstance(each, str) else json.dumps(each)

    thought = f"<|channel>thought\n{reasoning}\n<channel|>" if reasoning else ""
    written = [
        f"<|tool_call>call:{call.name}"
        f"{{{','.join(f'{k}:{value(v)}' for k, v in _values(call).items())}}}<tool_call|>"
        for call in calls
    ]
    return thought + content + "".join(written)


def _plain(reasoning: str, content: str, calls: list[ToolCall]) -> str:
    return content


# Of Mistral 7B v0.3, as far as conversations of this kind need it; the original is longer.
_MISTRAL = """\
{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}
{%- if tools and loop.last %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif -%}
[INST] {{ m.content }}[/INST]{% elif m.role == 'tool' %}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif -%}
[TOOL_RESULTS] {"content": {{ m.content | tojson }}, "call_id": "{{ m.tool_call_id }}"}
{{- "[/TOOL_RESULTS]" }}
{%- elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}
{%- if c.id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif -%}
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }},
{{- ' "id": "' + c.id }}"}
{%- if not loop.last %}, {% endif %}{% endfor %}]{{ eos_token }}{% elif m.role == 'assistant' -%}
{{ ' ' + m.content }}{{ eos_token }}{% endif %}{% endfor %}"""
_IM = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<tool_response>",
    "</tool_response>",
)


@frozen(kw_only=True)
class Family:
    """A family of models."""

    name: str
    template: str
    """A file of the package trl, without its ending, or the text."""
    calls: str
    special: tuple[str, ...]
    ends: tuple[str, ...]
    """As its generation config lists them."""
    write: Write
    stable: bool = False
    """Does its template extend its own prefix?"""
    reasons: bool = True
    acts: bool = True
    """Has its template tool calls?"""
    several: bool = True
    """Several calls in one answer?"""
    speaks: bool = True
    """Text beside a call?"""
    call_end: str | None = None
    """What ends an answer with a call; the first of `ends` where not given."""
    opens: bool = False
    """Does the token that ends an answer begin what follows it?"""


FAMILIES = [
    Family(name="qwen2.5", template="qwen2_5", calls="hermes", special=_IM + _TAGS,
           ends=("<|im_end|>", "<|endoftext|>"), write=_hermes, reasons=False, stable=True),
    Family(name="qwen3", template="qwen3", calls="hermes", special=_IM + _TAGS,
           ends=("<|im_end|>", "<|endoftext|>"), write=_hermes),
    Family(name="qwen3 of trl", template="qwen3_training", calls="hermes", special=_IM + _TAGS,
           ends=("<|im_end|>", "<|endoftext|>"), write=_hermes, stable=True),
    Family(name="qwen3.5", template="qwen3_5_think", calls="xml", special=_IM + _TAGS,
           ends=("<|im_end|>", "<|endoftext|>"), write=_xml),
    Family(name="qwen3.6", template="qwen3_6", calls="xml", special=_IM + _TAGS,
           ends=("<|im_end|>", "<|endoftext|>"), write=_xml),
    Family(name="llama3.1", template="llama3_1", calls="llama3",
           special=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                    "<|eom_id|>", "<|python_tag|>", "<|end_of_text|>"),
           ends=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"), write=_llama, reasons=False,
           several=False, speaks=False, stable=True),
    Family(name="mistral", template=_MISTRAL, calls="mistral",
           special=("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]",
                    "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
           ends=("</s>",), write=_mistral, reasons=False, speaks=False),
    Family(name="gpt-oss", template="gptoss", calls="harmony",
           special=("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>",
                    "<|return|>", "<|call|>", "<|endoftext|>"),
           ends=("<|return|>", "<|call|>", "<|endoftext|>"), write=_harmony, several=False,
           call_end="<|call|>"),
    Family(name="glm4.5", template="glm4moe", calls="glm",
           special=("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>",
                    "<|observation|>", "<|endoftext|>", "<arg_key>", "</arg_key>", "<arg_value>",
                    "</arg_value>", *_TAGS),
           ends=("<|user|>", "<|endoftext|>", "<|observation|>"), write=_glm,
           call_end="<|observation|>", opens=True),
    Family(name="gemma3", template="gemma3", calls="hermes",
           special=("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
           ends=("<end_of_turn>", "<eos>"), write=_plain, reasons=False, acts=False,
           stable=True),
    Family(name="gemma4", template="gemma4", calls="gemma",
           special=("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>",
                    "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>",
                    '<|"|>'),
           ends=("<turn|>", "<eos>", "<|tool_response>"), write=_gemma,
           call_end="<|tool_response>", opens=True),
    Family(name="deepseek-v3", template="deepseekv3", calls="deepseek",
           special=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>",
                    "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                    "<｜tool▁call▁begin｜>",
                    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>",
                    "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
           ends=("<｜end▁of▁sentence｜>",), write=_deepseek),
]  # fmt: skip


def tokenizer_of(family: Family) -> Any:
    """One token for each byte and for each special token of the family."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in family.special]
    )
    file = templates() / f"{family.template}.jinja"
    own = len(family.template) > 40
    make: Any = PreTrainedTokenizerFast
    return make(
        tokenizer_object=core,
        bos_token=family.special[0],
        eos_token=family.ends[0],
        chat_template=family.template if own else file.read_text("utf-8"),
        clean_up_tokenization_spaces=False,
    )


SHELL = ToolSpec(
    name="shell",
    description="Run.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string"}, "lines": {"type": "integer"}},
        "required": ["command"],
    },
)
TEXTS = ("ls é", "cat a.txt | wc", 'echo "x" > y', "two\nlines", "{1: [2]}", "3")


def ends_of(family: Family, tokenizer: Any) -> set[int]:
    return {tokenizer.convert_tokens_to_ids(each) for each in family.ends}


def template_of(family: Family, **options: Any) -> ChatTemplate:
    tokenizer = tokenizer_of(family)
    options = {"turns": "as-sampled", "ends": ends_of(family, tokenizer), **options}
    return ChatTemplate(tokenizer, calls=family.calls, **options)


def an_answer(family: Family, random: Random, turn: int) -> Message:
    """Reasoning, text and calls as the family can have them."""
    n = random.choice([0, 1, 1, 2 if family.several else 1]) if family.acts else 0
    calls = []
    for index in range(n):
        arguments: dict[str, Any] = {"command": random.choice(TEXTS)}
        if random.random() < 0.4:
            arguments["lines"] = random.randrange(9)
        own = f"{index:09}" if family.calls == "mistral" else f"call_{turn}_{index}"
        text = json.dumps(arguments, ensure_ascii=False)
        calls.append(ToolCall(id=own, name="shell", arguments=text))
    speaks = not calls or (family.speaks and random.random() < 0.5)
    thinks = family.reasons and random.random() < 0.7
    return Message(
        role="assistant",
        content=random.choice(("I act.", "Done é")) if speaks else "",
        reasoning=random.choice(("hm", "first this\nthen that")) if thinks else None,
        tool_calls=tuple(calls),
    )


def what_follows(answer: Message, random: Random) -> tuple[Message, ...]:
    results = tuple(
        Message(role="tool", content=random.choice(("a.txt", "3", "")), tool_call_id=call.id)
        for call in answer.tool_calls
    )
    return results or (Message(role="user", content=random.choice(("Go on.", "And é?"))),)


def sampled(family: Family, template: ChatTemplate, answer: Message) -> tuple[int, ...]:
    """An answer's ids as this family's models write them, without the token that ends it."""
    text = family.write(answer.reasoning or "", answer.content, list(answer.tool_calls))
    return template._ids(text)


def own_end(family: Family, template: ChatTemplate, answer: Message) -> int:
    (end,) = template._ids((family.call_end if answer.tool_calls else None) or family.ends[0])
    return end


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_in_200_conversations_every_prompt_extends_the_last_one_and_answers_are_read(
    family: Family,
) -> None:
    template = template_of(family)
    for seed in range(200):
        random = Random(seed)
        first = (Message(role="system", content="s"), Message(role="user", content=f"goal {seed}"))
        ids = template.prompt(first, (SHELL,) if family.acts else ())
        for turn in range(random.randrange(2, 5)):
            answer = an_answer(family, random, turn)
            body = sampled(family, template, answer)
            end = own_end(family, template, answer)
            read = template.read((*body, end), turn=turn, tools=(SHELL,)).message
            assert read.tool_calls == answer.tool_calls
            assert read.content == answer.content
            assert (read.reasoning or None) == answer.reasoning
            added = what_follows(answer, random)
            begun = (*ids, *body, end)
            later = template.extend(begun, added, answer.tool_calls)
            assert later[: len(begun)] == begun
            # Cut off before its end, it is given one, as part of the prompt.
            cut = template.extend((*ids, *body), added, answer.tool_calls)
            assert cut[: len(ids) + len(body)] == (*ids, *body)
            assert len(cut) == len(later)
            text = template.token_bytes.text(later[len(begun) :]).text
            assert all(
                json.dumps(each.content)[1:-1] in text or each.content in text for each in added
            )
            ids = later


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_an_answer_that_ended_by_another_token_gets_no_second_end(family: Family) -> None:
    template = template_of(family)
    answer = Message(role="assistant", content="Done.")
    follows = (Message(role="user", content="Go on."),)
    body = (*template.prompt(follows), *sampled(family, template, answer))
    usual = template.extend((*body, own_end(family, template, answer)), follows)
    for end in sorted(ends_of(family, tokenizer_of(family))):
        found = template.extend((*body, end), follows)
        rest = found[len(body) + 1 :]
        if family.opens and end != own_end(family, template, answer) and family.name == "glm4.5":
            rest = rest[1:]  # <|user|>, which begins what follows
        assert rest == usual[len(body) + 1 :]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_template_that_rewrites_earlier_turns_is_taken_only_if_that_was_asked_for(
    family: Family,
) -> None:
    if family.stable:
        assert template_of(family, turns="as-rendered").end_ids
        return
    with pytest.raises(InputError) as caught:
        template_of(family, turns="as-rendered")
    hint = caught.value.problems[0].hint or ""
    assert "turns: as-sampled" in hint
    assert "trl/qwen3_training" in hint


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3 of trl"])
def test_what_is_added_is_what_the_whole_conversation_has(name: str) -> None:
    (family,) = [each for each in FAMILIES if each.name == name]
    template = template_of(family)
    for seed in range(50):
        random = Random(seed)
        messages = [Message(role="user", content="goal")]
        ids = template.prompt(messages, (SHELL,))
        for turn in range(3):
            answer = an_answer(family, random, turn)
            added = what_follows(answer, random)
            body = template.answer(answer)
            ids = template.extend((*ids, *body), added, answer.tool_calls)
            messages += [answer, *added]
        assert ids == template.prompt(messages, (SHELL,))


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "glm4.5"])
async def test_what_a_model_of_a_family_samples_stays_in_its_prompts(name: str) -> None:
    """Random weights: answers are cut off, end anywhere, and hold any special token."""
    (family,) = [each for each in FAMILIES if each.name == name]
    template = template_of(family)
    tokenizer = template._tokenizer
    (end,) = template._ids(family.ends[0])
    model = make_model(SHAPE, seed=0, pad_id=0, end_id=end)
    model.resize_token_embeddings(len(tokenizer))
    llm = wrap_policy(TorchPolicy(model, tokenizer, template, name=name), PolicyOptions())
    for seed in range(8):
        asked = request("goal", seed=seed, episode=f"e{seed}", n=60, tools=(SHELL,))
        for _ in range(3):
            answer = await llm.complete(asked)  # asked for twice, it is the same
            assert answer.tokens is not None
            begun = answer.tokens.prompt_ids + answer.tokens.output_ids
            added = what_follows(answer.message, Random(seed))
            messages = (*asked.messages, answer.message, *added)
            asked = replace(asked, messages=messages, turn=asked.turn + 1, fresh_context=False)
            later = (await llm.complete(asked)).tokens
            assert later is not None
            assert later.prompt_ids[: len(begun)] == begun
    await llm.aclose()


_PROBES = ("answered", "unanswered", "answer", "continue", "seen", "probe", "goal", "u", "s", "a")
_PLACE = "placeholder"
CALL = ToolCall(id="call00000", name="shell", arguments='{"command": "ls"}')


def source_of(family: Family) -> str:
    own = len(family.template) > 40
    return family.template if own else (templates() / f"{family.template}.jinja").read_text("utf-8")


def fragments(family: Family) -> list[str]:
    """What this package's probes say, the special tokens, and the template's own texts."""
    texts = re.findall(r"'([^'\n]+)'|\"([^\"\n]+)\"", source_of(family))
    return [*_PROBES, *family.special, *(a or b for a, b in texts), "\\", '"', "{}", "\n", " "]


def hostile(family: Family, random: Random) -> str:
    """A text that neither begins nor ends with blanks, which many templates cut."""
    parts = random.choices(fragments(family), k=random.randrange(1, 12))
    return f"<{''.join(parts)}>"


def as_written(text: str) -> set[str]:
    """A content as templates write it: as it is, or in JSON."""
    return {text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]}


def the_next(template: ChatTemplate, contents: list[str], *, acts: bool) -> str:
    added = tuple(
        Message(role="tool", content=content, tool_call_id=f"call0000{index}")
        if acts
        else Message(role="user", content=content)
        for index, content in enumerate(contents)
    )
    names = [ToolCall(id=each.tool_call_id or "", name="shell", arguments="{}") for each in added]
    return template.token_bytes.text(template.extend((), added, names if acts else ())).text


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_added_is_whole_whatever_it_says(family: Family) -> None:
    template = template_of(family)
    random = Random(0)
    kinds = (True, False) if family.acts else (False,)
    for acts in kinds:
        (shape,) = [the_next(template, [_PLACE], acts=acts)]
        assert shape.count(_PLACE) == 1
        for text in [*fragments(family), *(hostile(family, random) for _ in range(60))]:
            content = f"<{text}>"
            found = the_next(template, [content], acts=acts)
            assert found in {shape.replace(_PLACE, each) for each in as_written(content)}


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.acts], ids=lambda family: family.name)
def test_results_of_several_calls_are_all_there(family: Family) -> None:
    template = template_of(family)
    random = Random(1)
    shape = the_next(template, ["first-place", "other-place"], acts=True)
    for _ in range(20):
        first, other = hostile(family, random), hostile(family, random)
        assert the_next(template, [first, other], acts=True) in {
            shape.replace("first-place", a).replace("other-place", b)
            for a in as_written(first)
            for b in as_written(other)
        }


@pytest.mark.parametrize("name", ["qwen2.5", "llama3.1", "glm4.5", "gemma4", "mistral"])
def test_a_demonstrated_answer_is_whole_whatever_it_says(name: str) -> None:
    (family,) = [each for each in FAMILIES if each.name == name]
    template = template_of(family)
    random = Random(2)
    for _ in range(60):
        content = hostile(family, random)
        if "think>" in content or "channel" in content:
            continue  # these templates take reasoning out of a content
        text = template.token_bytes.text(
            template.answer(Message(role="assistant", content=content))
        ).text
        assert content in text
        assert text.rpartition(content)[2] in {family.ends[0], "<|user|>"}


@pytest.mark.parametrize("turns", ["as-rendered", "as-sampled"])
@pytest.mark.parametrize("name", sorted(file.stem for file in templates().glob("*.jinja")))
def test_what_a_template_can_do_is_known_when_the_policy_is_built(name: str, turns: Any) -> None:
    source = (templates() / f"{name}.jinja").read_text("utf-8")
    try:
        template = of_source(source, turns)
    except InputError as error:
        (problem,) = error.problems
        assert problem.hint
        return
    goal = (Message(role="system", content="s"), Message(role="user", content="goal"))
    more = Message(role="user", content="3 questions were answered.")
    assert template.prompt(goal)
    assert template.extend((), (more,), tools=False)
    if template.no_tools:
        with pytest.raises(InputError):
            template.answer(Message(role="assistant", content="", tool_calls=(CALL,)))
        return
    other = ToolCall(id="call00001", name="shell", arguments='{"command": ')
    results = [Message(role="tool", content="answered", tool_call_id=c.id) for c in (CALL, other)]
    assert template.prompt(
        (*goal, Message(role="assistant", content="", tool_calls=(CALL,)), results[0])
    )
    assert template.prompt(
        (*goal, Message(role="assistant", content="", tool_calls=(CALL, other)), *results)
    )
    assert template.prompt(goal, (SHELL,))
    assert template.extend((), results[:1], (CALL,))
    assert template.extend((), results, (CALL, other))


def of_source(source: Any, turns: Any = "as-rendered", **options: Any) -> ChatTemplate:
    """A template on a tokenizer with the special tokens that its text has."""
    text = str(source)
    special = sorted({"</s>", *re.findall(r"<\|?[a-z_]+\|?>|<[｜|][^<>\s]+[｜|]>|<\w+>", text)})
    ends = [end for end in ("<|im_end|>", "<|end|>", "<turn|>", "<|call|>") if end in special]
    family = FAMILIES[0]
    calls = {"<arg_key>": "glm", "<function=": "xml", "<|channel|>": "harmony", "<｜": "deepseek"}
    fitting = next((form for mark, form in calls.items() if mark in text), "hermes")
    family = evolve(
        family, special=tuple(special), ends=(*ends, "</s>"), template=text.ljust(41), calls=fitting
    )
    tokenizer = tokenizer_of(family)
    tokenizer.chat_template = source
    return ChatTemplate(
        tokenizer, calls=fitting, turns=turns, ends=ends_of(family, tokenizer), **options
    )


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        *((name, False) for name in ("qwen3", "qwen3_5_think", "qwen3_6", "glm4moe", "gptoss")),
        *((name, True) for name in ("qwen3_training", "qwen3_5_think_training")),
        ("qwen3_6_training", True),
        ("glm4moe_training", False),
        ("gptoss_training", False),
    ],
)
def test_the_readme_says_which_templates_of_trl_extend_their_own_output(
    name: str, taken: bool
) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    (row,) = [line for line in readme.splitlines() if line.startswith("| `trl/NAME` |")]
    source = (templates() / f"{name}.jinja").read_text("utf-8")
    if taken:
        assert of_source(source).no_tools is None
        assert f"`{name}`" in row.partition("as-sampled")[0]
        return
    with pytest.raises(InputError, match="does not extend its own prefix"):
        of_source(source)
    assert ("_training" not in name) or f"`{name}`" in row.partition("Others")[2]


_TURNS = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}CALLS<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_WITH_CALLS = _TURNS.replace(
    "CALLS",
    "{% for c in m.tool_calls %}<tool_call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "</tool_call>{% endfor %}",
)


def test_a_template_that_drops_calls_is_taken_without_tools_and_says_so() -> None:
    """Of the shape of SmolLM3's and of Phi 3.5's."""
    template = of_source(_TURNS.replace("CALLS", ""))
    assert template.no_tools is not None
    assert "leaves a part of an answer out" in template.no_tools
    assert template.extend((), (Message(role="user", content="x"),), tools=False)


async def test_a_model_whose_template_has_no_tools_says_so_before_it_samples() -> None:
    (family,) = [each for each in FAMILIES if each.name == "gemma3"]
    template = template_of(family)
    model = make_model(SHAPE, seed=0, pad_id=0, end_id=1)
    model.resize_token_embeddings(len(template._tokenizer))
    policy = TorchPolicy(model, template._tokenizer, template, name="gemma3")
    llm = wrap_policy(policy, PolicyOptions())
    assert not llm.capabilities.tools
    with pytest.raises(ToolsUnsupportedError, match=r"set agent\.tool_format: text"):
        await llm.complete(request("goal", tools=(SHELL,)))
    assert (await llm.complete(request("goal", n=4))).message.role == "assistant"
    await llm.aclose()


def test_of_several_templates_the_conversations_with_tools_get_their_own() -> None:
    plain = _TURNS.replace("CALLS", "")
    tooled = "{% for t in tools %}{{ t | tojson }}{% endfor %}" + _WITH_CALLS.replace(
        "<|im_start|>", "<|sep|>"
    )
    template = of_source({"default": plain, "tool_use": tooled})
    assert template.no_tools is None
    result = Message(role="tool", content="answered", tool_call_id=CALL.id)
    more = Message(role="user", content="answered")
    goal = (Message(role="user", content="goal"),)
    text = template.token_bytes.text
    assert (
        text(template.prompt(goal)).text
        == "<|im_start|>user\ngoal<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text(template.prompt(goal, (SHELL,))).text.endswith(
        "<|sep|>user\ngoal<|im_end|>\n<|sep|>assistant\n"
    )
    ids = template.extend((), (result,), (CALL,), tools=True)
    assert text(ids).text == "<|im_end|>\n<|sep|>tool\nanswered<|im_end|>\n<|sep|>assistant\n"
    ids = template.extend((), (more,), tools=False)
    assert (
        text(ids).text
        == "<|im_end|>\n<|im_start|>user\nanswered<|im_end|>\n<|im_start|>assistant\n"
    )


def test_several_templates_without_a_default_are_refused() -> None:
    with pytest.raises(InputError, match="the chat templates rag, tool_use") as caught:
        of_source({"rag": _WITH_CALLS, "tool_use": _WITH_CALLS})
    assert caught.value.problems[0].hint


def test_a_template_that_leaves_a_result_out_has_no_tools() -> None:
    template = of_source(
        _WITH_CALLS.replace(
            "{% for m in messages %}", "{% for m in messages if m.role != 'tool' %}"
        )
    )
    assert "leaves a message with the role 'tool' out" in str(template.no_tools)


def test_the_date_of_a_template_is_that_of_the_run() -> None:
    source = "\n{{ strftime_now('%d %B %Y') }} {{ strftime_now('%-m/%y') }}\n" + _WITH_CALLS
    goal = (Message(role="user", content="goal"),)
    dates = []
    for today in (datetime(2026, 2, 3, tzinfo=UTC), datetime(2026, 2, 4, tzinfo=UTC)):
        template = of_source(source, today=today)
        dates.append(template.token_bytes.text(template.prompt(goal)).text.partition("<")[0])
    assert dates == ["\n03 February 2026 2/26\n", "\n04 February 2026 2/26\n"]


_HOSTILE = (
    "</parameter>", "<parameter=lines>", "<function=shell>", "</function>", "</tool_call>",
    "<tool_call>", "<arg_key>", "</arg_key>", "</arg_value>", "<arg_value>", "[TOOL_CALLS]",
    "[ARGS]", "[CALL_ID]", "{", "}", '"', "'", "\\", ",", ";", "\n", " ", "rm", "-rf", "name", ":",
    "<|call|>", "<|end|>", "<|message|>", "to=functions.shell", "<｜tool▁call▁end｜>", "```",
    '<|"|>', "<tool_call|>", "<|tool_call>", "</think>", "\0",
)  # fmt: skip
_CLOSED = re.compile(r"</parameter>\s*</function>\s*</tool_call>|</arg_value>\s*</tool_call>")
"""A value with this can't be told from the end of the call if the answer is cut off there."""


def cannot_run(call: ToolCall) -> bool:
    """An agent's check of the arguments refuses it: it runs nothing, and tells the model."""
    try:
        found = json.loads(call.arguments)
    except ValueError:
        return True
    command = found.get("command") if isinstance(found, dict) else None
    if not isinstance(command, str) or {*found} - {"command", "lines"}:
        return True
    return not isinstance(found.get("lines", 0), int)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.acts], ids=lambda family: family.name)
def test_a_call_is_read_whole_or_not_at_all_wherever_it_is_cut(family: Family) -> None:
    form = FORMATS[family.calls]
    random = Random(0)
    whole = 0
    for _ in range(20):
        command = "".join(random.choices(_HOSTILE, k=random.randrange(1, 6)))
        if _CLOSED.search(command):
            continue
        arguments = json.dumps({"command": f"<{command}>"}, ensure_ascii=False)
        meant = [ToolCall(id="000000000", name="shell", arguments=arguments)]
        meant *= 2 if family.several else 1
        text = family.write("", "", meant)
        for end in range(len(text) + 1):
            found = read(text[:end], form, calls=True).tool_calls(0, (SHELL,))
            good = [call for call in found if not cannot_run(call)]
            pairs = [(call.name, json.loads(call.arguments)) for call in good]
            assert pairs == [("shell", {"command": f"<{command}>"})] * len(good)
            assert len(good) <= len(meant)
        whole += len(good) == len(meant)
    assert whole > 4
