"""What of an image and of a task's wishes gets into a container."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from ale.types import SandboxSpec
from ale_sandboxing.container.egress import PROXIES
from ale_sandboxing.container.engine import Image, Plan, Volume
from ale_sandboxing.container.options import ContainerOptions
from ale_sandboxing.container.plan import ENTRYPOINT, HEALTH, plan_of
from ale_sandboxing.container.records import Record
from ale_sandboxing.shell.owner import Owner

OPTIONS = ContainerOptions(image="i")


def planned(
    image: Image,
    spec: SandboxSpec,
    options: ContainerOptions = OPTIONS,
    users: Collection[str] = (),
) -> Plan:
    record = Record(
        id="one",
        kind="sandbox",
        owner=Owner(pid=1, start=1, boot="b", namespace=1),
        created=0.0,
        workdir="/w",
    )
    shell = Volume(name="v", target="/.ale", read_only=True)
    return plan_of(options, spec, record, image, shell, users)


def environment(image: Image, env: Mapping[str, str] | None = None) -> Mapping[str, str]:
    return planned(image, SandboxSpec(env=env or {})).env


def test_a_copy_of_a_sandbox_that_had_a_proxy_names_none_where_it_has_none() -> None:
    image = Image(id="i", workdir="/w", variables=[f"{n}={v}" for n, v in PROXIES.items()])
    env = environment(image)
    assert {name: env[name] for name in PROXIES} == dict.fromkeys(PROXIES, "")
    narrow = planned(image, SandboxSpec(network=False, allowed_hosts=("example.org",)))
    assert {name: narrow.env[name] for name in PROXIES} == PROXIES
    own = environment(Image(id="i", workdir="/w", variables=["http_proxy=http://there:1"]))
    assert "http_proxy" not in own


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


@pytest.mark.parametrize(
    ("spec", "options", "image_user", "offline"),
    [
        ({}, {}, "", True),
        ({}, {}, "0:0", True),
        ({"network": True}, {}, "", False),
        ({"requires": ("change-network",)}, {}, "", False),
        ({"requires": ("change-network",)}, {"network": False}, "", True),
        ({}, {}, "nobody", False),
        ({"user": "root"}, {}, "nobody", True),
        ({"user": "nobody"}, {}, "", False),
        ({}, {"user": "1000"}, "", False),
        ({}, {"read_only": True}, "", False),
    ],
)
def test_a_container_is_offline_for_good_where_root_starts_it_and_no_network_can_be_wanted(
    spec: Mapping[str, Any], options: Mapping[str, Any], image_user: str, offline: bool
) -> None:
    image = Image(id="i", workdir="/w", user=image_user)
    made = planned(image, SandboxSpec(**spec), ContainerOptions(image="i", **options))
    assert made.offline is offline


@pytest.mark.parametrize(
    ("spec", "option", "image_user", "asked"),
    [
        ({}, "1000", "", "1000:1000"),
        ({}, None, "1000", "1000:1000"),
        ({"user": "1000"}, None, "root", "1000:1000"),
        ({"user": "1000"}, "2000", "", "1000:1000"),
        ({}, "1000:5", "", "1000:5"),
        ({}, "33", "", "33"),  # its group is that of the image
        ({}, "agent", "", "agent"),
        ({}, "0", "", "0"),
        ({}, None, "", ""),
    ],
)
def test_an_engine_is_asked_for_no_user_that_it_would_put_into_roots_group(
    spec: Mapping[str, Any], option: str | None, image_user: str, asked: str
) -> None:
    image = Image(id="i", workdir="/w", user=image_user)
    options = ContainerOptions(image="i", user=option)
    assert planned(image, SandboxSpec(**spec), options, users=["0", "33"]).user == asked
