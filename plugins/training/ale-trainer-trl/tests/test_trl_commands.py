"""`ale train` as a user sees it: what it says, and how it is stopped."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import ale_trainer_trl.learning
from ale.errors import InputError
from ale_trainer_trl import commands
from ale_trainer_trl.learning import Progress

# PEFT asks transformers under a name that is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")


@pytest.fixture
def config(lab: Any, tmp_path: Path) -> Path:
    """A configuration of 12 updates, with its model and its rows."""
    lab.make_model().save_pretrained(tmp_path / "model")
    lab.make_tokenizer().save_pretrained(tmp_path / "model")
    rows = [{"prompt": f"{i} or {i}?", "chosen": "yes", "rejected": "no"} for i in range(24)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "model_name_or_path": str(tmp_path / "model"),
        "dataset_path": str(tmp_path / "rows.jsonl"),
        "output_dir": str(tmp_path / "out"),
        "learning_rate": 1.0e-3,
        "batch_size": 2,
        "log_steps": 4,
        "device": "cpu",
        "lora": {"r": 2},
    }
    file = tmp_path / "dpo.yaml"
    file.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items()))
    return file


def typed(*arguments: object) -> Result:
    return CliRunner().invoke(commands.train, list(map(str, arguments)), catch_exceptions=False)


def test_progress_goes_to_standard_error_and_the_result_to_standard_output(
    config: Path, tmp_path: Path
) -> None:
    done = typed("dpo", config)
    assert done.exit_code == 0, done.output
    first, *updates = done.stderr.splitlines()
    assert first == f"training {tmp_path / 'model'} on {tmp_path / 'rows.jsonl'}"
    assert [line.split()[1] for line in updates] == ["1/12", "4/12", "8/12", "12/12"]
    assert all("loss" in line and "rewards/margins" in line for line in updates)
    assert done.stdout == f"dpo: 12 updates on 24 rows\nadapter in {tmp_path / 'out'}\n"
    assert not (tmp_path / "out" / "work").exists()
    again = typed("dpo", config)
    assert again.stdout == done.stdout
    assert again.stderr.splitlines()[1:] == [
        f"already trained; nothing to do (delete {tmp_path / 'out'} or set resume: never to train "
        "again)"
    ]


def test_a_typing_error_is_named_with_its_line_and_nothing_is_started(
    config: Path, tmp_path: Path
) -> None:
    config.write_text(config.read_text().replace("batch_size", "batchsize"))
    with pytest.raises(InputError) as caught:
        typed("dpo", config, "--set", "lora.rank=4")
    message = str(caught.value)
    assert "dpo.yaml:5: batchsize: unknown option" in message
    assert "did you mean 'batch_size'?" in message
    assert "--set: lora.rank: unknown option" in message
    assert not (tmp_path / "out").exists()


def test_grpo_needs_a_reward(config: Path) -> None:
    with pytest.raises(InputError, match="'reward' is missing"):
        typed("grpo", config)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Whatever a command makes of the signals is undone."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_after_the_update_and_the_same_command_resumes(
    config: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    train = ale_trainer_trl.learning.train

    def interrupted(training: Any, *, progress: Callable[[Progress], None], **more: Any) -> Any:
        def listener(each: Progress) -> None:
            progress(each)
            if each.step == 5:
                os.kill(os.getpid(), number)

        return train(training, progress=listener, **more)

    with monkeypatch.context() as patched:
        patched.setattr(ale_trainer_trl.learning, "train", interrupted)
        cut = typed("dpo", config)
    assert cut.exit_code == status
    assert cut.stderr.endswith(
        "stopped after update 6 of 12; the same command resumes from there\n"
    )
    done = typed("dpo", config)
    assert done.exit_code == 0
    assert "dpo: 12 updates (resumed from 6) on 24 rows" in done.stdout
    assert [line.split()[1] for line in done.stderr.splitlines()[1:]] == ["8/12", "12/12"]


def start(config: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ale", "train", "dpo", str(config), *more]
    environ: Mapping[str, str] = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.long
def test_ctrl_c_in_a_terminal_writes_a_checkpoint(config: Path, tmp_path: Path) -> None:
    reached = 0
    for _ in range(2):
        with start(config, "--set", "epochs=100000", "--set", "log_steps=1") as process:
            assert process.stderr is not None
            lines = iter(process.stderr)
            first = next(line for line in lines if line.startswith("step "))
            process.send_signal(signal.SIGINT)
            rest = list(lines)
            assert process.wait() == 130, rest
        assert int(first.split()[1].partition("/")[0]) == reached + 1
        assert any("once more to stop at once" in line for line in rest)
        assert rest[-1].endswith("the same command resumes from there\n")
        reached = int(rest[-1].split()[3])
    assert (tmp_path / "out" / f"checkpoint-{reached}" / "adapter_model.safetensors").exists()
