"""Docker keeps the contract of every sandbox; in the image there may be nothing but a shell."""

import pytest

from ale.testing.sandbox import SandboxContract
from ale.testing.sandbox.exec import ExecProbes
from ale.testing.sandbox.session import SessionProbes
from ale.testing.sandbox.system_calls import SystemCallProbes
from ale_sandboxing.container_testing.fixtures import OfItsKit
from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN

pytestmark = pytest.mark.engine


class TestDockerWithBusybox(OfItsKit, SandboxContract):
    container_image = BUSYBOX
    many = 12
    concurrency = 6


class TestShellsOfDebian(ExecProbes, SessionProbes, SystemCallProbes):
    """The shell is dash, sessions are bash, and attacks have Python. Nothing else depends on the
    image: files and limits are the engine's."""

    container_image = DEBIAN


@pytest.mark.long
class TestDockerWithDebian(TestDockerWithBusybox):
    container_image = DEBIAN
