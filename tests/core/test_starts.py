"""Rollouts that begin where an expert stopped, and held-out evaluation, in the run's real loop."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from ale._config import structure_config
from ale._registry import Registry
from ale._run.run import Run
from ale._run.start import resume
from ale.errors import ContextLengthError, InputError, PluginError, ReplayError
from ale.plugin import Component, hookimpl
from ale.protocols import LLM, AgentContext, Start
from ale.strict import from_plain
from ale.testing.fakes import FakeLLM, FakePolicy, FakeTrainer
from ale.types import (
    Completion,
    CompletionRequest,
    Episode,
    EvaluationFinished,
    Message,
    Observation,
    Stop,
    Task,
    ToolCall,
    Turn,
    replace,
)

Finish = Callable[[Run], Any]
TURNS = 3


def message(turn: int, command: str) -> Message:
    call = ToolCall(id=f"call_{turn}", name="shell", arguments=json.dumps({"command": command}))
    return Message(role="assistant", tool_calls=(call,))


async def converse(context: AgentContext) -> Stop:
    """Ask the model three times and run what it says."""
    messages: tuple[Message, ...] = (Message(role="user", content=context.task.goal),)
    added = messages
    for number in range(TURNS):
        request = CompletionRequest(
            messages=messages,
            conversation=context.conversation,
            turn=number,
            fresh_context=number == 0,
        )
        completion = await context.llm.complete(request)
        (call,) = completion.message.tool_calls
        result = await context.sandbox.exec(json.loads(call.arguments)["command"])
        seen = Observation(call_id=call.id, tool="shell", content=f"[exit {result.exit_code}]")
        turn = Turn(
            prompt=added,
            fresh_context=number == 0,
            completion=completion,
            observations=(seen,),
        )
        context.recorder.append(turn)
        added = ()
        messages = (*messages, completion.message, seen.as_message())
    return Stop(reason="finished")


class Beginning:
    """Says so many commands, then nothing."""

    def __init__(self, n: int) -> None:
        self.n = n

    def answer(self, request: CompletionRequest) -> Message | None:
        return message(request.turn, f"touch e{request.turn}") if request.turn < self.n else None


class Halfway:
    """One rollout of each task from its beginning, two after a number of turns that grows."""

    def __init__(self) -> None:
        self.learned_from: list[tuple[int, list[str]]] = []

    def starts(self, task_id: str) -> list[Start]:
        n = min(TURNS, 1 + len(self.learned_from))
        named = Start(task_id=task_id, rollouts=2, name=f"p{n}", expert=lambda: self.expert(n))
        return [Start(task_id=task_id, rollouts=1), named]

    def expert(self, n: int) -> Any:
        return Beginning(n)

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        return [start for task in tasks for start in self.starts(task.id)]

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        self.learned_from.append((step, [episode.id for episode in episodes]))


class Learning(FakeTrainer):
    def attach(self, llm: LLM | None) -> None:
        assert isinstance(llm, FakePolicy)

    @property
    def groups(self) -> list[list[list[str]]]:
        """Ids of the episodes, by step and group."""
        return [
            [[r.episode.id for r in g.group.rollouts] for g in batch.groups]
            for batch in self.batches
        ]


class Practice:
    """The parts beside the bench's: each build makes a new one, as a resumed run does."""

    def __init__(self) -> None:
        self.scheme: Callable[[], Any] = Halfway
        self.model: Callable[[], LLM] = lambda: FakePolicy(lambda r: message(r.turn, "touch done"))
        self.built: dict[str, list[Any]] = {"scheme": [], "model": [], "trainer": []}
        self.evaluated: list[EvaluationFinished] = []

    def keep(self, what: str, made: Any) -> Any:
        self.built[what].append(made)
        return made

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        def build(options: None, context: Any) -> LLM:
            model: LLM = self.keep("model", self.model())
            return model

        return [Component("fake", None, build, summary="A fake policy.")]

    @hookimpl
    def ale_starts(self) -> Sequence[Component[Any, Any]]:
        return [
            Component(
                "halfway", None, lambda o, c: self.keep("scheme", self.scheme()), summary="Halfway."
            )
        ]

    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [
            Component(
                "learning", None, lambda o, c: self.keep("trainer", Learning()), summary="Learns."
            )
        ]

    @hookimpl
    def ale_observers(self) -> Sequence[Component[Any, Any]]:
        practice = self

        class Listener:
            @hookimpl
            def ale_evaluation_finished(self, event: EvaluationFinished) -> None:
                practice.evaluated.append(event)

        return [Component("listening", None, lambda o, c: Listener(), summary="Listens.")]


