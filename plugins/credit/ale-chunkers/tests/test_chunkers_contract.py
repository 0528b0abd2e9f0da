import pytest

from ale.plugin import BuildContext
from ale.protocols import Chunker
from ale.testing.chunker import ChunkerContract
from ale_chunkers.options import AttemptOptions, InteractionOptions
from ale_chunkers.plugin import ale_chunkers
from ale_chunkers.turns import AttemptChunker, InteractionChunker

NAMES = (
    "interaction",
    "message",
    "tool-call",
    "micro-step",
    "step-tags",
    "attempt",
    "phase",
    "ale-lite",
    "token",
    "trajectory",
)


def test_the_package_registers_these_chunkers() -> None:
    assert tuple(component.name for component in ale_chunkers()) == NAMES


@pytest.mark.parametrize("name", NAMES)
class TestEveryChunker(ChunkerContract):
    @pytest.fixture
    def chunker(self, name: str) -> Chunker:
        component = next(one for one in ale_chunkers() if one.name == name)
        options = None if component.options is None else component.options()
        return component.build(options, BuildContext())


class TestAttemptsByATool(ChunkerContract):
    @pytest.fixture
    def chunker(self) -> Chunker:
        return AttemptChunker(AttemptOptions(tool="bash"))


class TestInteractionsWithTurnsOfTheirOwn(ChunkerContract):
    @pytest.fixture
    def chunker(self) -> Chunker:
        return InteractionChunker(InteractionOptions(turns_without_calls="own"))
