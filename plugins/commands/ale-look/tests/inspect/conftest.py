"""Runs on disk, as the store writes them, and a package whose parts credit them again."""

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen
from click.testing import CliRunner, Result

from ale._store import Redactor, RunDirectory
from ale.plugin import Component, doc, hookimpl
from ale.runs import Registry
from ale.testing.fakes import FakeChunker, FakeCreditScheme
from ale.types import (
    Chunk,
    Completion,
    Credit,
    CreditedEpisode,
    Episode,
    Failure,
    Message,
    Observation,
    Score,
    Span,
    Stop,
    TokenTrace,
    ToolCall,
    Trajectory,
    Turn,
)
from ale_look.inspect.commands import report, show
from ale_look.store.episodes_command import runs

Ale = Callable[..., Result]


@frozen(kw_only=True)
class ScaledOptions:
    """How much the reward counts."""

    scale: float = field(default=1.0, metadata=doc("Weight of a reward of 1."))


class Parts:
    """A chunker and a credit scheme."""

    @hookimpl
    def ale_chunkers(self) -> Sequence[Component[Any, Any]]:
        return [Component("turns", None, lambda o, c: FakeChunker(), summary="By turn.")]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        def build(options: ScaledOptions, _: Any) -> FakeCreditScheme:
            return FakeCreditScheme(scale=options.scale, name="scaled")

        return [Component("scaled", ScaledOptions, build, summary="The reward, scaled.")]


