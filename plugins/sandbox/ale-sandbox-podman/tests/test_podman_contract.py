"""Podman keeps the contract of every sandbox; in the image there may be nothing but a shell.

With a larger image it is a long test: Docker's tests show that, through the same library.
"""

import pytest

from ale.testing.sandbox import SandboxContract
from ale.testing.sandbox.system_calls import SystemCallProbes
from ale_sandboxing.container_testing.fixtures import OfItsKit
from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN

pytestmark = pytest.mark.engine


class TestPodmanWithBusybox(OfItsKit, SandboxContract):
    container_image = BUSYBOX
    many = 12
    concurrency = 6


class TestSystemCallsFromDebian(SystemCallProbes):
    """Attacks have Python there."""

    container_image = DEBIAN


@pytest.mark.long
class TestPodmanWithDebian(TestPodmanWithBusybox):
    """The shell is dash, sessions are bash."""

    container_image = DEBIAN
