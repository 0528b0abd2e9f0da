"""The launcher ``slurm`` on a real Slurm of three nodes."""

import pytest

from ale.protocols import Launcher
from ale.testing.launcher import LauncherContract
from ale_slurm.launcher import SlurmLauncher
from ale_slurm.options import SlurmOptions


@pytest.mark.usefixtures("cluster")
class TestSlurm(LauncherContract):
    @pytest.fixture
    def launcher(self) -> Launcher:
        return SlurmLauncher(SlurmOptions(grace_s=1))
