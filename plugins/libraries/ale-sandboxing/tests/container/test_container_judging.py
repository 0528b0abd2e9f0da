"""Where a judge can be given the files of an agent's container."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from ale.errors import UnsupportedError
from ale_sandboxing.container.carrying import Layers
from ale_sandboxing.container.engine import About
from ale_sandboxing.container.judging import JudgeOpening


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
