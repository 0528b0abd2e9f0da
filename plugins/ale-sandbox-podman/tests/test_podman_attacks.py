"""An attacker in a container of Podman's, over busybox and over Debian with Python."""

import pytest

from ale_sandbox_container.testing.attacks import AttackProbes
from ale_sandbox_container.testing.commands import CommandProbes

pytestmark = pytest.mark.engine


class TestAttacks(AttackProbes): ...


class TestCommands(CommandProbes): ...


class TestAttacksInDebian(AttackProbes):
    @pytest.fixture
    def image(self, debian: str) -> str:
        return debian


class TestCommandsInDebian(CommandProbes):
    @pytest.fixture
    def image(self, debian: str) -> str:
        return debian
