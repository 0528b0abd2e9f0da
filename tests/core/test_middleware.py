"""Middleware in a run: what is added is sent, recorded, and the same in the whole episode."""

from collections.abc import Sequence
from typing import Any

import pytest
from attrs import field, frozen

from ale._config import structure_config
from ale._run.dispatch import WORKER_SECTIONS
from ale._run.run import Run
from ale.errors import InputError
from ale.middleware import with_system_text
from ale.plugin import Component, doc, hookimpl
from ale.protocols import AgentContext, MiddlewareContext, Rewritten
from ale.strict import from_plain
from ale.testing.fakes import FakeLLM
from ale.testing.middleware import MiddlewareContract
from ale.types import Completion, CompletionRequest, Episode, Job, Message, RunSpec, Stop, Turn
from ale.workers import Worker

USER = Message(role="user", content="Leave a file.")


@frozen(kw_only=True)
class Options:
    """Options of a test's middleware."""

    text: str = field(metadata=doc("What is added."))


@frozen
class Adding:
    """Adds a text and the task's name."""

    options: Options

    async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
        if self.options.text == "fail":
            raise ZeroDivisionError("a bug")
        if self.options.text == "nothing":
            return Rewritten(messages=())
        text = f"{self.options.text} {context.task.id}"
        return Rewritten(messages=with_system_text(head, text), facts={"added": text})


class TestAdding(MiddlewareContract):
    @pytest.fixture
    def middleware(self) -> Adding:
        return Adding(Options(text="Hm."))


class Plugin:
    """Offers that middleware, and a model that keeps what it was asked."""

    def __init__(self) -> None:
        self.llm = FakeLLM([Completion(message=Message(role="assistant", content="Yes."))] * 9)

    @hookimpl
    def ale_middleware(self) -> Sequence[Component[Any, Any]]:
        return [Component("adding", Options, lambda o, c: Adding(o), summary="Adds a text.")]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        return [Component("fake", None, lambda o, c: self.llm, summary="Keeps requests.")]


@pytest.fixture
def plugin(workplace: Any) -> Plugin:
    made = Plugin()
    workplace.registry.add(made, "ale-adding", "1.0")
    return made


async def talk(context: AgentContext) -> Stop:
    """Two turns, and a third in a conversation that begins anew."""
    messages: tuple[Message, ...] = (USER,)
    for number in range(3):
        fresh = number != 1
        messages = (USER,) if fresh else messages
        request = CompletionRequest(
            messages=messages, conversation=context.conversation, turn=number, fresh_context=fresh
        )
        completion = await context.llm.complete(request)
        prompt = messages if fresh else messages[-1:]
        context.recorder.append(Turn(prompt=prompt, fresh_context=fresh, completion=completion))
        messages += (completion.message, Message(role="user", content="Go."))
    await context.sandbox.write("done", b"")
    return Stop(reason="finished")


def config(workplace: Any, *texts: str, **sections: Any) -> Any:
    plain = {
        "tasks": {"type": "list"},
        "agent": {"type": "bench"},
        "llm": {"type": "fake"},
        "middleware": [{"type": "adding", "text": text} for text in texts],
        "run": {"directory": str(workplace.directory), "retries": 0},
        **sections,
    }
    return structure_config(from_plain(plain), workplace.registry)


def only(run: Run) -> Episode:
    (episode,) = run.store.reader.episodes
    return episode


async def test_what_is_stored_is_what_the_model_was_asked(
    bench: Any, workplace: Any, plugin: Plugin
) -> None:
    bench.agent = talk
    run = await workplace.ran(config(workplace, "One:", "Two:"))
    episode = only(run)
    asked = [request.messages for request in plugin.llm.requests]
    assert asked[0] == (Message(role="system", content="One: t0\n\nTwo: t0"), USER)
    assert [episode.trajectory.messages(n) for n in range(3)] == asked
    assert episode.metadata["middleware"] == [
        {"type": "adding", "added": "One: t0"},
        {"type": "adding", "added": "Two: t0"},
    ]


async def test_a_worker_in_another_process_adds_the_same(
    bench: Any, workplace: Any, plugin: Plugin
) -> None:
    bench.agent = talk
    made = config(workplace, "One:")
    sections = {name: made.resolved[name] for name in (*WORKER_SECTIONS[:4], "run")}
    spec = RunSpec(run_id="r", config=sections, versions={}, plugin_files={})
    worker = Worker.build(spec, workplace.registry, {})
    (task,) = bench.tasks(1)
    episode = await worker.run(Job(id="0-t0-0", task=task))
    assert episode.metadata["middleware"] == [{"type": "adding", "added": "One: t0"}]
    assert episode.trajectory.messages(0)[0].content == "One: t0"


@pytest.mark.parametrize(
    ("text", "kind"), [("fail", "ZeroDivisionError"), ("nothing", "PluginError")]
)
async def test_a_middleware_that_fails_breaks_the_episode(
    bench: Any, workplace: Any, plugin: Plugin, text: str, kind: str
) -> None:
    bench.agent = talk
    run = await workplace.ran(config(workplace, text))
    failure = only(run).failure
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"type": "adding"}, "middleware: expected a list"),
        ([{"type": "ading", "text": "x"}], "did you mean 'adding'?"),
        ([{"type": "adding", "txt": "x"}], r"middleware\[0\].txt: unknown option"),
    ],
)
def test_a_mistake_in_the_section_is_named(
    workplace: Any, plugin: Plugin, section: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        config(workplace, middleware=section)


def test_a_config_without_middleware_is_stored_without_it(workplace: Any, plugin: Plugin) -> None:
    assert "middleware" not in config(workplace).resolved
    assert config(workplace, "x").resolved["middleware"] == [
        {"type": "ale-adding/adding", "text": "x"}
    ]
