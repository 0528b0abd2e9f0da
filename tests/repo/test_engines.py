"""Where the project's own checks run, every backend and server of this machine must be there.

Elsewhere what can't be used skips its tests with the reason; if that could happen unnoticed in CI,
a backend could be broken for weeks.
"""

import os
import shutil

import pytest

from ale._registry import Registration, Registry
from ale_sandboxing.container_testing.compose import COMPOSE, why_no_compose


def is_remote(registration: Registration) -> bool:
    """Is it a service? The tests of its package have a server in its place."""
    return registration.component.name in ("cwsandbox", "e2b")


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="only CI must have every engine")
@pytest.mark.parametrize(
    "registration",
    [one for one in Registry.installed().registrations("sandbox") if not is_remote(one)],
    ids=lambda registration: registration.component.name,
)
def test_every_backend_can_be_used_in_ci(registration: Registration) -> None:
    assert registration.component.probe is not None
    found = registration.component.probe()
    assert found.usable, found.reason


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="only CI must have every engine")
@pytest.mark.parametrize("version", COMPOSE)
def test_each_version_of_docker_compose_can_be_used_in_ci(version: str) -> None:
    assert why_no_compose(version) is None


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="only CI must have every server")
@pytest.mark.parametrize("program", ["nats-server", "slurmctld", "munged", "pg_ctlcluster"])
def test_each_server_can_be_started_in_ci(program: str) -> None:
    assert shutil.which(program)
