"""What is printed and stored, and how a run is interrupted."""

import re
import signal
from typing import Any

import pytest

GOLDEN = """\
Loading MBPP problems...
Using vLLM at URL
  Start vLLM with: vllm serve scripted

Loaded 4 problems

ART Training (job: RUN)
============================================================
Model: scripted
Problems: 4
Steps: 2
Batch size: 4
Training: none: nothing sends weights to this server; rollouts are kept for export
============================================================

W&B run: none

Starting training loop...
------------------------------------------------------------
  Step 0: reward=0.500, success=50.0% (2/4), time=SECONDSs
  Step 1: reward=0.500, success=50.0% (2/4), time=SECONDSs
------------------------------------------------------------

Training complete!
  Total trajectories: 8
  Successful: 4 (50.0%)
  Steps completed: 2

"""


def normal(text: str, url: str) -> str:
    """Without what differs from run to run, and without the warning about missing token ids."""
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}-art", "RUN", text.replace(url, "URL"))
    text = re.sub(r"time=\d+\.\d", "time=SECONDS", text)
    return "".join(line for line in text.splitlines(True) if not line.startswith("WARNING"))


def flags(url: str, *more: str) -> tuple[str, ...]:
    return ("--base-url", url, "--model", "scripted", "--dry-run", "--num-steps", "2", *more)


def asked(server: Any) -> int:
    """How many completions were asked for."""
    return sum(one["method"] == "POST" for one in server.requests())


def test_the_output_has_a_header_a_line_per_step_and_totals(
    desk: Any, serve: Any, script: Any
) -> None:
    server = serve(script())
    done = desk.train(*flags(server.url))
    assert done.code == 0, done.text
    assert normal(done.err, server.url) == GOLDEN
    assert "stored in\n  runs/" in done.out


def test_a_repaired_attempt_is_paid_and_a_failed_one_is_not(
    desk: Any, serve: Any, script: Any
) -> None:
    done = desk.train(*flags(serve(script(failing=1)).url, "--num-steps", "1"))
    assert done.code == 0, done.text
    assert "reward=1.000, success=100.0% (4/4)" in done.err
    repaired = [one for one in desk.episodes if len(one["trajectory"]["turns"]) == 2]
    assert len(repaired) == 2
    credits = {row["episode_id"]: row["credit"] for row in desk.credits}
    assert credits[repaired[0]["id"]]["rewards"] == [0.0, 1.5]
    assert {chunk["kind"] for row in desk.credits for chunk in row["chunks"]} == {"attempt"}


def test_an_infrastructure_failure_is_broken_and_no_reward_of_0(
    desk: Any, serve: Any, script: Any
) -> None:
    made = script()
    broken = next(one for one in made["conversations"] if "601" in one["match"])
    broken["steps"] = [{"fault": 400, "message": "out of order"}]
    done = desk.train(*flags(serve(made).url, "--num-steps", "1"))
    assert done.code == 3, done.text
    # The one that was sampled in its place broke too.
    assert "reward=0.667, success=66.7% (2/3), broken=2" in done.err
    assert "  Broken, without a reward: 2\n" in done.err
    broke = [one["task_id"] for one in desk.episodes if one["reward"] is None]
    assert len(broke) == 2
    assert all(task.endswith("601") for task in broke)


def test_a_server_that_is_not_there_is_named_and_nothing_is_run(desk: Any) -> None:
    done = desk.train(*flags("http://127.0.0.1:9/v1"))
    assert done.code == 2
    assert "Start vLLM with: vllm serve scripted" in done.err
    assert "127.0.0.1:9" in done.err
    assert not (desk.folder / "runs").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_batch_and_prints_the_totals(
    desk: Any, serve: Any, script: Any, ended: Any, number: signal.Signals
) -> None:
    server = serve(script(failing=0, delay_s=1.5))
    running = desk.start(*flags(server.url, "--num-steps", "9"))
    done = ended(running, number, when=lambda: asked(server) == 4)
    assert done.code == 128 + number, done.text
    line = r"  Step 0: reward=1.000, success=100.0% \(4/4\), time=[\d.]+s, unfinished\n"
    assert re.search(line, done.err)
    assert "Training drained\n  Total trajectories: 4\n  Successful: 4 (100.0%)\n" in done.err
    assert [episode["step"] for episode in desk.episodes] == [0] * 4
    assert desk.left_behind() == []


def test_a_second_signal_cancels_the_batch(desk: Any, serve: Any, script: Any, ended: Any) -> None:
    server = serve(script(delay_s=60))
    both = (signal.SIGTERM, signal.SIGINT)
    done = ended(desk.start(*flags(server.url)), *both, when=lambda: asked(server) == 4)
    assert done.code == 143, done.text
    assert "Training cancelled\n  Total trajectories: 0\n" in done.err
    assert desk.left_behind() == []
