"""Skills found by the vectors that another process computes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError, LLMError
from ale.plugin import BuildContext
from ale.protocols import Middleware, MiddlewareContext
from ale.testing.middleware import MiddlewareContract
from ale.types import Conversation, Message, Task
from ale_middleware.plugin import ale_middleware
from ale_middleware.skills.options import EmbeddingOptions, SkillOptions
from ale_middleware.skills.store import Skill, Store

GOAL = "Recounting wordlists"
KEY = "a-key-of-this-test"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).with_name("embedding_server.py"))]
    environ = {**os.environ, "KEY": KEY}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.kill()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "skills.db", create=True) as opened:
        yield opened


def built(store: Store, url: str, environ: dict[str, str] | None = None, **more: Any) -> Middleware:
    (component,) = (each for each in ale_middleware() if each.name == "skills")
    server = EmbeddingOptions(base_url=url, model="trigrams", api_key_env="EMBEDDING_KEY", **more)
    options = SkillOptions(store=store.path, measure=False, embeddings=server, top_k=2)
    known = {"EMBEDDING_KEY": KEY} if environ is None else environ
    return component.build(options, BuildContext(environ=known))


async def found(middleware: Middleware, goal: str, episode: str = "e") -> list[str]:
    conversation = Conversation(episode_id=episode, task_id="t", rollout=0, seed=0)
    context = MiddlewareContext(task=Task(id="t", goal=goal), conversation=conversation)
    head = (Message(role="user", content=goal),)
    facts = (await middleware.rewrite(head, context)).facts
    return [each["id"] for each in facts["skills"]]


def skills(store: Store) -> list[Skill]:
    return [
        store.add("Use wc for this.", "Count the words of a list.", at=1),
        store.add("Ask for a window seat.", "Book a flight to Paris.", at=2),
        store.add("Sort before.", "List every word once.", at=3),
    ]


class TestEmbeddings(MiddlewareContract):
    @pytest.fixture
    def middleware(self, store: Store, url: str) -> Middleware:
        store.add("Write to a file with care.", "Do a task.", at=0)
        return built(store, url, threshold=-1.0)


async def test_a_skill_without_a_word_of_the_task_is_found(store: Store, url: str) -> None:
    count, _, sort = skills(store)
    assert store.fitting(GOAL, top_k=3, threshold=0) == []
    assert await found(built(store, url, threshold=0.15), GOAL) == [count.id, sort.id]
    assert await found(built(store, url, threshold=0.99), GOAL) == []


async def test_a_skill_that_is_added_later_is_found_and_a_retired_one_is_not(
    store: Store, url: str
) -> None:
    middleware = built(store, url, threshold=0.15)
    assert await found(middleware, GOAL, "one") == []
    count, _, sort = skills(store)
    assert await found(middleware, GOAL, "two") == [count.id, sort.id]
    store.retire(count.id, "by hand")
    assert await found(middleware, GOAL, "three") == [sort.id]
    assert await found(middleware, GOAL, "two") == [count.id, sort.id]


async def test_what_the_server_refuses_is_said(store: Store, url: str) -> None:
    with pytest.raises(LLMError, match=r"status 500: .*out of memory"):
        await found(built(store, url), "FAIL")
    with pytest.raises(LLMError, match=r"status 401: .*wrong key"):
        await found(built(store, url, {"EMBEDDING_KEY": "another-one"}), GOAL)
    with pytest.raises(LLMError, match="can't be asked for embeddings"):
        await found(built(store, "http://127.0.0.1:1/v1"), GOAL)
    with pytest.raises(InputError, match="EMBEDDING_KEY is not set"):
        built(store, url, {})
