"""Adds the skills that fit a task, each to one half of its rollouts where they are measured.

Where they are not, a proposal that is pending is added to none.
"""

import hashlib
from collections import OrderedDict

from ale.errors import InputError
from ale.middleware import with_system_text
from ale.plugin import BuildContext
from ale.protocols import MiddlewareContext, Rewritten
from ale.types import Conversation, Message
from ale_middleware.skills.embedding import Embedder, Nearest
from ale_middleware.skills.options import SkillOptions
from ale_middleware.skills.store import Skill, Store

_REMEMBERED = 4096
"""Episodes whose skills are remembered: more than run at once."""


class Skills:
    """The middleware. The store may grow while it is used: an episode keeps what it began with."""

    def __init__(self, options: SkillOptions, key: str | None = None) -> None:
        self._options = options
        self._nearest = None
        if options.embeddings is not None:
            self._nearest = Nearest(Embedder(options.embeddings, key))
        Store(options.store).close()  # a file that can't be used is an error before the run
        self._chosen: OrderedDict[str, list[Skill]] = OrderedDict()

    async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
        """With the skills of the task."""
        conversation = context.conversation
        fitting = await self._of(conversation.episode_id, context.task.goal)
        given = [skill for skill in fitting if self._given(skill, conversation)]
        facts = {"skills": [{"id": skill.id, "given": skill in given} for skill in fitting]}
        if not given:
            return Rewritten(messages=head, facts=facts)
        listed = "\n".join(f"- {skill.text}" for skill in given)
        text = f"{self._options.heading}\n{listed}"
        return Rewritten(messages=with_system_text(head, text), facts=facts)

    async def _of(self, episode_id: str, goal: str) -> list[Skill]:
        if episode_id not in self._chosen:
            self._chosen[episode_id] = await self._fitting(goal)
            if len(self._chosen) > _REMEMBERED:
                self._chosen.popitem(last=False)
        return self._chosen[episode_id]

    async def _fitting(self, goal: str) -> list[Skill]:
        options = self._options
        with Store(options.store) as store:
            if self._nearest is None:
                return store.fitting(goal, top_k=options.top_k, threshold=options.threshold)
            skills = store.skills()
        return await self._nearest.fitting(skills, goal, options.top_k)

    def _given(self, skill: Skill, conversation: Conversation) -> bool:
        if self._options.measure:
            return given_in(skill.id, conversation)
        return not skill.pending


def built(options: SkillOptions, context: BuildContext) -> Skills:
    """The middleware, with the key of the server of embeddings.

    Raises:
        InputError: the key's variable is not set, or the store can't be used.
    """
    asked = options.embeddings
    if asked is None or asked.api_key_env is None:
        return Skills(options)
    key = context.secret(asked.api_key_env)
    if key is None:
        message = f"the environment variable {asked.api_key_env} is not set"
        raise InputError.of(message, path="embeddings.api_key_env")
    return Skills(options, key.value)


def given_in(skill: str, conversation: Conversation) -> bool:
    """Does this rollout get the skill, where skills are measured?

    Every second one does. Two skills of a task differ in every fourth, or are each other's opposite
    in some tasks and not in others, so that the worth of one does not count as that of the other.
    """
    digest = hashlib.sha256(f"{skill}/{conversation.task_id}".encode()).digest()
    mask, flip = (3 if digest[0] & 1 else 1), digest[1] & 1
    return ((conversation.rollout & mask).bit_count() + flip) % 2 == 0