@pytest.fixture
def practice(registry: Registry, bench: Any) -> Practice:
    bench.agent = converse
    made = Practice()
    registry.add(made, "ale-practice")
    return made


def configured(workplace: Any, *leave_out: str, **run: Any) -> Any:
    plain: dict[str, Any] = {
        "tasks": {"type": "list", "n": 2},
        "agent": {"type": "bench"},
        "llm": {"type": "fake"},
        "starts": {"type": "halfway"},
        "trainer": {"type": "learning"},
        "evaluation": {
            "tasks": {"type": "list", "n": 1},
            "every": 2,
            "rollouts": 2,
            "temperatures": [1],
        },
        "observers": [{"type": "listening"}],
        "run": {"directory": str(workplace.directory), "keep_checkpoints": None, "steps": 3, **run},
    }
    retained = {key: value for key, value in plain.items() if key not in leave_out}
    return structure_config(from_plain(retained), workplace.registry)


def stored(run: Run) -> Mapping[str, Episode]:
    """Every episode of a run by its id; none is on disk twice."""
    episodes = list(run.store.reader.episodes)
    found = {episode.id: episode for episode in episodes}
    assert len(found) == len(episodes)
    return found


async def test_an_experts_turns_are_forced_and_the_models_are_not(
    workplace: Any, practice: Practice
) -> None:
    run = await workplace.ran(configured(workplace, "evaluation", steps=1))
    inside, beginning = stored(run)["0-t0@p1-1"], stored(run)["0-t0-0"]
    assert (inside.start, inside.rollout) == ("p1", 1)
    assert [turn.completion.forced for turn in inside.trajectory.turns] == [True, False, False]
    assert inside.trajectory.turns[0].completion.message == message(0, "touch e0")
    assert inside.trajectory.turns[0].completion.tokens is not None
    assert [turn.completion.forced for turn in beginning.trajectory.turns] == [False] * 3
    (model,) = practice.built["model"]
    # 2 tasks: 1 rollout of 3 turns, and 2 rollouts of 2 turns each, were the model's own.
    assert len(model.requests) == 2 * (3 + 2 * 2)


class Ahead(Halfway):
    """Has a next action, at the task's own beginning too."""

    def starts(self, task_id: str) -> list[Start]:
        beginning, inside = super().starts(task_id)
        return [
            replace(beginning, next_action=lambda: self.expert(1)),
            replace(inside, next_action=lambda: self.expert(2), expert_turns=7),
        ]


async def test_an_experts_next_action_is_stored_and_not_executed(
    workplace: Any, practice: Practice
) -> None:
    practice.scheme = Ahead
    run = await workplace.ran(configured(workplace, "evaluation", steps=1))
    for name, p in (("0-t0-0", 0), ("0-t0@p1-1", 1)):
        episode = stored(run)[name]
        following = episode.metadata["expert_next"]
        own = episode.trajectory.turns[p].completion
        assert following["turn"] == p
        assert bytes(following["output_ids"]).decode().count(f"touch e{p}") == 1
        assert len(following["logprobs"]) == len(following["output_ids"])
        assert {*following["policy_versions"]} == {0}
        assert own.message == message(p, "touch done")
        assert own.tokens is not None
        assert not own.forced
    (model,) = practice.built["model"]
    assert len(model.requests) == 2 * (3 + 2 * 2), "the policy is asked as often as without it"
    assert stored(run)["0-t0@p1-1"].metadata["expert_turns"] == 7


async def test_a_next_action_that_cannot_be_stored_is_left_out_with_the_reason(
    workplace: Any, practice: Practice
) -> None:
    class Cramped(FakePolicy):
        async def force(self, request: CompletionRequest, answer: Message) -> Completion:
            if "e1" in str(answer):
                raise ContextLengthError("99 tokens, and the context holds 9")
            return await super().force(request, answer)

    practice.scheme = Ahead
    practice.model = lambda: Cramped(lambda r: message(r.turn, "touch done"))
    run = await workplace.ran(configured(workplace, "evaluation", steps=1))
    episode = stored(run)["0-t0@p1-1"]
    assert episode.reward == 1.0
    assert episode.metadata["expert_next"] == {"left_out": "99 tokens, and the context holds 9"}


