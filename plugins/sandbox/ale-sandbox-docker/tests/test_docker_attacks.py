"""An attacker in a container of Docker's: Debian with Python; busybox in the long tests."""

import pytest

from ale_sandboxing.container_testing.attacks import AttackProbes
from ale_sandboxing.container_testing.commands import CommandProbes
from ale_sandboxing.container_testing.damage import DamageProbes
from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN

pytestmark = pytest.mark.engine


class TestInDebian(AttackProbes, CommandProbes):
    container_image = DEBIAN


@pytest.mark.long
class TestInBusybox(AttackProbes, CommandProbes):
    container_image = BUSYBOX


class TestDockerDamage(DamageProbes):
    pass
