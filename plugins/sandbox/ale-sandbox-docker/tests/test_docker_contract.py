"""Docker keeps the contract of every sandbox, in an image with dash, bash and Python.

In one that has nothing but a shell it is a long test: Podman's tests show that, through the same
library.
"""

import pytest

from ale.testing.sandbox import SandboxContract
from ale_sandboxing.container_testing.fixtures import OfItsKit
from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN

pytestmark = pytest.mark.engine


class TestDockerWithDebian(OfItsKit, SandboxContract):
    container_image = DEBIAN
    many = 12
    concurrency = 6


@pytest.mark.long
class TestDockerWithBusybox(TestDockerWithDebian):
    container_image = BUSYBOX