class Named(FakePolicy):
    """A model that knows its tokenizer."""

    tokenizer_id = "0a1b"


async def test_the_identity_of_the_models_tokenizer_stays_with_every_episode(
    workplace: Any, practice: Practice
) -> None:
    for known in (True, False):
        kind = Named if known else FakePolicy
        practice.model = lambda: kind(lambda r: message(r.turn, "touch done"))  # noqa: B023
        run = await workplace.ran(configured(workplace, steps=1))
        found = {episode.metadata.get("tokenizer") for episode in stored(run).values()}
        assert found == ({"0a1b"} if known else {None})


async def test_the_model_continues_after_the_experts_turns(
    workplace: Any, finish: Finish, practice: Practice
) -> None:
    await finish(workplace.prepared(configured(workplace, "evaluation", steps=1)))
    (model,) = practice.built["model"]
    first = next(r for r in model.requests if r.conversation.episode_id == "0-t0@p1-0")
    assert first.turn == 1
    assert [m.role for m in first.messages] == ["user", "assistant", "tool"]
    assert first.messages[1] == message(0, "touch e0")


async def test_rollouts_of_one_start_are_a_group_with_seeds_of_their_own(
    workplace: Any, practice: Practice
) -> None:
    run = await workplace.ran(configured(workplace, "evaluation", steps=2))
    (trainer,) = practice.built["trainer"]
    assert trainer.groups[1] == [
        ["1-t0-0"],
        ["1-t0@p2-0", "1-t0@p2-1"],
        ["1-t1-0"],
        ["1-t1@p2-0", "1-t1@p2-1"],
    ]
    seeds = [episode.seed for episode in stored(run).values()]
    assert len(set(seeds)) == len(seeds) == 12


async def test_the_scheme_learns_from_each_step_once_it_is_complete(
    workplace: Any, finish: Finish, practice: Practice
) -> None:
    await finish(workplace.prepared(configured(workplace)))
    (scheme,) = practice.built["scheme"]
    assert [step for step, _ in scheme.learned_from] == [0, 1, 2]
    assert scheme.learned_from[2][1] == [
        f"2-t{i}{at}" for i in (0, 1) for at in ("-0", "@p3-0", "@p3-1")
    ]


async def test_tokens_after_a_step_carry_the_new_version(
    workplace: Any, practice: Practice
) -> None:
    run = await workplace.ran(configured(workplace))
    for episode in stored(run).values():
        for turn in episode.trajectory.turns:
            assert turn.completion.tokens is not None
            assert {*turn.completion.tokens.policy_versions} == {episode.step}


