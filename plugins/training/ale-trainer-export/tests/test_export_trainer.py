"""Real files; what is in them after each step, each repetition and each crash."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import AleError, InputError, StoreError
from ale.plugin import BuildContext
from ale.protocols import Trainer
from ale.testing.builders import episode, group, turn
from ale.testing.trainer import TrainerContract, credited_batch, credited_group
from ale.types import Batch, Chunk, Credit, CreditedGroup, Message, PolicySnapshot, Span
from ale_trainer_export.options import ExportOptions
from ale_trainer_export.plugin import ale_trainers


def build(folder: Path, run_id: str = "run-1", **fields: Any) -> Trainer:
    component, _ = ale_trainers()
    context = BuildContext(run_id=run_id, run_directory=folder)
    return component.build(ExportOptions(**fields), context)


def read(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "export" / "rows.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


class TestExport(TrainerContract):
    @pytest.fixture
    def make_trainer(self, tmp_path: Path) -> Callable[[], Trainer]:
        return lambda: build(tmp_path)


class TestExportWithoutZeros(TrainerContract):
    @pytest.fixture
    def make_trainer(self, tmp_path: Path) -> Callable[[], Trainer]:
        return lambda: build(tmp_path, min_abs_weight=1e-9)


class TestNone(TrainerContract):
    @pytest.fixture
    def make_trainer(self) -> Callable[[], Trainer]:
        return lambda: ale_trainers()[1].build(None, BuildContext())


async def test_a_dry_run_says_so_and_writes_nothing(tmp_path: Path) -> None:
    _, component = ale_trainers()
    report = await component.build(None, BuildContext(run_directory=tmp_path)).step(
        credited_batch(0)
    )
    assert report.metrics == {"dry_run": 1.0, "episodes": 4.0}
    assert list(tmp_path.iterdir()) == []


async def test_a_row_holds_the_conversation_the_answer_and_what_each_part_is_worth(
    tmp_path: Path,
) -> None:
    await build(tmp_path).step(credited_batch(4))
    row = read(tmp_path)[1]
    messages = row.pop("messages")
    message = row.pop("message")
    assert row == {
        "schema": 1,
        "run": "run-1",
        "step": 4,
        "episode": "4-mixed-0",
        "task": "mixed",
        "rollout": 0,
        "turn": 1,
        "reward": 1.0,
        "scheme": "demo",
        "skipped": None,
        "model": "",
        "finish_reason": "tool_calls",
        "chunks": [
            {
                "index": 1,
                "kind": "turn",
                "text": [0, 18],
                "calls": [0, 1],
                "tokens": [0, 6],
                "chunk_reward": 0.0,
                "chunk_return": 1.0,
                "weight": 0.5,
            }
        ],
        "tokens": {
            "prompt_ids": [1, 2, 3],
            "ids": [10, 11, 12, 13, 14, 15],
            "logprobs": [-0.5] * 6,
            "policy_versions": [0] * 6,
            "weights": [0.5] * 6,
        },
    }
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool"]
    assert messages[1]["content"] == "Do it."
    assert message["role"] == "assistant"
    assert message["tool_calls"][0]["arguments"] == '{"command": "ls"}'


async def test_the_metrics_of_a_step(tmp_path: Path) -> None:
    report = await build(tmp_path).step(credited_batch(0))
    assert report.metrics == {
        "rows": 8.0,
        "rows_left_out": 0.0,
        "episodes": 4.0,
        "mean_reward": 0.25,
        "mean_abs_weight": (0.25 + 0.5 + 1.0 + 0.5 + 1.0) / 8,
        "zero_weight_fraction": 3 / 8,
    }


async def test_rows_without_weight_may_be_left_out_and_are_counted(tmp_path: Path) -> None:
    report = await build(tmp_path, min_abs_weight=1e-9).step(credited_batch(0))
    assert (report.metrics["rows"], report.metrics["rows_left_out"]) == (5.0, 3.0)
    assert report.metrics["zero_weight_fraction"] == 3 / 8
    assert {row["task"] for row in read(tmp_path)} == {"mixed"}


async def test_a_mean_over_nothing_is_not_reported(tmp_path: Path) -> None:
    report = await build(tmp_path).step(Batch(step=0, groups=()))
    assert report.metrics == {"rows": 0.0, "rows_left_out": 0.0, "episodes": 0.0}


async def test_the_policy_is_never_changed(tmp_path: Path) -> None:
    trainer = build(tmp_path)
    report = await trainer.step(credited_batch(0))
    assert report.policy_version == 0
    assert trainer.snapshot() == PolicySnapshot(version=0, path=None)


def one_turn(spans: list[tuple[float, Span]], *, tokens: int | None) -> CreditedGroup:
    """One turn cut into one chunk per span, each with its weight."""
    made = episode(1.0, turn("abcdef", tokens=tokens))
    chunks = [Chunk(index=i, kind="cut", spans=(span,)) for i, (_, span) in enumerate(spans)]
    weights = tuple(weight for weight, _ in spans)
    credit = Credit(
        episode_id=made.id, scheme="s", rewards=weights, returns=weights, weights=weights
    )
    return CreditedGroup(group=group((made, chunks)), credits=(credit,))


async def test_each_token_has_the_weight_of_its_chunk(tmp_path: Path) -> None:
    cut = one_turn(
        [
            (0.5, Span(turn=0, text=(0, 2), calls=(0, 0), tokens=(0, 1))),
            (-1.0, Span(turn=0, text=(2, 6), calls=(0, 0), tokens=(1, 4))),
        ],
        tokens=4,
    )
    await build(tmp_path).step(Batch(step=0, groups=(cut,)))
    [row] = read(tmp_path)
    assert row["tokens"]["weights"] == [0.5, -1.0, -1.0, -1.0]
    assert [(part["text"], part["weight"]) for part in row["chunks"]] == [
        ([0, 2], 0.5),
        ([2, 6], -1.0),
    ]


@pytest.mark.parametrize("ranges", [(None, None), ((0, 1), (2, 4)), ((0, 1), (1, 3))])
async def test_tokens_whose_chunk_is_not_known_get_no_weight(
    tmp_path: Path, ranges: tuple[tuple[int, int] | None, tuple[int, int] | None]
) -> None:
    first, second = ranges
    cut = one_turn(
        [
            (0.5, Span(turn=0, text=(0, 2), calls=(0, 0), tokens=first)),
            (-1.0, Span(turn=0, text=(2, 6), calls=(0, 0), tokens=second)),
        ],
        tokens=4,
    )
    await build(tmp_path).step(Batch(step=0, groups=(cut,)))
    [row] = read(tmp_path)
    assert row["tokens"]["weights"] is None
    assert row["tokens"]["ids"] == [10, 11, 12, 13]


async def test_where_no_tokens_were_recorded_none_are_written(tmp_path: Path) -> None:
    cut = one_turn([(1.0, Span(turn=0, text=(0, 6), calls=(0, 0)))], tokens=None)
    await build(tmp_path).step(Batch(step=0, groups=(cut,)))
    assert read(tmp_path)[0]["tokens"] is None


async def test_the_conversation_starts_anew_after_a_compaction(tmp_path: Path) -> None:
    summary = Message(role="user", content="So far: nothing.")
    made = episode(
        1.0, turn("one", fresh_context=True), turn("two", fresh_context=True, prompt=[summary])
    )
    chunk = Chunk(index=0, kind="cut", spans=(Span(turn=1, text=(0, 3), calls=(0, 0)),))
    credit = Credit(episode_id=made.id, scheme="s", rewards=(1,), returns=(1,), weights=(1,))
    credited = CreditedGroup(group=group((made, [chunk])), credits=(credit,))
    await build(tmp_path).step(Batch(step=0, groups=(credited,)))
    [row] = read(tmp_path)  # turn 0 has no part of a chunk
    assert [m["content"] for m in row["messages"]] == ["So far: nothing."]


def steps(folder: Path) -> list[int]:
    return [row["step"] for row in read(folder)]


async def test_a_repeated_step_replaces_its_rows(tmp_path: Path) -> None:
    trainer = build(tmp_path)
    for step in (0, 1, 1):
        await trainer.step(credited_batch(step))
    assert steps(tmp_path) == [0] * 8 + [1] * 8


async def test_going_back_to_an_earlier_step_cuts_off_the_later_ones(tmp_path: Path) -> None:
    trainer = build(tmp_path)
    for step in (0, 1, 2):
        await trainer.step(credited_batch(step))
    checkpointed = build(tmp_path)
    await checkpointed.step(credited_batch(1))
    assert steps(tmp_path) == [0] * 8 + [1] * 8


@pytest.mark.parametrize("left", [1, 20, 100, 2000, 5000])
async def test_the_rows_of_an_interrupted_step_are_replaced(tmp_path: Path, left: int) -> None:
    await build(tmp_path).step(credited_batch(0))
    file = tmp_path / "export" / "rows.jsonl"
    whole = file.stat().st_size
    await build(tmp_path).step(credited_batch(1))
    os.truncate(file, whole + left)  # as a kill in the middle of the write would
    await build(tmp_path).step(credited_batch(1))
    assert steps(tmp_path) == [0] * 8 + [1] * 8


ENDLESS = """
import asyncio, sys
from pathlib import Path
from ale.testing.trainer import credited_group
from ale.types import Batch
from ale_trainer_export.trainer import ExportTrainer
trainer = ExportTrainer(Path(sys.argv[1]), run_id="run-1")
groups = tuple(credited_group(f"t{i}", [(1.0, (1.0,) * 20)]) for i in range(50))
for step in range(1_000_000):
    asyncio.run(trainer.step(Batch(step=step, groups=groups)))
    print(step, flush=True)
