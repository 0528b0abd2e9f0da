"""An attacker in a container of Podman's: busybox; Debian with Python in the long tests."""

import pytest

from ale_sandboxing.container_testing.attacks import AttackProbes
from ale_sandboxing.container_testing.commands import CommandProbes
from ale_sandboxing.container_testing.damage import DamageProbes
from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN

pytestmark = pytest.mark.engine


class TestInBusybox(AttackProbes, CommandProbes):
    container_image = BUSYBOX


@pytest.mark.long
class TestInDebian(AttackProbes, CommandProbes):
    container_image = DEBIAN


class TestPodmanDamage(DamageProbes):
    tries_out_of_memory = 4
