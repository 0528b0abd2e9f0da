"""`ale workers manage --gain`: what feedback is worth, told to the proxy of the manager's model."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import field, frozen

from ale.errors import InputError
from ale.plugin import BuildContext, Component, hookimpl
from ale.runs import Registry, RunReader
from ale.strict import from_plain
from ale.testing.builders import task as made_task
from ale.types import Completion, Episode, LLMCapabilities, Message, Task
from ale_proxy.manager.client import BridgeClient
from ale_proxy.manager.gain import GainError, Trained, told, trained
from ale_proxy.manager.running import Counts, ManagerOptions, _managing, _problems

from .test_manager import bridge, by_criteria, graded_task


@frozen(kw_only=True)
class PostsOptions:
    """A model behind a URL."""

    base_url: str = field()


@frozen
class Posts:
    """A model that is asked by the chat API."""

    url: str
    capabilities = LLMCapabilities()

    async def complete(self, request: Any) -> Completion:
        """The answer."""
        said = [{"role": "user", "content": each.content} for each in request.messages]
        form = {"model": "m", "messages": said}
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{self.url}/chat/completions", json=form) as reply,
        ):
            choice = (await reply.json())["choices"][0]
        return Completion(message=Message(role="assistant", content=choice["message"]["content"]))

    async def aclose(self) -> None:
        """Nothing is open."""


class Models:
    """Registers it."""

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        made: Callable[..., Any] = lambda options, context: Posts(options.base_url)  # noqa: E731
        return [Component("posts", PostsOptions, made, summary="Posts.")]


def manager(url: str, key: str | None = None) -> Trained:
    registry = Registry()
    registry.add(Models(), "acme-models")
    section = from_plain({"type": "posts", "base_url": url})
    return trained(section, registry, BuildContext(), key)


def says(text: str) -> dict[str, Sequence[str | float]]:
    """A model server's answer."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]})
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return {"/v1/chat/completions": [f"{head}\r\n\r\n{body}"]}


async def work(url: str, answer: Callable[[str], str]) -> None:
    """A worker that answers by what it is told, for ever."""
    client = BridgeClient(url, None)
    try:
        while True:
            form = {"worker": "ada", "wait_s": 60}
            async with client._session.post("tasks/take", json=form) as reply:
                if reply.status != 200:
                    continue
                taken = await reply.json()
            done = {"id": taken["id"], "worker": "ada", "result": answer(taken["prompt"])}
            await client._ask("POST", "tasks/result", done)
    finally:
        await client.aclose()


@contextlib.asynccontextmanager
async def working(url: str, answer: Callable[[str], str]) -> AsyncIterator[None]:
    """With a worker that works meanwhile."""
    worker = asyncio.create_task(work(url, answer))
    yield
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker


TASK = graded_task("capital")


def knows_maps(prompt: str) -> str:
    return "Paris" if "map" in prompt else "Lyon"


def guesses(prompt: str) -> str:
    return "Lyon" if "guess" in prompt else "Paris"


async def manage(url: str, model: Trained, said: list[str] | None = None, **options: Any) -> Counts:
    chosen = ManagerOptions(config=Path("m.yaml"), bridge=url, name="one", gain=True, **options)
    say = (said if said is not None else []).append
    return await _managing(chosen, None, [TASK], by_criteria(TASK, details=False), say, model)


def by_prompt(run: Path) -> dict[str, list[float | None]]:
    """The rewards of the worker's attempts, by what it was told."""
    reader = RunReader(run)
    goals = {task.id: task.goal for task in reader.tasks}
    found: dict[str, list[float | None]] = {}
    for each in reader.episodes:
        found.setdefault(goals[each.task_id], []).append(each.reward)
    return found


