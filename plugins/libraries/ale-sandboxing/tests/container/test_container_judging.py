"""Where a judge can be given the files of an agent's container."""

import contextlib
import os
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any, cast

import pytest

from ale.errors import SandboxDamagedError, SandboxError, UnsupportedError
from ale.judging import EVERYTHING
from ale_sandboxing.container.carrying import Layers
from ale_sandboxing.container.engine import About
from ale_sandboxing.container.judging import JudgeOpening, opened
from ale_sandboxing.container.names import behind_links, changed_by_engine


@pytest.mark.parametrize("pid", [0, os.getpid()], ids=["ended", "of another process here"])
def test_a_folder_of_this_machine_is_not_taken_for_that_of_an_engine_elsewhere(
    tmp_path: Path, pid: int
) -> None:
    """Both engines can keep their files at the same path, and number their processes alike."""
    about = About(id="f" * 64, layers=Layers(upper=tmp_path, lower=()), mounts=(), pid=pid)
    how = JudgeOpening(container="agents", since=0.0, still=True, without=())
    unused = cast(Any, None)
    for attempt in (how.begin, how.launch):
        with pytest.raises(UnsupportedError, match="another machine"):
            attempt(unused, about, unused)


def test_what_the_engine_itself_writes_is_not_the_agents() -> None:
    hosts, resolv = "/etc/hosts", "/etc/resolv.conf"
    began = {hosts: b"::1 me\n10.0.0.2 me\n", resolv: b"nameserver 1\n"}
    edited = {hosts: b"::1 me\n10.0.0.2 me\n::1 mine\n", resolv: b"nameserver 1\n"}
    after = {hosts: b"::1 me\n10.0.0.7 me\n::1 mine\n", resolv: b""}
    expected = {hosts: b"::1 me\n10.0.0.7 me\n", resolv: b""}
    assert changed_by_engine(began, edited, after) == expected


def test_links_of_a_container_are_followed_inside(tmp_path: Path) -> None:
    """Those of this process, whose root is this machine's."""
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "absolute").symlink_to(tmp_path / "in")
    (tmp_path / "relative").symlink_to("absolute/deep/..")
    (tmp_path / "loop").symlink_to("loop")
    assert behind_links(os.getpid(), f"{tmp_path}/relative/deep/new") == f"{tmp_path}/in/deep/new"
    assert behind_links(os.getpid(), f"{tmp_path}/loop/x") == f"{tmp_path}/loop/x"


@pytest.mark.parametrize(("failures", "damaged"), [(2, False), (3, True)])
async def test_the_machine_is_not_taken_for_the_agent(failures: int, damaged: bool) -> None:
    """What fails at first has to fail again after a start without the agent's files."""
    starts: list[bool] = []

    @contextlib.asynccontextmanager
    async def start(without: Collection[str]) -> AsyncIterator[Any]:
        starts.append(EVERYTHING in without)
        if EVERYTHING not in without and starts.count(False) <= failures:
            raise SandboxError("did not answer in time")
        yield "judge"

    raised = pytest.raises(SandboxDamagedError, match="did not answer in time")
    with raised if damaged else contextlib.nullcontext():
        async with opened(start, ()) as judge:
            assert str(judge) == "judge"
    assert starts == [False, True, False, False]


async def test_where_nothing_starts_nobody_is_blamed() -> None:
    @contextlib.asynccontextmanager
    async def start(without: Collection[str]) -> AsyncIterator[Any]:
        raise SandboxError("the engine is gone")
        yield

    with pytest.raises(SandboxError, match="the engine is gone") as caught:
        async with opened(start, ()):
            pass
    assert not isinstance(caught.value, SandboxDamagedError)