def write_run(
    path: Path,
    episodes: Sequence[Episode],
    *,
    manifest: Mapping[str, Any] | None = None,
    credited: bool = True,
    events: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> Path:
    """A run that holds these episodes, cut by turn; each weight is the reward."""
    about = {
        "run_id": path.name,
        "n_tasks": len({episode.task_id for episode in episodes}),
        "config": {
            "chunker": {"type": "ale-parts/turns"},
            "credit": {"type": "ale-parts/scaled", "scale": 1.0},
        },
        "versions": {"ale-core": "0.1.0"},
        **(manifest or {}),
    }
    store = RunDirectory.create(path, about, Redactor({}))
    for episode in episodes:
        store.add_episode(episode)
    for name, facts in events:
        store.add_event(name, 0.0, **facts)
    for step in sorted({episode.step for episode in episodes}) if credited else ():
        with store.writing_credits(step) as keep:
            for episode in episodes:
                if episode.step == step and episode.reward is not None:
                    keep(credited_row(episode))
    store.close()
    return path


def credited_row(episode: Episode) -> CreditedEpisode:
    """An episode cut by turn; each weight is the reward."""
    chunks = tuple(FakeChunker().split(episode.trajectory))
    reward = episode.reward or 0.0
    return CreditedEpisode(
        episode_id=episode.id,
        task_id=episode.task_id,
        step=episode.step,
        chunker="turns",
        chunks=chunks,
        credit=Credit(
            episode_id=episode.id,
            scheme="scaled",
            rewards=(0.0,) * len(chunks),
            returns=(reward,) * len(chunks),
            weights=(reward,) * len(chunks),
        ),
    )


STEPS, TASKS, ROLLOUTS, EVERY = 40, 12, 8, 5
HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=x onerror=document.title='owned'>\u202e\x1b[31m<!--"
)


def _episodes(rng: random.Random, step: int, *, held_out: bool = False) -> Iterator[Episode]:
    """What a policy does that gets better with every step."""
    skill = 1 / (1 + math.exp(-(step - 14) / 5)) * (0.9 if held_out else 0.96)
    for task in range(TASKS // (3 if held_out else 1)):
        for rollout in range(4 if held_out else ROLLOUTS):
            split = "evaluation" if held_out else "train"
            task_id = f"{'held' if held_out else 'files'}-{task:02d}"
            yield _episode(rng, split, step, task_id, rollout, skill * (1.1 - task / (2 * TASKS)))


def _episode(
    rng: random.Random, split: str, step: int, task_id: str, rollout: int, skill: float
) -> Episode:
    """One try; now and then the sandbox breaks."""
    name = f"{'e' if split == 'evaluation' else ''}{step}-{task_id}-{rollout}"
    facts = {"id": name, "task_id": task_id, "split": split, "step": step, "rollout": rollout}
    if rng.random() < 0.01:
        failure = Failure(
            stage="sandbox",
            kind="SandboxError",
            message=f"no answer on port :{rng.randrange(20000, 60000)} after 10.2 s",
            traceback="Traceback (most recent call last):\n  ...\nSandboxError: no answer",
        )
        return Episode(**facts, reward=None, failure=failure, seconds={"sandbox": 10.2})
    done = rng.random() < skill
    reward = 1.0 if done else rng.choice([0.0, 0.0, 0.5])
    turns = tuple(_turn(rng, i, step, task_id) for i in range(rng.randrange(2, 6)))
    return Episode(
        **facts,
        reward=reward,
        scores=(
            Score(criterion="file_content", passed=done, value=reward, detail="out.txt: 3 lines"),
        ),
        trajectory=Trajectory(turns=turns, stop=Stop(reason="finished" if done else "max_steps")),
        sandbox="bubblewrap",
        started_at="2026-01-01T12:00:00Z",
        seconds={
            "queued": 0.1,
            "sandbox": 0.02 + 0.01 * rng.random(),
            "setup": 0.01,
            "agent": 0.4 * len(turns) * (1 + rng.random()),
            "grading": 0.05,
            "teardown": 0.01,
        },
    )


def _turn(rng: random.Random, number: int, step: int, task_id: str) -> Turn:
    """A thought, a command, and what it gave; every token with its log-probability."""
    command = f"grep -c error log.txt > out.txt && sort -k2 data{number}.csv | head -n {number + 1}"
    content = f"I look at what is there and count what {task_id} asks for.\n$ {command}"
    pieces = [piece for word in content.split(" ") for piece in (word, " ")][:-1]
    starts = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
    n = len(pieces)
    arguments = json.dumps({"command": command})
    prompt: tuple[Message, ...] = ()
    if number == 0:
        prompt = (
            Message(role="system", content="You work in a shell. One command at a time."),
            Message(role="user", content=f"Count the errors of {task_id} in log.txt into out.txt."),
        )
    seen = "\n".join(f"line {i}: {rng.randrange(10**6)}" for i in range(rng.randrange(1, 9)))
    if rng.random() < 0.05:
        seen += HOSTILE
    return Turn(
        prompt=prompt,
        fresh_context=number == 0,
        completion=Completion(
            message=Message(
                role="assistant",
                content=content,
                tool_calls=(ToolCall(id=f"c{number}", name="shell", arguments=arguments),),
            ),
            finish_reason="tool_calls",
            tokens=TokenTrace(
                prompt_ids=tuple(range(20)),
                output_ids=tuple(range(n)),
                logprobs=tuple(-rng.expovariate(1.2 + step / 20) for _ in range(n)),
                policy_versions=(step,) * n,
                text_offsets=tuple(starts),
            ),
        ),
        observations=(
            Observation(
                call_id=f"c{number}",
                tool="shell",
                content=seen,
                error="exit code 1" if rng.random() < 0.1 else None,
                duration_s=0.02,
            ),
        ),
    )


def _credited(made: Episode, rng: random.Random) -> CreditedEpisode:
    """A chunk per turn, the first one cut in two."""
    chunks: list[Chunk] = []
    for i, each in enumerate(made.trajectory.turns):
        content, tokens = each.completion.message.content, each.completion.tokens
        assert tokens is not None
        assert tokens.text_offsets is not None
        n, cut = len(content), content.index("\n") + 1
        at = sum(start < cut for start in tokens.text_offsets)
        parts = [((0, n), (0, 1), (0, len(tokens.output_ids)))]
        if i == 0:
            parts = [((0, cut), (0, 0), (0, at)), ((cut, n), (0, 1), (at, len(tokens.output_ids)))]
        for text, calls, ids in parts:
            span = Span(turn=i, text=text, calls=calls, tokens=ids)
            chunks.append(Chunk(index=len(chunks), kind="interaction", spans=(span,)))
    reward = made.reward or 0.0
    returns = tuple(0.95 ** (len(chunks) - 1 - k) * (2 * reward - 1) for k in range(len(chunks)))
    return CreditedEpisode(
        episode_id=made.id,
        task_id=made.task_id,
        step=made.step,
        chunker="interaction",
        chunks=tuple(chunks),
        credit=Credit(
            episode_id=made.id,
            scheme="ipa",
            rewards=(*(0.0,) * (len(chunks) - 1), reward),
            returns=returns,
            weights=tuple(value * (1 + 0.2 * rng.random()) for value in returns),
        ),
    )


def _metrics(rng: random.Random, step: int) -> dict[str, float]:
    """What a trainer reports, and one thing that nobody has heard of."""
    noise = rng.uniform(0.9, 1.1)
    return {
        "success": 0.5,
        "loss": 0.8 * math.exp(-step / 20) * noise,
        "entropy": 1.9 * math.exp(-step / 25) * noise + 0.1,
        "kl_start": 0.002 * step * noise,
        "grad_norm": 3.2 * noise * math.exp(-step / 30) if step != 17 else math.nan,
        "ratio_min": 0.0,
        "ratio_p05": 1 - 0.12 * noise,
        "ratio_p50": 1 + 0.01 * noise,
        "ratio_p95": 1 + 0.2 * noise,
        "ratio_max": 9 * noise,
        "masked_fraction": 0.03 * noise,
        "lr": 1e-6 * min(1, (step + 1) / 10),
        "chunks_empty": 0.0,
        "updates": 4.0,
        "tokens_per_second": 5200 * noise,
        "seconds": 5 * noise,
        "seconds.rollouts": 11 * noise,
        "seconds.training": 6 * noise,
        "seconds.evaluation": 9 * noise if step % EVERY == 0 else 0.0,
        "seconds.crediting": 0.1 * noise,
        "seconds.hand_over": 0.2 * noise,
        "seconds.checkpoint": 2 * noise,
        "seconds.idle": 0.3 * noise,
        "seconds.episodes.agent": 80 * noise,
        "seconds.episodes.sampling": 60 * noise,
        "seconds.episodes.tools": 19 * noise,
        "zeta_of_theta": 10 ** (step / 8) * noise,
    }


def write_training(path: Path, steps: int = STEPS, seed: int = 0) -> Path:
    """A run that trains, as the store writes it."""
    rng = random.Random(seed)
    manifest = {
        "run_id": path.name,
        "created": "2026-01-01T12:00:00Z",
        "n_tasks": TASKS,
        "seed": seed,
        "config": {
            "tasks": {"type": "ale-tasks-shell/shell", "family": "files"},
            "sandbox": {"type": "ale-sandbox-bubblewrap/bubblewrap"},
            "llm": {"type": "ale-llm-policy/policy"},
            "agent": {"type": "ale-agent-iflow/iflow", "max_steps": 12},
            "chunker": {"type": "ale-chunkers/interaction"},
            "credit": {"type": "ale-credit/ipa", "gamma": 0.95},
            "trainer": {"type": "ale-trainer-policy/policy", "objective": "ipa"},
        },
        "versions": {"ale-core": "0.1.0", "ale-credit": "0.1.0"},
        "host": {"platform": "Linux", "cpus": 2},
        "outcome": {"outcome": "completed", "seconds": 312.0},
    }
    store = RunDirectory.create(path, manifest, Redactor({}))
    for step in range(steps):
        if step % EVERY == 0:
            for made in _episodes(rng, step, held_out=True):
                store.add_episode(made)
            store.add_event("evaluation_finished", 0.0, step=step, n_graded=16, n_succeeded=3)
        rows = list(_episodes(rng, step))
        for made in rows:
            store.add_episode(made)
        with store.writing_credits(step) as keep:
            for made in rows:
                if made.reward is not None:
                    keep(_credited(made, rng))
        store.add_event("step_finished", 0.0, step=step, metrics=_metrics(rng, step))
    store.add_event("reported", 0.0, message="an observer failed: </pre><b>bold</b>")
    store.close()
    return path


@pytest.fixture
def registry() -> Registry:
    """What is installed: those parts."""
    made = Registry()
    made.add(Parts(), "ale-parts", "1.0")
    assert not made.failed
    return made


@pytest.fixture
def ale(registry: Registry) -> Ale:
    """Run one of this package's commands as `ale` does."""
    commands = {"show": show, "report": report, "runs": runs}

    def invoke(name: str, *arguments: str) -> Result:
        return CliRunner().invoke(commands[name], arguments, obj=registry)

    return invoke


@pytest.fixture
def write() -> Callable[..., Path]:
    """Put a run on disk."""
    return write_run


@pytest.fixture(scope="session")
def write_trained() -> Callable[..., Path]:
    """Put a run of training steps on disk."""
    return write_training


@pytest.fixture(scope="session")
def hostile() -> str:
    """What a model may write to take over a page."""
    return HOSTILE