@pytest.mark.parametrize(
    ("feedback", "answer", "scores", "reward"),
    [
        ("Look at a map.", knows_maps, (1.0, 0.0), 1.0),
        ("Think again.", knows_maps, (0.0, 0.0), 0.5),
        ("Just guess.", guesses, (0.0, 1.0), 0.0),
    ],
)
async def test_the_reward_of_feedback_is_what_it_gains_over_an_attempt_without_it(
    tmp_path: Path,
    start: Any,
    canned: Any,
    feedback: str,
    answer: Callable[[str], str],
    scores: tuple[float, float],
    reward: float,
) -> None:
    proxied = await start(canned(says(feedback)))
    async with bridge(tmp_path / "team") as url, working(url, answer):
        counts = await manage(url, manager(proxied.url), rollouts=2)
    with_feedback, without = scores
    gain = with_feedback - without
    assert (counts.gains, counts.total_gain) == (2, 2 * gain)
    episodes: list[Episode] = proxied.episodes()
    assert [each.reward for each in episodes] == [reward, reward]
    assert {each.task_id for each in episodes} == {"manager.capital"}, "one group"
    assert [len(each.turns) for each in episodes] == [1, 1]
    (said,) = episodes[0].metadata["feedback"]
    assert said["text"].startswith(f"gain {gain:+.3g}: ")
    assert by_prompt(tmp_path / "team") == {
        # A first attempt and a control of each rollout, and those with the feedback.
        TASK.goal: [without] * 4,
        told(TASK, feedback): [with_feedback] * 2,
    }


async def test_without_the_proxys_key_nothing_is_spent(
    tmp_path: Path, start: Any, canned: Any
) -> None:
    proxied = await start(canned(says("Look at a map.")), key_env="of-the-proxy")
    async with bridge(tmp_path / "team") as url, working(url, knows_maps):
        with pytest.raises(GainError, match="--proxy-key-env names the variable that has it"):
            await manage(url, manager(proxied.url))
    assert proxied.episodes() == []
    assert not [*RunReader(tmp_path / "team").episodes], "no worker was given anything"


async def test_gains_and_scores_are_told_apart(tmp_path: Path, start: Any, canned: Any) -> None:
    proxied = await start(canned(says("Look at a map.")))
    said: list[str] = []
    async with bridge(tmp_path / "team") as url, working(url, knows_maps):
        await manage(url, manager(proxied.url), said)
    assert [line.split()[:2] for line in said] == [["gain", "+1"], ["score", "0"]]


async def test_what_has_a_gain_is_not_done_again_and_what_has_none_is(
    tmp_path: Path, start: Any, canned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first manager loses its key for scores; the second one has it, and the third finds it
    done."""

    async def checked(_: Trained) -> None:
        """It still had it."""

    proxied = await start(canned(says("Look at a map.")), key_env="of-the-proxy")
    said: list[str] = []
    async with bridge(tmp_path / "team") as url, working(url, knows_maps):
        with monkeypatch.context() as patch:
            patch.setattr(Trained, "check", checked)
            counts = await manage(url, manager(proxied.url), said)
        assert (counts.gains, counts.not_graded) == (0, 1)
        assert "the key for sessions is missing or wrong" in said[0]
        assert "--proxy-key-env names the variable that has it" in said[0]
        model = manager(proxied.url, "of-the-proxy")
        counts = await manage(url, model)
        assert (counts.gains, counts.total_gain, counts.graded) == (1, 1.0, 1)
        counts = await manage(url, model)
        assert (counts.gains, counts.graded) == (0, 1)
    assert [each.reward for each in proxied.episodes()] == [1.0]
    attempts = by_prompt(tmp_path / "team")
    assert attempts[TASK.goal] == [0.0, 0.0], "the control of the first manager is kept"


async def test_empty_feedback_is_an_attempt_without_any(
    tmp_path: Path, start: Any, canned: Any
) -> None:
    proxied = await start(canned(says("  ")))
    async with bridge(tmp_path / "team") as url, working(url, knows_maps):
        counts = await manage(url, manager(proxied.url))
    assert (counts.gains, counts.total_gain) == (1, 0.0)
    assert by_prompt(tmp_path / "team") == {TASK.goal: [0.0] * 3}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (None, "the config has no section llm"),
        ({"type": "posts"}, "tells the proxy before the manager's model"),
    ],
)
def test_a_manager_without_a_proxy_is_refused(section: Any, message: str) -> None:
    node = None if section is None else from_plain(section)
    with pytest.raises(InputError, match=message):
        trained(node, Registry(), BuildContext(), None)


def test_a_manager_that_is_trained_does_not_grade_what_it_is_paid_for() -> None:
    task: Task = made_task("open", goal="Say something.")
    (problem,) = _problems(task, None, Path("manager.yaml"))
    assert problem.expected == "criteria; or a section llm, without --gain"
