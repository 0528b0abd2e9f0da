"""Asks a model what would have helped, in episodes that ended badly and have feedback."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from ale.protocols import LLM
from ale.runs import RunReader
from ale.types import CompletionRequest, Conversation, Episode, Message
from ale_middleware.skills.store import Skill, Store, identity_of, name_of

_LONGEST = 1500
"""Characters of one message that are shown."""
_TURNS = 8
_NOTHING = "NONE"
_SKILL = "SKILL:"
_PROMPT = """\
An agent has worked on a task and did badly. Write one skill: a rule of one or two sentences that \
would help an agent with this task and others like it. It must not give away the answer to this \
task, name its files or repeat what is known already.

The task:
{goal}

What the agent did at the end:
{work}

What was said about it:
{feedback}

Known already:
{known}

Answer with one line that begins with "SKILL:", or with NONE if there is nothing to learn."""


@frozen(kw_only=True)
class Proposed:
    """What came of asking."""

    added: list[Skill] = field(factory=list)
    left_out: Counter[str] = field(factory=Counter)
    """Episodes from which no skill was added, by reason."""


async def propose(
    runs: Sequence[Path],
    store: Store,
    llm: LLM,
    *,
    below: float = 0.5,
    most: int = 20,
    details: bool = False,
) -> Proposed:
    """Add skills from the episodes of runs; each episode is asked about once, ever.

    Args:
        below: only episodes with a smaller reward.
        most: requests to the model, at most.
        details: what criteria say of a score counts as feedback too.

    Raises:
        InputError: a run can't be read.
        LLMError: the model gave no answer; what was added stays.
    """
    made = Proposed()
    asked = 0
    for run, goal, episode in _episodes(runs):
        feedback = feedback_on(episode, details=details)
        identity = identity_of(run, episode)
        reason = _left_out(episode, feedback, below, store.was_asked(*identity))
        if reason is None and asked >= most:
            reason = "the number of requests was reached"
        if reason is not None:
            made.left_out[reason] += 1
            continue
        asked += 1
        text = await _ask(llm, store, goal, episode, feedback)
        _add(text, store, made, goal=goal, run=run, episode=episode.id)
        store.set_asked(*identity)
    return made


def feedback_on(episode: Episode, *, details: bool = False) -> list[str]:
    """What was said of an episode."""
    feedback = [entry["text"] for entry in episode.metadata.get("feedback", ()) if entry["text"]]
    if details:
        failed = [score.detail for score in episode.scores if score.value < 1]
        feedback += [detail for detail in failed if detail not in ("", *feedback)]
    return feedback


def _episodes(runs: Sequence[Path]) -> Iterator[tuple[str, str, Episode]]:
    """Name of the run, goal of the task, episode."""
    for path in runs:
        reader = RunReader(path)
        goals: Mapping[str, str] = {task.id: task.goal for task in reader.tasks}
        for episode in reader.episodes:
            if episode.split == "train":
                goal = goals.get(episode.task_id, "")
                yield name_of(reader), goal, episode


def _left_out(episode: Episode, feedback: Sequence[str], below: float, asked: bool) -> str | None:
    if episode.reward is None:
        return "broken or without a score"
    if episode.reward >= below:
        return "good enough"
    if not feedback:
        return "nothing was said about it"
    return "asked about before" if asked else None


async def _ask(
    llm: LLM, store: Store, goal: str, episode: Episode, feedback: Sequence[str]
) -> str | None:
    """The text of a skill; empty for none; None for an answer of another form."""
    known = store.fitting(goal, top_k=10, threshold=0)
    prompt = _PROMPT.format(
        goal=goal[:_LONGEST],
        work=_work(episode),
        feedback="\n".join(f"- {text[:_LONGEST]}" for text in feedback),
        known="\n".join(f"- {skill.text}" for skill in known) or "nothing",
    )
    request = CompletionRequest(
        messages=(Message(role="user", content=prompt),),
        conversation=Conversation(
            episode_id=f"skill-{episode.id}",
            task_id=episode.task_id,
            rollout=episode.rollout,
            seed=episode.seed,
        ),
        turn=0,
    )
    answer = (await llm.complete(request)).message.content
    for line in answer.splitlines():
        if line.strip().startswith(_SKILL):
            return line.strip().removeprefix(_SKILL).strip()
    return "" if answer.strip().upper().startswith(_NOTHING) else None


def _work(episode: Episode) -> str:
    """The last turns as lines."""
    lines = []
    for turn in episode.trajectory.turns[-_TURNS:]:
        message = turn.completion.message
        lines += [message.content] if message.content else []
        lines += [f"call {call.name} {call.arguments}" for call in message.tool_calls]
        lines += [f"result {observation.content}" for observation in turn.observations]
    return "\n".join(line[:_LONGEST] for line in lines) or "nothing"


def _add(
    text: str | None, store: Store, made: Proposed, *, goal: str, run: str, episode: str
) -> None:
    if text is None:
        made.left_out["the model answered in another form"] += 1
    elif not any(map(str.isalnum, text)):
        made.left_out["the model found nothing to learn"] += 1
    elif store.same_as(text) is not None:
        made.left_out["it says what a skill says already"] += 1
    else:
        made.added.append(store.add(text, goal, run=run, episode=episode, at=time.time()))
