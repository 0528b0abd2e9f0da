"""An attacker in a container of Podman's: busybox; Debian with Python in the long tests."""

import pytest

from ale_sandbox_container.testing.attacks import AttackProbes
from ale_sandbox_container.testing.commands import CommandProbes

pytestmark = pytest.mark.engine


class TestInBusybox(AttackProbes, CommandProbes):
    @pytest.fixture
    def image(self, busybox: str) -> str:
        return busybox


@pytest.mark.long
class TestInDebian(AttackProbes, CommandProbes):
    @pytest.fixture
    def image(self, debian: str) -> str:
        return debian