"""


def test_a_killed_process_leaves_nothing_twice(tmp_path: Path) -> None:
    file = tmp_path / "export" / "rows.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(file)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(3):
        last = int(process.stdout.readline())
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    rest = process.communicate()[0].split()
    again = int(rest[-1]) + 1 if rest else last + 1
    asyncio.run(build(tmp_path).step(credited_batch(again)))
    written = [(row["step"], row["episode"], row["turn"]) for row in read(tmp_path)]
    assert len(written) == len(set(written)) == again * 1000 + 8


async def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    other = b'{"schema":1,"run":"run-2"'
    for number, content in enumerate(
        (b'{"a": 1}\n', b"notes without an end", other, other + b',"x":"\xff"}\n')
    ):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(content)
        with pytest.raises(StoreError, match="choose another path"):
            await build(tmp_path, path=file).step(credited_batch(0))
        assert file.read_bytes() == content


async def test_rows_of_another_run_are_left_alone(tmp_path: Path) -> None:
    await build(tmp_path).step(credited_batch(0))
    with pytest.raises(StoreError, match=r"rows\.jsonl:1: a row of run 'run-1'"):
        await build(tmp_path, run_id="run-2").step(credited_batch(0))
    assert len(read(tmp_path)) == 8


async def test_credits_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    fine = credited_group("a", [(1.0, (1.0, 2.0))])
    [credit] = fine.credits
    wrong = {
        "2 chunks, and its credit": {"weights": (1.0,)},
        "given for episode": {"episode_id": "0-b-0"},
        "not finite": {"weights": (1.0, float("nan"))},
    }
    for message, change in wrong.items():
        fields = {name: getattr(credit, name) for name in ("episode_id", "scheme", "rewards")}
        fields |= {"returns": credit.returns, "weights": credit.weights, **change}
        group_ = CreditedGroup(group=fine.group, credits=(Credit(**fields),))
        with pytest.raises(AleError, match=message):
            await build(tmp_path).step(Batch(step=0, groups=(fine, group_)))
    with pytest.raises(AleError, match="0 credits for 1 rollouts"):
        await build(tmp_path).step(
            Batch(step=0, groups=(CreditedGroup(group=fine.group, credits=()),))
        )
    assert not (tmp_path / "export").exists()


def test_without_a_run_directory_a_path_is_needed() -> None:
    component, _ = ale_trainers()
    with pytest.raises(InputError, match=r"trainer\.path: needed where there is no run directory"):
        component.build(ExportOptions(), BuildContext())


def test_writing_rows_does_not_block_the_event_loop(tmp_path: Path) -> None:
    async def ticks() -> int:
        trainer = build(tmp_path)
        groups = tuple(credited_group(f"t{i}", [(1.0, (1.0,) * 40)]) for i in range(100))
        step = asyncio.create_task(trainer.step(Batch(step=0, groups=groups)))
        n = 0
        while not step.done():
            await asyncio.sleep(0.001)
            n += 1
        return n

    assert asyncio.run(ticks()) >= 3
