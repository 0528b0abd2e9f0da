"""Held-out tasks are measured on the way, apart from what is learned from."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import evolve

from ale._config import structure_config
from ale._registry import Registry
from ale._run.plan import planned_episodes
from ale._run.run import Run
from ale._run.start import resume
from ale.errors import InputError
from ale.plugin import Component, hookimpl
from ale.protocols import AgentContext
from ale.runs import RunReader, branch_run
from ale.strict import from_plain
from ale.testing.builders import turn
from ale.testing.fakes import FakeTrainer
from ale.types import (
    Batch,
    Completion,
    CompletionRequest,
    CriterionSpec,
    LLMCapabilities,
    Message,
    PolicySnapshot,
    Sampling,
    StepReport,
    Stop,
    Task,
    replace,
)

Finish = Callable[[Run], Any]


class Learner(FakeTrainer):
    async def step(self, batch: Batch) -> StepReport:
        return replace(await super().step(batch), metrics={"loss": 0.5})


class Pupil:
    """Says its version."""

    made: ClassVar[list["Pupil"]] = []
    capabilities = LLMCapabilities(tools=False)

    def __init__(self) -> None:
        self.policy_version = 0
        self.loaded: list[int] = []
        self.asked: dict[str, float | None] = {}
        Pupil.made.append(self)

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked[request.conversation.episode_id] = request.sampling.temperature
        return Completion(message=Message(role="assistant", content=str(self.policy_version)))

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        self.loaded.append(snapshot.version)
        self.policy_version = snapshot.version

    async def force(self, request: CompletionRequest, answer: Message) -> Completion:
        return Completion(message=answer, forced=True)

    async def aclose(self) -> None: ...


class School:
    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [Component("learner", None, lambda o, c: Learner(), summary="Learns.")]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        return [Component("pupil", None, lambda o, c: Pupil(), summary="Is taught.")]

    @hookimpl
    def ale_task_sources(self) -> Sequence[Component[Any, Any]]:
        class Exam:
            def load(self) -> Iterable[Task]:
                for i in range(3):
                    spec = CriterionSpec(type="done")
                    yield Task(id=f"exam{i}", goal="Leave a file.", criteria=(spec,))

        return [Component("exam", None, lambda o, c: Exam(), summary="Held out.")]


async def as_it_was_taught(context: AgentContext) -> Stop:
    """Does the task once the policy is at version 2 or later."""
    request = CompletionRequest(
        messages=(Message(role="user", content=context.task.goal),),
        sampling=Sampling(),
        conversation=context.conversation,
        turn=0,
    )
    answer = await context.llm.complete(request)
    context.recorder.append(turn(answer.message.content))
    if int(answer.message.content) >= 2:
        await context.sandbox.write("done", b"")
    return Stop(reason="finished")


@pytest.fixture(autouse=True)
def school(registry: Registry, bench: Any) -> None:
    registry.add(School(), "ale-school")
    bench.agent = as_it_was_taught
    Pupil.made.clear()


def config(
    workplace: Any, *, every: int = 2, at: Sequence[float] | None = (1.0,), **run: Any
) -> Any:
    plain = {
        "tasks": {"type": "list", "n": 2},
        "agent": {"type": "bench"},
        "llm": {"type": "pupil"},
        "trainer": {"type": "learner"},
        "evaluation": {
            "tasks": {"type": "exam"},
            "every": every,
            "rollouts": 2,
            "temperatures": None if at is None else list(at),
        },
        "run": {"directory": str(workplace.directory), "keep_checkpoints": None, "steps": 3, **run},
    }
    return structure_config(from_plain(plain), workplace.registry)


def events(run: Run, name: str) -> list[dict[str, Any]]:
    lines = (run.store.path / "events.jsonl").read_text().splitlines()
    return [found for line in lines if (found := json.loads(line))["event"] == name]


async def test_the_policy_is_evaluated_before_during_and_after_training(
    workplace: Any, finish: Finish
) -> None:
    run = workplace.prepared(config(workplace))
    finished = await finish(run)
    evaluations = events(run, "evaluation_finished")
    assert [(e["step"], e["policy_version"], e["n_succeeded"]) for e in evaluations] == [
        (0, 0, 0),
        (2, 2, 6),
        (3, 3, 6),
    ]
    assert all(e["n_graded"] == 6 for e in evaluations)
    assert finished.n_graded == 6, "evaluation episodes are counted apart"


async def test_several_samples_of_each_task_give_pass_at_k_and_a_majority(workplace: Any) -> None:
    run = await workplace.ran(config(workplace))
    (before, *_, after) = events(run, "evaluation_finished")
    assert [(e["k"], e["pass_at_k"], e["majority"]) for e in (before, after)] == [
        (2, 0.0, 0.0),
        (2, 1.0, 1.0),
    ]


async def test_the_trainer_and_the_credits_see_no_evaluation(workplace: Any) -> None:
    run = await workplace.ran(config(workplace))
    assert isinstance(run.parts.trainer, Learner)
    assert run.parts.trainer.seen == {s: [f"{s}-t{t}-0" for t in range(2)] for s in range(3)}
    assert not [row for row in run.store.reader.credits() if row.task_id.startswith("exam")]
    ids = sorted(e.id for e in run.store.reader.episodes if e.split == "evaluation")
    assert ids[:2] == ["evaluation-0-exam0-0-T1", "evaluation-0-exam0-1-T1"]
    assert len(ids) == 18


async def test_each_evaluation_has_the_same_seeds(workplace: Any) -> None:
    run = await workplace.ran(config(workplace))
    seeds: dict[int, set[int]] = {}
    for episode in run.store.reader.episodes:
        if episode.split == "evaluation":
            seeds.setdefault(episode.step, set()).add(episode.seed)
    assert seeds[0] == seeds[2] == seeds[3]
    assert len(seeds[0]) == 6


async def test_every_step_hands_its_weights_to_the_model(workplace: Any) -> None:
    run = await workplace.ran(config(workplace))
    assert Pupil.made[0].loaded == [1, 2, 3]
    assert isinstance(run.parts.trainer, Learner)
    assert run.parts.trainer.llm is Pupil.made[0]
    (first, *_) = events(run, "step_finished")
    assert {"loss", "success", "mean_reward", "episodes", "broken"} <= set(first["metrics"])
    assert "seconds.rollouts" in first["metrics"]


async def test_a_resumed_run_samples_from_the_weights_of_its_checkpoint(
    workplace: Any, finish: Finish
) -> None:
    run = await workplace.ran(config(workplace))
    path = run.store.path
    # As if it had been killed in the last evaluation, after the last step.
    lines = (path / "episodes.jsonl").read_text().splitlines(keepends=True)
    (path / "episodes.jsonl").write_text("".join(lines[:-2]))
    again = resume(path, workplace.outside())
    await finish(again)
    assert Pupil.made[1].loaded == [3]
    (_, _, _, last) = events(again, "evaluation_finished")
    assert (last["step"], last["n_graded"], last["n_succeeded"]) == (3, 6, 6)
    ids = [episode.id for episode in again.store.reader.episodes]
    assert len(ids) == len(set(ids)) == 24


def answers(path: Path) -> dict[str, str]:
    """What the policy answered in each episode: its version."""
    episodes = RunReader(path).episodes
    return {e.id: e.trajectory.turns[0].completion.message.content for e in episodes}


@pytest.mark.parametrize(
    ("kept", "lacking"),
    [
        (3, "lacks 3 episodes of the policy after 0 steps, such as evaluation-0-exam1-1"),
        (7, "lacks 1 episode of the policy after 0 steps, such as 0-t1-0;"),
        (9, "lacks 1 episode of the policy after 1 step, such as 1-t1-0;"),
    ],
)
async def test_a_later_policy_does_not_sample_the_episodes_of_an_earlier_one(
    workplace: Any, finish: Finish, kept: int, lacking: str
) -> None:
    run = await workplace.ran(config(workplace, concurrency=1))
    path, before = run.store.path, answers(run.store.path)
    # As if the run had been copied while it was running: checkpoints are newer than episodes.
    lines = (path / "episodes.jsonl").read_text().splitlines(keepends=True)
    (path / "episodes.jsonl").write_text("".join(lines[:kept]))
    with pytest.raises(InputError) as raised:
        await finish(resume(path, workplace.outside()))
    (problem,) = raised.value.problems
    assert problem.file == str(path / "episodes.jsonl")
    assert problem.message.startswith(lacking)
    assert len(answers(path)) == kept
    # What the error advises: the policies are made again, and each samples what it lacks.
    (path / "checkpoints").rename(path / "moved")
    await finish(resume(path, workplace.outside()))
    assert answers(path) == before


async def test_an_evaluation_that_was_not_reported_before_a_kill_is_reported_once(
    workplace: Any, finish: Finish
) -> None:
    run = await workplace.ran(config(workplace))
    path = run.store.path / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(x for x in lines if not ("evaluation_f" in x and '"step":3' in x)))
    for _ in range(2):
        again = resume(run.store.path, workplace.outside())
        await finish(again)
        assert [event["step"] for event in events(again, "evaluation_finished")] == [0, 2, 3]
    assert len(list(again.store.reader.episodes)) == 24


async def test_a_policy_in_training_is_evaluated_greedily_and_as_it_is_sampled(
    workplace: Any,
) -> None:
    run = await workplace.ran(config(workplace, at=None))
    evaluations = events(run, "evaluation_finished")
    assert [(e["step"], e["temperature"], e["n_graded"]) for e in evaluations] == [
        (step, temperature, 6) for step in (0, 2, 3) for temperature in (0.0, None)
    ]
    stored = {e.id: e.temperature for e in run.store.reader.episodes}
    assert Pupil.made[0].asked == stored
    assert set(stored.values()) == {0.0, None}
    assert planned_episodes(run.config, run.tasks) == {"train": 6, "evaluation": 36}


async def test_without_a_trainer_the_model_is_evaluated_as_it_is_configured(workplace: Any) -> None:
    run = workplace.prepared(evolve(config(workplace, at=None), trainer=None))
    assert run.config.evaluation_temperatures == (None,)


async def test_a_resumed_run_of_before_temperatures_adds_no_evaluation_of_a_later_policy(
    workplace: Any, finish: Finish
) -> None:
    run = await workplace.ran(config(workplace, at=None))
    path = run.store.path
    for name, of in (("events", '"temperature":0.0'), ("episodes", "-T0")):
        file = path / f"{name}.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if of not in line))
    again = resume(path, workplace.outside())
    await finish(again)
    assert len(events(again, "evaluation_finished")) == 3


def test_no_temperature_a_negative_one_and_one_twice_are_refused(workplace: Any) -> None:
    for wrong in ([], [-1.0], [0.0, 1.0, -0.0]):
        with pytest.raises(InputError, match=r"evaluation\.temperatures"):
            config(workplace, at=wrong)


def test_problems_of_the_section_are_reported(workplace: Any) -> None:
    plain = {
        "tasks": {"type": "list"},
        "agent": {"type": "bench"},
        "evaluation": {"evry": 2, "tasks": {"type": "exm"}},
    }
    with pytest.raises(InputError) as caught:
        structure_config(from_plain(plain), workplace.registry)
    message = str(caught.value)
    assert "evaluation.evry" in message
    plain["evaluation"] = {"tasks": {"type": "exm"}}
    with pytest.raises(InputError, match="did you mean 'exam'"):
        structure_config(from_plain(plain), workplace.registry)
    plain["evaluation"] = {"every": 2}
    with pytest.raises(InputError, match="'tasks' is missing"):
        structure_config(from_plain(plain), workplace.registry)
    plain["evaluation"] = {"taks": {"type": "exam"}}
    with pytest.raises(InputError, match="did you mean 'tasks'"):
        structure_config(from_plain(plain), workplace.registry)


async def test_with_staleness_the_next_episodes_run_while_the_trainer_learns(
    workplace: Any, finish: Finish, bench: Any
) -> None:
    versions: list[tuple[int, int]] = []
    learning, sampled_meanwhile = asyncio.Event(), asyncio.Event()

    async def agent(context: AgentContext) -> Stop:
        step = int(context.conversation.episode_id.split("-")[0])
        versions.append((step, Pupil.made[0].policy_version))
        if step == 1:
            await learning.wait()
            sampled_meanwhile.set()
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    class Slow(Learner):
        async def step(self, batch: Batch) -> StepReport:
            learning.set()
            if batch.step == 0:
                await asyncio.wait_for(sampled_meanwhile.wait(), 60)
            return await super().step(batch)

    bench.agent = agent
    plain = config(workplace, steps=4, staleness=1, concurrency=2)
    run = workplace.prepared(evolve(plain, evaluation=None))
    run = evolve(run, parts=evolve(run.parts, trainer=Slow()))
    await finish(run)
    assert sampled_meanwhile.is_set()
    assert all(step - 1 <= version <= step for step, version in versions)
    assert {step for step, version in versions if version < step} >= {1}


async def test_without_staleness_no_episode_starts_before_the_previous_step_is_trained(
    workplace: Any, bench: Any
) -> None:
    versions: list[tuple[str, int]] = []

    async def agent(context: AgentContext) -> Stop:
        versions.append((context.conversation.episode_id, Pupil.made[0].policy_version))
        return await as_it_was_taught(context)

    bench.agent = agent
    await workplace.ran(config(workplace, every=1, concurrency=3))
    for episode_id, version in versions:
        words = episode_id.split("-")
        assert version == int(words[1] if words[0] == "evaluation" else words[0])


@pytest.mark.parametrize("schedule", ["steps", "stream"])
async def test_without_staleness_no_episode_is_sampled_beside_an_evaluation(
    workplace: Any, bench: Any, schedule: str
) -> None:
    measuring: set[str] = set()
    beside: list[str] = []

    async def agent(context: AgentContext) -> Stop:
        episode = context.conversation.episode_id
        if not episode.startswith("evaluation"):
            beside.extend([episode] * len(measuring))
            return await as_it_was_taught(context)
        measuring.add(episode)
        await asyncio.sleep(0.2)
        measuring.remove(episode)
        return await as_it_was_taught(context)

    bench.agent = agent
    await workplace.ran(config(workplace, every=1, concurrency=8, schedule=schedule))
    assert beside == []


async def test_a_run_with_staleness_is_resumed_where_it_was(workplace: Any, finish: Finish) -> None:
    run = await workplace.ran(config(workplace, steps=4, staleness=2))
    path = run.store.path
    for step in (1, 2, 3):  # killed while step 1 was learned, with step 2 complete
        shutil.rmtree(path / "checkpoints" / f"{step:05d}")
        (path / "credits" / f"{step:05d}.jsonl").unlink()
    lines = (path / "episodes.jsonl").read_text().splitlines(keepends=True)
    retained = [line for line in lines if not line.startswith('{"schema":1,"id":"3-')]
    (path / "episodes.jsonl").write_text("".join(retained))
    again = resume(path, workplace.outside())
    await finish(again)
    assert isinstance(again.parts.trainer, Learner)
    assert again.parts.trainer.seen == {s: [f"{s}-t{t}-0" for t in range(2)] for s in (1, 2, 3)}
    ids = [episode.id for episode in again.store.reader.episodes]
    assert len(ids) == len(set(ids)) == 8 + 18


async def test_a_branch_goes_on_from_the_same_episodes_weights_and_evaluations(
    workplace: Any, finish: Finish
) -> None:
    run = await workplace.ran(config(workplace))
    source = run.store.path
    plain = {**run.store.reader.manifest["config"]}
    plain["run"] = {**plain["run"], "steps": 4, "seed": 0}
    target = source.with_name("branch")
    branch_run(source, target, steps=2, config=plain)
    kept = [e.id for e in run.store.reader.episodes if e.step < 2]
    kept += [e.id for e in run.store.reader.episodes if (e.step, e.split) == (2, "evaluation")]
    assert sorted(e.id for e in RunReader(target).episodes) == sorted(kept)
    assert {e.step for e in RunReader(target).episodes if e.split == "evaluation"} == {0, 2}
    assert "outcome" not in RunReader(target).manifest
    again = resume(target, workplace.outside())
    await finish(again)
    assert Pupil.made[1].loaded == [2, 3, 4]
    assert [event["step"] for event in events(again, "evaluation_finished")] == [0, 2, 4]
    assert len(events(again, "step_finished")) == 4
    assert RunReader(target).manifest["branched_from"] == {"run": str(source), "steps": 2}


async def test_a_branch_may_measure_its_start_anew_at_other_temperatures(
    workplace: Any, finish: Finish
) -> None:
    run = await workplace.ran(config(workplace))
    plain = {**run.store.reader.manifest["config"]}
    plain["run"] = {**plain["run"], "steps": 2, "seed": 0}
    plain["evaluation"] = {**plain["evaluation"], "temperatures": [0.0, 0.3]}
    target = run.store.path.with_name("frozen")
    branch_run(run.store.path, target, steps=2, config=plain, evaluated=False)
    again = resume(target, workplace.outside())
    await finish(again)
    measured = [(e["step"], e["temperature"]) for e in events(again, "evaluation_finished")]
    assert measured[-2:] == [(2, 0.0), (2, 0.3)]
    with pytest.raises(InputError, match="no checkpoint after 4 steps"):
        branch_run(run.store.path, target.with_name("x"), steps=4, config=plain)
