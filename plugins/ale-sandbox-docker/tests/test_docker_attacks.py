"""An attacker in a container of Docker's: Debian with Python; busybox in the long tests."""

import pytest

from ale_sandbox_container.testing.attacks import AttackProbes
from ale_sandbox_container.testing.commands import CommandProbes

pytestmark = pytest.mark.engine


class TestInDebian(AttackProbes, CommandProbes):
    @pytest.fixture
    def image(self, debian: str) -> str:
        return debian


@pytest.mark.long
class TestInBusybox(AttackProbes, CommandProbes):
    @pytest.fixture
    def image(self, busybox: str) -> str:
        return busybox
