"""The contract kit of language models, on a script, on a traced script and on a recorded run.

A scripted model does not cut its lines to ``max_tokens``: here every line is one token long.
"""

from pathlib import Path

import msgspec
import pytest

from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.testing.llm import LLMContract
from ale.types import Completion, Episode, Message, TokenTrace, Trajectory, Turn, Usage
from ale_llm_scripted.options import ScriptedOptions
from ale_llm_scripted.plugin import ale_llms


def model(**options: object) -> LLM:
    (component,) = ale_llms()
    return component.build(ScriptedOptions(**options), BuildContext())  # type: ignore[arg-type]


class TestPlayed(LLMContract):
    @pytest.fixture
    def llm(self, tmp_path: Path) -> LLM:
        path = tmp_path / "script.yaml"
        path.write_text("default: [{text: Paris., tokens: 1}, {text: '42.', tokens: 1}]")
        return model(script=path)

    @pytest.fixture
    def known_answer(self) -> str:
        return "Paris."


class TestTraced(LLMContract):
    @pytest.fixture
    def llm(self, tmp_path: Path) -> LLM:
        path = tmp_path / "script.yaml"
        path.write_text("tokens: true\ndefault: ['']")
        return model(script=path)


class TestReplayed(LLMContract):
    @pytest.fixture
    def llm(self, tmp_path: Path) -> LLM:
        answer = Completion(
            message=Message(role="assistant", content="Paris."),
            usage=Usage(prompt_tokens=3, completion_tokens=1),
            tokens=TokenTrace(
                prompt_ids=(1, 2, 3), output_ids=(7,), logprobs=(-0.5,), policy_versions=(4,)
            ),
        )
        turns = (Turn(completion=answer),) * 101  # the kit's longest conversation has as many
        episode = Episode(
            id="0-demo-0", task_id="demo", reward=1.0, trajectory=Trajectory(turns=turns)
        )
        (tmp_path / "episodes.jsonl").write_bytes(msgspec.json.encode(episode) + b"\n")
        return model(replay=tmp_path, at_end="error")

    @pytest.fixture
    def known_answer(self) -> str:
        return "Paris."
