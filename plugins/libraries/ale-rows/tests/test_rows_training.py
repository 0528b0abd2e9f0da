"""Training on scored rows with a trainer that remembers what it was given."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError, StoreError
from ale.protocols import LLM
from ale.runs import Registry
from ale.testing.builders import turn
from ale.testing.fakes import FakePolicy
from ale.types import Batch, Episode, Message, PolicySnapshot, StepReport
from ale_rows import Trained, collect, score, train

from .conftest import tried


class Remembering:
    """Keeps the weights that it has learned from; its version is the number of steps."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[str, tuple[float, ...]]]] = []
        self.attached = 0
        self.full_at: int | None = None
        self.lazy = False

    def attach(self, llm: LLM | None) -> None:
        self.attached += 1

    async def step(self, batch: Batch) -> StepReport:
        assert batch.step == len(self.seen)
        self.seen.append(
            [
                (rollout.episode.id, credit.weights)
                for group in batch.groups
                for rollout, credit in zip(group.group.rollouts, group.credits, strict=True)
            ]
        )
        metrics = {"groups": float(len(batch.groups))}
        version = self.snapshot().version
        return StepReport(step=batch.step, policy_version=version, metrics=metrics)

    def snapshot(self) -> PolicySnapshot:
        return PolicySnapshot(version=0 if self.lazy else len(self.seen))

    def save(self, directory: Path) -> None:
        if len(self.seen) == self.full_at:
            raise OSError(28, "No space left on device")
        (directory / "seen.json").write_text(json.dumps(self.seen))

    def load(self, directory: Path) -> None:
        self.seen = json.loads((directory / "seen.json").read_text())


@pytest.fixture
def scored(tmp_path: Path, run: Any, registry: Registry) -> Path:
    """Three groups: of three, two and one rollouts."""
    tasks = ["a", "a", "a", "b", "b", "c"]
    episodes: Sequence[Episode] = [
        tried(float(i % 2), turn("Mine.", tokens=4), task_id=task, rollout=i)
        for i, task in enumerate(tasks)
    ]
    collect([run(*episodes)], tmp_path / "raw.jsonl")
    score(tmp_path / "raw.jsonl", tmp_path / "scored.jsonl", registry)
    return tmp_path / "scored.jsonl"


def trained(source: Path, trainer: Remembering, llm: Any = None, **options: Any) -> Trained:
    return asyncio.run(train(source, source.with_name("out"), trainer, llm, **options))


def test_whole_groups_are_learned_from_in_the_order_of_the_file(scored: Path) -> None:
    trainer = Remembering()
    reports: list[StepReport] = []
    done = trained(scored, trainer, groups=2, epochs=2, on_step=reports.append)
    assert trainer.attached == 1
    assert [[name for name, _ in step] for step in trainer.seen] == 2 * [
        ["0-a-0", "0-a-1", "0-a-2", "0-b-3", "0-b-4"],
        ["0-c-5"],
    ]
    # A single chunk earns the reward, and the mean over the file is a half.
    assert dict(trainer.seen[0]) == {
        "0-a-0": (-0.5,),
        "0-a-1": (0.5,),
        "0-a-2": (-0.5,),
        "0-b-3": (0.5,),
        "0-b-4": (-0.5,),
    }
    assert [report.metrics["groups"] for report in reports] == [2, 1, 2, 1]
    assert (done.steps, done.resumed) == (4, 0)
    assert done.checkpoint == scored.with_name("out") / "checkpoints" / "00003"


