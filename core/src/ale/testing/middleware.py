"""Contract kit for middleware: it adds the same to all conversations of an episode, without harm.

```python
class TestMine(MiddlewareContract):
    @pytest.fixture
    def middleware(self) -> Middleware:
        return Mine(MineOptions())
```

The middleware under test should add something to `task`; override that fixture if it needs another.
"""

import asyncio
import itertools

import msgspec
import pytest

from ale.middleware import Rewriting, RewritingLLM
from ale.protocols import Middleware, MiddlewareContext, Rewritten
from ale.testing._marks import async_tests
from ale.testing.fakes import FakeLLM
from ale.types import (
    Completion,
    CompletionRequest,
    Conversation,
    Message,
    Task,
    Trajectory,
    Turn,
    replace,
)

SYSTEM = Message(role="system", content="You are careful, and  keep\nspaces.")
USER = Message(role="user", content="Do the task: write é to a file.")
DIGEST = "\n\n[Earlier steps are left out here.]"


def _context(task: Task, rollout: int = 0) -> MiddlewareContext:
    name = f"0-{task.id}-{rollout}"
    conversation = Conversation(episode_id=name, task_id=task.id, rollout=rollout, seed=rollout)
    return MiddlewareContext(task=task, conversation=conversation)


@async_tests
class MiddlewareContract:
    """The promises of every middleware."""

    @pytest.fixture
    def middleware(self) -> Middleware:
        raise NotImplementedError("override the fixture 'middleware'")

    @pytest.fixture
    def task(self) -> Task:
        return Task(id="kit", goal=USER.content)

    async def _rewritten(
        self, middleware: Middleware, task: Task, *head: Message, rollout: int = 0
    ) -> Rewritten:
        return await middleware.rewrite(head, _context(task, rollout))

    async def test_it_adds_something(self, middleware: Middleware, task: Task) -> None:
        added = [
            (await self._rewritten(middleware, task, SYSTEM, USER, rollout=rollout)).messages
            for rollout in range(8)
        ]
        assert any(messages != (SYSTEM, USER) for messages in added)

    async def test_the_same_episode_gets_the_same_again(
        self, middleware: Middleware, task: Task
    ) -> None:
        first = await self._rewritten(middleware, task, SYSTEM, USER)
        assert await self._rewritten(middleware, task, SYSTEM, USER) == first

    async def test_what_the_agent_wrote_is_kept(self, middleware: Middleware, task: Task) -> None:
        messages = (await self._rewritten(middleware, task, SYSTEM, USER)).messages
        assert any(SYSTEM.content in m.content for m in messages if m.role == "system")
        assert messages[-1].role == "user"
        assert USER.content in messages[-1].content

    async def test_system_messages_come_first(self, middleware: Middleware, task: Task) -> None:
        for head in ((USER,), (SYSTEM, USER)):
            roles = [m.role for m in (await self._rewritten(middleware, task, *head)).messages]
            assert roles == sorted(roles, key=lambda role: role != "system")
            assert set(roles) <= {"system", "user", "assistant"}

    async def test_a_compacted_conversation_gets_the_same_text(
        self, middleware: Middleware, task: Task
    ) -> None:
        """The agent's own first messages have changed, what is added has not."""
        before = (await self._rewritten(middleware, task, SYSTEM, USER)).messages
        shorter = replace(USER, content=USER.content + DIGEST)
        after = (await self._rewritten(middleware, task, SYSTEM, shorter)).messages
        assert after[:-1] == before[:-1]
        assert after[-1].content.replace(DIGEST, "") == before[-1].content

    async def test_a_conversation_without_a_user_is_taken(
        self, middleware: Middleware, task: Task
    ) -> None:
        assert (await self._rewritten(middleware, task, SYSTEM)).messages

    async def test_facts_are_plain_values(self, middleware: Middleware, task: Task) -> None:
        facts = (await self._rewritten(middleware, task, SYSTEM, USER)).facts
        assert msgspec.json.decode(msgspec.json.encode(facts)) == facts

    async def test_episodes_at_once_don_t_mix(self, middleware: Middleware, task: Task) -> None:
        alone = [
            await self._rewritten(middleware, task, SYSTEM, USER, rollout=n) for n in range(16)
        ]
        asked = (self._rewritten(middleware, task, SYSTEM, USER, rollout=n) for n in range(16))
        assert await asyncio.gather(*asked) == alone

    async def test_each_prompt_begins_with_the_last_and_is_what_is_recorded(
        self, middleware: Middleware, task: Task
    ) -> None:
        steps = [Message(role="assistant", content=f"Step {n}.") for n in range(3)]
        llm = FakeLLM([Completion(message=step) for step in steps])
        context = _context(task)
        rewriting = Rewriting([("kit", middleware)], context)
        asking = RewritingLLM(llm, rewriting)
        messages: tuple[Message, ...] = (SYSTEM, USER)
        turns: list[Turn] = []
        for number in range(3):
            request = CompletionRequest(
                messages=messages, conversation=context.conversation, turn=number
            )
            done = await asking.complete(request)
            added = messages if number == 0 else messages[-1:]
            turn = Turn(prompt=added, fresh_context=number == 0, completion=done)
            turns.append(rewriting.turn(turn))
            messages += (done.message, Message(role="user", content=f"Go {number}."))
        prompts = [request.messages for request in llm.requests]
        for shorter, longer in itertools.pairwise(prompts):
            assert longer[: len(shorter)] == shorter
        trajectory = Trajectory(turns=tuple(turns))
        assert [trajectory.messages(n) for n in range(3)] == prompts
