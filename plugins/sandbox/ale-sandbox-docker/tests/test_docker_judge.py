"""Judges in containers of Docker's."""

import pytest

from ale_sandboxing.container_testing.judge import JudgeProbes

pytestmark = pytest.mark.engine


class TestDockerJudge(JudgeProbes):
    pass