def test_a_file_without_rows_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "scored.jsonl").touch()
    with pytest.raises(InputError) as refused:
        trained(tmp_path / "scored.jsonl", Remembering())
    (problem,) = refused.value.problems
    assert problem.file == str(tmp_path / "scored.jsonl")
    assert (problem.message, problem.expected) == (
        "the file has no rows",
        "scored rows: what `ale data score` writes",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lazy", [False, True])
def test_the_result_tells_whether_the_policy_was_updated(scored: Path, lazy: bool) -> None:
    trainer = Remembering()
    trainer.lazy = lazy
    assert trained(scored, trainer).learned is None
    model = FakePolicy(lambda request: Message(role="assistant", content=""))
    done = trained(scored, trainer, epochs=2, llm=model)
    assert done.learned is not lazy
    assert model.policy_version == trainer.snapshot().version
    assert trained(scored, trainer, epochs=2, llm=model).learned is False


def test_rows_without_token_ids_are_refused_for_a_model_that_is_trained_by_token(
    tmp_path: Path, run: Any, registry: Registry
) -> None:
    collect([run(*(tried(1.0, turn("Mine."), rollout=i) for i in range(2)))], tmp_path / "raw")
    score(tmp_path / "raw", tmp_path / "scored", registry)
    model = FakePolicy(lambda request: Message(role="assistant", content=""))
    trainer = Remembering()
    with pytest.raises(InputError, match="no answer has token ids") as refused:
        trained(tmp_path / "scored", trainer, llm=model)
    assert refused.value.problems[0].file == str(tmp_path / "scored")
    assert not (tmp_path / "out").exists()
    # What passes them on, without a model here, may tokenise them itself.
    assert trained(tmp_path / "scored", trainer).steps == 1


class Named(FakePolicy):
    """A model that knows its tokenizer."""

    tokenizer_id = "0a1b"


def test_rows_of_another_tokenizer_are_refused_where_it_is_known(
    tmp_path: Path, run: Any, registry: Registry
) -> None:
    known = ({}, {"tokenizer": "0a1b"}, {"tokenizer": "2c3d"})
    episodes = [
        tried(1.0, turn("Mine.", tokens=4), rollout=i, metadata=m) for i, m in enumerate(known)
    ]
    collect([run(*episodes)], tmp_path / "raw.jsonl")
    score(tmp_path / "raw.jsonl", tmp_path / "scored.jsonl", registry)
    source = tmp_path / "scored.jsonl"
    model = Named(lambda request: Message(role="assistant", content=""))
    with pytest.raises(InputError) as refused:
        trained(source, Remembering(), llm=model)
    (problem,) = refused.value.problems
    assert (problem.file, problem.line) == (str(source), 3)
    assert problem.message.startswith("sampled with the tokenizer 2c3d, and the model's is 0a1b")
    assert not (tmp_path / "out").exists()
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:2]))
    assert trained(source, Remembering(), llm=model).steps == 1


def test_it_resumes_after_the_newest_checkpoint(scored: Path) -> None:
    one, other = Remembering(), Remembering()
    trained(scored, one, groups=1)
    done = trained(scored, other, groups=1, epochs=2)
    assert (done.steps, done.resumed) == (6, 3)
    assert other.seen[:3] == json.loads(json.dumps(one.seen))
    assert noted(scored) == [0, 1, 2, 3, 4, 5]


def noted(source: Path) -> list[int]:
    """The steps that ``events.jsonl`` has a line of."""
    events = (source.with_name("out") / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in events]


@pytest.mark.parametrize("cut_off", ["", '{"event":"step_fin'])
def test_a_training_that_was_killed_at_a_checkpoint_has_one_line_of_each_step(
    scored: Path, cut_off: str
) -> None:
    class Killed(Remembering):
        def save(self, directory: Path) -> None:
            if len(self.seen) == 3:
                raise KeyboardInterrupt
            super().save(directory)

    with pytest.raises(KeyboardInterrupt):
        trained(scored, Killed(), groups=1, epochs=2)
    assert noted(scored) == [0, 1, 2], "a step has its line before its checkpoint"
    with (scored.with_name("out") / "events.jsonl").open("a") as events:
        events.write(cut_off)
    assert trained(scored, Remembering(), groups=1, epochs=2).resumed == 2
    assert noted(scored) == [0, 1, 2, 3, 4, 5]


def test_a_damaged_line_of_an_event_is_named_before_anything_is_trained(scored: Path) -> None:
    trained(scored, Remembering(), groups=1)
    events = scored.with_name("out") / "events.jsonl"
    events.write_text(events.read_text() + "{}\n")
    with pytest.raises(StoreError, match=r"events\.jsonl:4 can't be read: .*`step`"):
        trained(scored, Remembering(), groups=1, epochs=2)


def test_older_checkpoints_are_removed_and_a_resume_finds_the_newest(scored: Path) -> None:
    folder = scored.with_name("out") / "checkpoints"
    (folder / ".00001.123.partial").mkdir(parents=True)
    trained(scored, Remembering(), groups=1, epochs=2, keep=1, keep_every=4)
    assert sorted(path.name for path in folder.iterdir()) == ["00003", "00005"]
    again = trained(scored, Remembering(), groups=1, epochs=3, keep=2, keep_every=4)
    assert (again.resumed, again.steps) == (6, 9)
    assert sorted(path.name for path in folder.iterdir()) == ["00003", "00007", "00008"]


