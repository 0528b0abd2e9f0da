"""Where a judge can be given the files of an agent's container."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from ale.errors import UnsupportedError
from ale_sandboxing.container.carrying import Layers
from ale_sandboxing.container.engine import About
from ale_sandboxing.container.judging import JudgeOpening
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
