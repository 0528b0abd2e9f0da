"""The contract of every sandbox backend, as tests.

    class TestMine(SandboxContract):
        @pytest.fixture
        def backend(self) -> SandboxBackend:
            return MyBackend(...)

That is the whole test file. Each test checks a promise of `ale.protocols` against a failure seen in
a real system. If a backend can't do something, its `Capabilities` say so, and the kit checks that
this is true: what is not promised is refused, and what is not isolated is reachable. Every call has
a time limit (`probes.TIMEOUT_S`): a call that hangs fails the test, which names it.

A sandbox needs a POSIX ``sh``, ``cat``, ``dd``, ``env``, ``ls``, ``mkfifo``, ``sleep`` with
fractions, and ``/proc``; busybox is enough.

What to override where necessary:

- ``backend`` (fixture): required.
- ``small_limits`` (fixture): the backend with limits small enough to be reached.
- ``client`` (fixture): a way to connect from inside, if the image has none of the usual clients.
- ``long_command_s``, ``many``, ``concurrency`` (class attributes): durations and amounts.
- ``check_cpu``: if cpu is a share and not a number of seconds.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ale.protocols import Sandbox, SandboxBackend
from ale.testing.sandbox._guard import guarded
from ale.testing.sandbox.exec import ExecProbes
from ale.testing.sandbox.features import FeatureProbes
from ale.testing.sandbox.files import FileProbes
from ale.testing.sandbox.isolation import IsolationProbes
from ale.testing.sandbox.lifecycle import LifecycleProbes
from ale.testing.sandbox.paths import PathProbes
from ale.testing.sandbox.session import SessionProbes
from ale.testing.sandbox.system_calls import SystemCallProbes
from ale.types import SandboxSpec


class SandboxContract(
    ExecProbes,
    SessionProbes,
    FileProbes,
    PathProbes,
    LifecycleProbes,
    IsolationProbes,
    SystemCallProbes,
    FeatureProbes,
):
    """The contract of every backend. Derive from it and give it ``backend``."""

    @pytest.fixture
    def backend(self) -> SandboxBackend:
        """Override: the backend under test."""
        pytest.fail("override the fixture 'backend'")

    @pytest_asyncio.fixture
    async def box(self, backend: SandboxBackend) -> AsyncIterator[Sandbox]:
        """An open sandbox."""
        async with guarded(backend).open(SandboxSpec()) as sandbox:
            yield sandbox
