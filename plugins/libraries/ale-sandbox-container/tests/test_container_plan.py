"""What of an image and of a task's wishes gets into a container."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ale.types import SandboxSpec
from ale_sandbox_container.engine import Image, Volume
from ale_sandbox_container.options import ContainerOptions
from ale_sandbox_container.plan import ENTRYPOINT, HEALTH, plan_of
from ale_sandbox_container.records import Record
from ale_sandbox_shell.owner import Owner


def environment(image: Image, env: Mapping[str, str] | None = None) -> Mapping[str, str]:
    record = Record(
        id="one",
        kind="sandbox",
        owner=Owner(pid=1, start=1, boot="b", namespace=1),
        created=0.0,
        workdir="/w",
    )
    spec = SandboxSpec(env=env or {})
    shell = Volume(name="v", target="/.ale", read_only=True)
    return plan_of(ContainerOptions(image="i"), spec, record, image, shell).env


def test_a_container_is_told_what_its_image_would_have_started() -> None:
    words = ["/start.sh", "a b", "it's"]
    image = Image(id="i", workdir="/w", entrypoint=words)
    assert shlex.split(environment(image)[ENTRYPOINT]) == words
    # Nothing that a task says takes its place.
    assert shlex.split(environment(image, {ENTRYPOINT: "other"})[ENTRYPOINT]) == words


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ({"Test": ["CMD", "a", "b c"]}, ["120", "30", "a", "b c"]),
        ({"Test": ["CMD-SHELL", "a b"], "Interval": 0}, ["120", "30", "/bin/sh", "-c", "a b"]),
        (
            {
                "Test": ["CMD", "a"],
                "Interval": 500_000_000,
                "Timeout": 2_000_000_000,
                "StartPeriod": 10_000_000_000,
                "Retries": 5,
            },
            ["15", "2", "a"],
        ),
        ({"Test": ["NONE"]}, None),
        ({"Test": []}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_container_is_told_the_health_check_of_its_image(
    check: Mapping[str, Any] | None, words: Sequence[str] | None
) -> None:
    told = environment(Image(id="i", workdir="/w", health=check)).get(HEALTH)
    assert (None if told is None else shlex.split(told)) == words


def test_an_image_that_starts_nothing_and_a_snapshot_tell_nothing() -> None:
    assert ENTRYPOINT not in environment(Image(id="i", workdir=""))
    snapshot = Image(
        id="i", workdir="", entrypoint=["/sh", "-c", "x"], labels={"ale.record": "any"}
    )
    assert ENTRYPOINT not in environment(snapshot)
