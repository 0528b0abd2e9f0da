"""What the contract kit can't reach in the sandbox that is written."""

import asyncio
import importlib
import os
from pathlib import Path

import pytest

from ale.testing.sandbox.probes import host_processes
from ale.testing.waiting import until, wait_for
from ale.types import SandboxSpec
from ale_workbench.new.about import About
from ale_workbench.new.kinds import KINDS
from ale_workbench.new.names import names
from ale_workbench.new.writing import render, write


@pytest.mark.parametrize("how", ["session", "exec"])
async def test_a_process_whose_start_is_cancelled_ends_with_what_it_has_started(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = names("ale-sandbox-cancelled", KINDS["sandbox"])
    write(tmp_path / "package", render(KINDS["sandbox"], chosen, About()))
    monkeypatch.syspath_prepend(tmp_path / "package" / "src")
    module = importlib.import_module(f"{chosen.module}.sandbox")
    backend = getattr(module, f"{chosen.class_name}Backend")(tmp_path / "boxes", tags={})
    begun, bash = tmp_path / "begun", tmp_path / "bin" / "bash"
    bash.parent.mkdir()
    bash.write_text(f"#!/bin/sh\nsleep 600 &\ntouch {begun}\nwait\n")
    bash.chmod(0o755)
    async with backend.open(SandboxSpec()) as box:
        path = {"PATH": f"{bash.parent}:{os.defpath}"}
        call = box.session(env=path) if how == "session" else box.exec([str(bash)])
        starting = asyncio.create_task(call)
        while not host_processes(str(bash)):  # noqa: ASYNC110 - asyncio must get no further
            await asyncio.sleep(0)
        wait_for(begun.exists)
        starting.cancel()
        await until(starting.done, "the end of the call", limit_s=30)
        assert starting.cancelled()
        assert await box.end_processes() == 0