def cut_short(run: Run, keep: int) -> None:
    """As if the run had been killed in step 1: its newest episodes and all that came of them."""
    path = run.store.path
    lines = (path / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (path / "episodes.jsonl").write_bytes(b"".join(lines[:keep]))
    for name in ("00001", "00002"):
        (path / "credits" / f"{name}.jsonl").unlink()
        shutil.rmtree(path / "checkpoints" / name)


async def test_a_resumed_run_does_exactly_what_is_missing_from_the_same_starts(
    workplace: Any, finish: Finish, practice: Practice
) -> None:
    run = await workplace.ran(configured(workplace, concurrency=1))
    before = stored(run)
    # Evaluation at 0: 2 episodes; step 0: 6; of step 1 only two are left.
    cut_short(run, keep=10)
    retained = [*stored(run)]
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    after = stored(again)
    assert {*after} == {*before}
    for name, episode in after.items():
        assert episode.trajectory == before[name].trajectory
        assert episode.seed == before[name].seed
    first, second = practice.built["scheme"]
    assert second.learned_from == first.learned_from
    model = practice.built["model"][1]
    assert not {r.conversation.episode_id for r in model.requests} & {*retained}
    trainer = practice.built["trainer"][1]
    assert [groups[0] for groups in trainer.groups] == [["1-t0-0"], ["2-t0-0"]]


async def test_a_replay_that_diverges_breaks_the_episode_after_its_retries(
    workplace: Any, practice: Practice
) -> None:
    class Astray(Halfway):
        def expert(self, n: int) -> Any:
            class Lost:
                def answer(self, request: CompletionRequest) -> Message | None:
                    raise ReplayError("the replay has led somewhere else")

            return Lost()

    practice.scheme = Astray
    more = {"steps": 1, "retries": 1, "stop_after_broken": None}
    run = await workplace.ran(configured(workplace, "evaluation", **more))
    lost = stored(run)["0-t1@p1-0"]
    assert lost.reward is None
    assert lost.failure is not None
    assert (lost.failure.kind, lost.failure.stage) == ("ReplayError", "agent")
    assert len(lost.earlier_failures) == 1
    assert practice.built["scheme"][0].learned_from == [(0, ["0-t0-0", "0-t1-0"])]
    assert practice.built["trainer"][0].groups == [[["0-t0-0"], ["0-t1-0"]]]


@pytest.mark.parametrize(
    "starts",
    [
        [Start(task_id="other", rollouts=1)],
        [Start(task_id="t0", rollouts=0)],
        [Start(task_id="t0", rollouts=1), Start(task_id="t0", rollouts=1)],
        [Start(task_id="t0", rollouts=1, name="a/b", expert=lambda: Beginning(1))],
    ],
)
def test_a_scheme_that_breaks_its_contract_is_named_before_anything_is_written(
    workplace: Any, practice: Practice, starts: list[Start]
) -> None:
    class Wrong(Halfway):
        def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
            return starts

    practice.scheme = Wrong
    with pytest.raises(PluginError, match="the start scheme"):
        workplace.prepared(configured(workplace, "evaluation"))
    assert not workplace.directory.exists()


class Shown(Halfway):
    """A demonstration of each task."""

    def starts(self, task_id: str) -> list[Start]:
        beginning, _ = super().starts(task_id)
        return [replace(beginning, expert=lambda: self.expert(TURNS), demonstration=True)]


def test_demonstrations_that_the_trainer_ignores_are_refused(
    workplace: Any, practice: Practice, monkeypatch: pytest.MonkeyPatch
) -> None:
    practice.scheme = Shown
    workplace.prepared(configured(workplace, "evaluation")).store.close()
    monkeypatch.setattr(Learning, "ignores_demonstrations", True, raising=False)
    with pytest.raises(InputError) as refused:
        workplace.prepared(configured(workplace, "evaluation"))
    (problem,) = refused.value.problems
    assert problem.path == "trainer.type"
    assert "learns nothing from them" in problem.message
    assert "starts.demonstrations: 0" in (problem.hint or "")
    workplace.prepared(configured(workplace, "evaluation", "trainer")).store.close()


def test_a_model_whose_answers_can_not_be_forced_is_refused(
    workplace: Any, practice: Practice
) -> None:
    practice.model = lambda: FakeLLM([])
    with pytest.raises(InputError, match="need a model whose answers can be forced"):
        workplace.prepared(configured(workplace, "trainer"))


async def test_the_policy_is_evaluated_before_between_and_after_the_steps(
    workplace: Any, practice: Practice
) -> None:
    run = await workplace.ran(configured(workplace, concurrency=1))
    measured = [episode for episode in stored(run).values() if episode.split == "evaluation"]
    assert [episode.id for episode in measured] == [
        f"evaluation-{step}-t0-{rollout}-T1" for step in (0, 2, 3) for rollout in (0, 1)
    ]
    events = [(e.step, e.policy_version, e.n_graded, e.n_succeeded) for e in practice.evaluated]
    assert events == [(0, 0, 2, 2), (2, 2, 2, 2), (3, 3, 2, 2)]
    # Each measurement with the same seeds, so that less differs.
    assert len({episode.seed for episode in measured}) == 2


async def test_nothing_learns_from_an_evaluation(
    workplace: Any, finish: Finish, practice: Practice
) -> None:
    run = workplace.prepared(configured(workplace))
    finished = await finish(run)
    (scheme,), (trainer,) = practice.built["scheme"], practice.built["trainer"]
    learned = [name for _, learned_from in scheme.learned_from for name in learned_from]
    learned += [name for step in trainer.groups for group in step for name in group]
    assert not [name for name in learned if name.startswith("evaluation")]
    assert all(not row.episode_id.startswith("evaluation") for row in run.store.reader.credits())
    assert (finished.n_graded, finished.n_expert_guided) == (6, 12)


async def test_a_resumed_evaluation_asks_for_the_missing_episodes_only(
    workplace: Any, finish: Finish, practice: Practice
) -> None:
    run = await workplace.ran(configured(workplace, concurrency=1))
    path = run.store.path / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    asked = {r.conversation.episode_id for r in practice.built["model"][1].requests}
    assert asked == {"evaluation-3-t0-1-T1"}
    assert len(stored(again)) == len(lines)
