"""Every source keeps the contract."""

from pathlib import Path

import pytest

from ale.protocols import TaskSource
from ale.testing.tasks import TaskSourceContract
from ale_tasks_benchmarks.code import humaneval, mbpp
from ale_tasks_benchmarks.jsonl import jsonl
from ale_tasks_benchmarks.maths import gsm8k, maths
from ale_tasks_benchmarks.options import (
    Gsm8kOptions,
    HumanEvalOptions,
    JsonlOptions,
    MathOptions,
    MbppOptions,
)

PLACE = "file:answer.txt"


class TestMbpp(TaskSourceContract):
    @pytest.fixture
    def source(self) -> TaskSource:
        return mbpp(MbppOptions(sample=True, split="all", answer=PLACE))

    @pytest.fixture
    def broken_source(self, tmp_path: Path) -> TaskSource:
        file = tmp_path / "mbpp.jsonl"
        file.write_text(
            '{"task_id": 11, "text": "a", "code": "a", "test_list": 1}\n{"task_id": 12}\n'
        )
        return mbpp(MbppOptions(path=file))


class TestHumanEval(TaskSourceContract):
    @pytest.fixture
    def source(self) -> TaskSource:
        return humaneval(HumanEvalOptions(sample=True))

    @pytest.fixture
    def broken_source(self, tmp_path: Path) -> TaskSource:
        file = tmp_path / "HumanEval.jsonl"
        file.write_text('{"task_id": "a/1"}\n{"prompt": "def ("}\n')
        return humaneval(HumanEvalOptions(path=file))


class TestGsm8k(TaskSourceContract):
    @pytest.fixture
    def source(self) -> TaskSource:
        return gsm8k(Gsm8kOptions(sample=True, answer=PLACE))

    @pytest.fixture
    def broken_source(self, tmp_path: Path) -> TaskSource:
        file = tmp_path / "test.jsonl"
        file.write_text('{"question": "a", "answer": "It is 3."}\n\n{"question": "b"}\n')
        return gsm8k(Gsm8kOptions(path=tmp_path))


class TestMath(TaskSourceContract):
    @pytest.fixture
    def source(self) -> TaskSource:
        return maths(MathOptions(sample=True, answer=PLACE))

    @pytest.fixture
    def broken_source(self, tmp_path: Path) -> TaskSource:
        file = tmp_path / "all.jsonl"
        file.write_text('{"problem": "a", "solution": "b", "level": "Level 1", "type": "c"}\n')
        return maths(MathOptions(path=file))


class TestJsonl(TaskSourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> TaskSource:
        file = tmp_path / "mine.jsonl"
        file.write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "d"}\n')
        return jsonl(JsonlOptions(path=file, answer=PLACE))

    @pytest.fixture
    def broken_source(self, tmp_path: Path) -> TaskSource:
        file = tmp_path / "mine.jsonl"
        file.write_text('{"prompt": "a", "answr": "b"}\n["c"]\n')
        return jsonl(JsonlOptions(path=file))