def test_a_folder_of_another_training_is_refused(scored: Path) -> None:
    trained(scored, Remembering(), groups=1, epochs=2)
    with pytest.raises(InputError, match="started with 1 group a step"):
        trained(scored, Remembering(), groups=2)
    with pytest.raises(InputError, match="6 steps are done, more than the 3 of this call"):
        trained(scored, Remembering(), groups=1)
    lines = scored.read_text().splitlines(keepends=True)
    scored.write_text("".join(lines[1:]))
    with pytest.raises(InputError, match="started on other rows"):
        trained(scored, Remembering(), groups=1, epochs=2)


def test_a_training_is_not_resumed_with_other_options(scored: Path) -> None:
    slow, fast = ({"trainer": {"lr": lr, "betas": (0.9, 0.99)}} for lr in (1e-4, 1e-3))
    trained(scored, Remembering(), groups=1, options=slow)
    assert trained(scored, Remembering(), groups=1, options=slow, epochs=2).resumed == 3
    with pytest.raises(InputError, match=r"with trainer\.lr 0\.0001, which is 0\.001 now"):
        trained(scored, Remembering(), groups=1, options=fast, epochs=3)
    # As one that an earlier version began.
    path = scored.with_name("out") / "training.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "options": None}))
    assert trained(scored, Remembering(), groups=1, options=fast, epochs=3).resumed == 6


@pytest.mark.parametrize("stored", ["manifest.json", "checkpoints/00000/seen.json"])
def test_the_directory_of_a_run_is_refused(scored: Path, stored: str) -> None:
    out = scored.with_name("out")
    (out / stored).parent.mkdir(parents=True)
    (out / stored).write_text("[[]]")
    with pytest.raises(InputError, match="a run or another training is stored there"):
        trained(scored, Remembering(), groups=1)
    assert [each.name for each in out.iterdir()] == [stored.partition("/")[0]]


def test_a_training_that_did_no_step_can_begin_again_on_other_rows(scored: Path) -> None:
    trainer = Remembering()
    trainer.full_at = 1
    with pytest.raises(StoreError, match="No space left"):
        trained(scored, trainer, groups=1)
    scored.write_text("".join(scored.read_text().splitlines(keepends=True)[1:]))
    assert trained(scored, Remembering(), groups=2).resumed == 0
    with pytest.raises(InputError, match="started with 2 groups a step"):
        trained(scored, Remembering(), groups=1)


def test_checkpoints_are_written_atomically(scored: Path) -> None:
    trainer = Remembering()
    trainer.full_at = 2
    with pytest.raises(StoreError, match="No space left"):
        trained(scored, trainer, groups=1)
    assert trained(scored, Remembering(), groups=1).resumed == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from ale.files import replacing

with replacing(Path(sys.argv[1])) as partial:
    partial.mkdir()
    (partial / "weights").write_bytes(bytes(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_checkpoint_that_a_killed_call_left_unfinished_is_removed(scored: Path) -> None:
    target = scored.with_name("out") / "checkpoints" / "00000"
    trainer = Remembering()
    trainer.full_at = 1
    with pytest.raises(StoreError, match="No space left"):
        trained(scored, trainer, groups=1)
    subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False)
    assert [each.suffix for each in target.parent.iterdir()] == [".partial"]
    trained(scored, Remembering(), groups=1)
    assert sorted(each.name for each in target.parent.iterdir()) == ["00000", "00001", "00002"]


def test_a_second_call_in_the_folder_is_refused(scored: Path) -> None:
    class Twice(Remembering):
        def save(self, directory: Path) -> None:
            with pytest.raises(StoreError, match=rf"out is in use by process {os.getpid()}"):
                trained_again()
            super().save(directory)

    def trained_again() -> None:
        work = train(scored, scored.with_name("out"), Remembering(), groups=1)
        with ThreadPoolExecutor() as pool:
            pool.submit(asyncio.run, work).result()

    assert trained(scored, Twice(), groups=1).steps == 3
    assert len((scored.with_name("out") / "events.jsonl").read_text().splitlines()) == 3


def test_rows_without_credit_are_refused(scored: Path) -> None:
    with pytest.raises(InputError, match="expected 'scored'"):
        trained(scored.with_name("raw.jsonl"), Remembering())
    assert not scored.with_name("out").exists()
