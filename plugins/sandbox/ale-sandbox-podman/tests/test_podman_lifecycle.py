"""What Podman's containers start with, and that nothing is left of them."""

import pytest

from ale_sandboxing.container_testing.distance import DistanceProbes
from ale_sandboxing.container_testing.ends import EndProbes
from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN
from ale_sandboxing.container_testing.network import NetworkProbes
from ale_sandboxing.container_testing.privileges import PrivilegeProbes
from ale_sandboxing.container_testing.starts import StartProbes

pytestmark = pytest.mark.engine


class TestStarts(StartProbes):
    container_image = BUSYBOX


class TestDistance(DistanceProbes):
    container_image = BUSYBOX


class TestPrivileges(PrivilegeProbes):
    container_image = DEBIAN


class TestReaching(NetworkProbes):
    container_image = DEBIAN


class TestEnds(EndProbes):
    container_image = BUSYBOX
