"""Rows that are longer than the model's context."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale_trainer_trl.learning import DpoTraining, GrpoTraining, train

Write = Callable[..., Path]
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")


@pytest.fixture
def short(base: Path, tmp_path: Path) -> Path:
    """The model with a context of 40 tokens."""
    model = shutil.copytree(base, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 40}))
    return model


def test_a_pair_beyond_the_context_is_left_out_and_counted(
    short: Path, tmp_path: Path, write_rows: Write
) -> None:
    pairs = [{"prompt": "go" * n, "chosen": "yes", "rejected": "no"} for n in (1, 40)]
    training = DpoTraining(
        model_name_or_path=str(short),
        dataset_path=write_rows(pairs),
        output_dir=tmp_path / "out",
        device="cpu",
    )
    trained = train(training)
    assert trained.rows == 1
    assert trained.summary().startswith(
        "dpo: 1 update on 1 row; 1 left out: longer than the model's context\n"
    )


@pytest.mark.parametrize(
    "long", ["go" * 15, [{"role": "user", "content": "go" * 14}]], ids=["text", "messages"]
)
def test_a_prompt_without_room_for_the_completion_is_refused(
    short: Path, tmp_path: Path, write_rows: Write, long: Any
) -> None:
    (tmp_path / "reward.py").write_text("def f(completions, **columns):\n    return [0, 1]\n")
    training = GrpoTraining(
        model_name_or_path=str(short),
        dataset_path=write_rows([{"prompt": long}]),
        output_dir=tmp_path / "out",
        reward=f"{tmp_path / 'reward.py'}:f",
        batch_size=2,
        generations=2,
        max_completion_length=11,
        device="cpu",
    )
    with pytest.raises(InputError, match=r"dpo\.jsonl:1: a prompt of 3\d tokens and max_compl"):
        train(training)
