"""Trains a manager: its feedback is an action, and its reward what the feedback was worth.

For each task, through the bridge:

    first     the goal                   -> a result, which the manager reads
    told      the goal and the feedback  -> a score
    control   the goal                   -> a score

The gain is the score of `told` less that of `control`, from -1 to 1. The control is a new attempt
and not the first one: a manager that speaks after failures would be paid for what a second attempt
gains by chance. The proxy that the manager's model is asked through gets (1 + gain) / 2 for the
session of the feedback.
"""

import json
import zlib
from http import HTTPStatus
from urllib.parse import quote

import aiohttp
from attrs import frozen

from ale.errors import AleError, InputError
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.runs import Registry, build_choice
from ale.strict import Node, from_plain
from ale.types import CompletionRequest, Conversation, Message, Task
from ale_proxy.assignment import Result

PATH = "llm.base_url"
_LONGEST = 4000
"""Characters of a goal or a result that the model is shown."""
PROMPT = """\
You are the manager of a worker who was given this task:
{goal}

The worker's result:
{result}

The worker will be given the task again, with your feedback. Answer with the feedback alone."""
"""The question to the manager."""
_TOLD = "{goal}\n\nFeedback on an earlier attempt:\n{feedback}"


def told(task: Task, feedback: str) -> str:
    """The prompt of a worker who gets feedback; the goal alone where there is none."""
    return _TOLD.format(goal=task.goal, feedback=feedback) if feedback else task.goal


class GainError(AleError):
    """The proxy did not take what a feedback was worth."""


@frozen(kw_only=True)
class Trained:
    """The manager's model, behind a proxy that records each feedback as a session of its own.

    Args:
        section: the section ``llm``, whose ``base_url`` is the proxy's.
        url: that URL, up to ``/v1``.
        key: that the proxy needs for scores, or None.
    """

    section: Node
    url: str
    registry: Registry
    context: BuildContext
    key: str | None = None

    async def feedback(self, session: str, task: Task, result: Result, seed: str) -> str:
        """Feedback of the manager on a result.

        Args:
            seed: the same gives the same answer, if the server is deterministic.

        Raises:
            LLMError: the model does not answer.
        """
        prompt = PROMPT.format(goal=task.goal[:_LONGEST], result=result.written[:_LONGEST])
        request = CompletionRequest(
            messages=(Message(role="user", content=prompt),),
            conversation=Conversation(
                episode_id=session, task_id=task.id, rollout=0, seed=zlib.crc32(seed.encode())
            ),
            turn=0,
        )
        llm = self._model(session, task)
        try:
            return (await llm.complete(request)).message.content.strip()
        finally:
            await llm.aclose()

    def _model(self, session: str, task: Task) -> LLM:
        """The model, in a session of the proxy; those of a task's feedback are of one task."""
        place = quote(f"{session}@manager.{task.id}", safe="@")
        options = {**self.section.plain(), "base_url": f"{self.url}/s/{place}/v1"}
        node = from_plain(options, file=self.section.file, line=self.section.line)
        made: LLM = build_choice(node, "llm", self.registry, self.context)[1]
        return made

    async def reward(self, session: str, with_feedback: float, without: float) -> float:
        """Tell the proxy what the feedback of a session was worth; the gain.

        Raises:
            GainError: the proxy refuses it, or does not answer.
        """
        gain = with_feedback - without
        text = f"gain {gain:+.3g}: {with_feedback:.3g} with the feedback, {without:.3g} without"
        form = {"score": (1 + gain) / 2, "text": text, "author": "ale workers manage"}
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        url = f"{self.url}/v1/sessions/{quote(session, safe='')}/feedback"
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client,
                client.post(url, json=form, headers=headers) as answer,
            ):
                if not answer.ok:
                    raise GainError(self._refusal(answer.status, await answer.read()))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise GainError(f"the proxy at {self.url} does not take the gain: {why}") from error
        return gain

    async def check(self) -> None:
        """Find out whether the proxy would take gains, before anything is spent.

        Raises:
            GainError: it refuses the key, or is no proxy, or does not answer.
        """
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client,
                client.get(f"{self.url}/v1/sessions", headers=headers) as answer,
            ):
                if not answer.ok:
                    raise GainError(self._refusal(answer.status, await answer.read()))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise GainError(f"the proxy at {self.url} can't be asked: {why}") from error

    def _refusal(self, status: int, body: bytes) -> str:
        try:
            reason = str(json.loads(body)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            reason = body[:200].decode(errors="replace")
        hint = ""
        if status == HTTPStatus.UNAUTHORIZED:
            hint = "; --proxy-key-env names the variable that has it"
        if status == HTTPStatus.NOT_FOUND:
            hint = f"; is {PATH} that of an `ale proxy`, whose --idle-s is long enough?"
        return f"the proxy at {self.url} does not take the gain: {reason}{hint}"


def trained(
    section: Node | None, registry: Registry, context: BuildContext, key: str | None
) -> Trained:
    """The manager's model of a config.

    Raises:
        InputError: there is none, or none with a ``base_url``.
    """
    if section is None:
        message = "--gain trains the manager's model, and the config has no section llm"
        raise InputError.of(message, path="llm", expected=_EXPECTED)
    url = section.get("base_url")
    if url is None or not isinstance(url.value, str):
        message = "--gain tells the proxy before the manager's model what its feedback was worth"
        raise section.error(message, path=PATH, expected=_EXPECTED)
    root = url.value.rstrip("/").removesuffix("/v1")
    return Trained(section=section, url=root, registry=registry, context=context, key=key)


_EXPECTED = "llm: {type: openai, base_url: URL of an `ale proxy`, ...}"
