"""Judges in containers of Podman's."""

import pytest

from ale_sandboxing.container_testing.judge import JudgeProbes

pytestmark = pytest.mark.engine


class TestPodmanJudge(JudgeProbes):
    pass
