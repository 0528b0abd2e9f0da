"""Whether the process that a sandbox belongs to is still there."""

import errno
import subprocess
from pathlib import Path

import pytest
from attrs import evolve

from ale_sandboxing.shell.owner import Owner, machine_name


def test_this_process_is_alive_and_another_start_is_not() -> None:
    me = Owner.me()
    assert me.alive
    assert not evolve(me, start=me.start + 1).alive
    assert not evolve(me, boot="another").alive


@pytest.mark.parametrize("change", [{"machine": "elsewhere", "boot": "b"}, {"namespace": 1}])
def test_an_owner_that_cannot_be_seen_counts_as_alive(change: dict[str, object]) -> None:
    assert evolve(Owner.me(), **change, start=1).alive
    assert machine_name()


def test_an_owner_that_could_not_be_looked_up_does_not_count_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sandboxes would be pruned."""
    me = Owner.me()

    def fail(path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="Too many"):
        assert me.alive


def test_without_proc_a_process_id_is_all_that_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ale_sandboxing.shell.owner._PROC", tmp_path / "none")
    me = Owner.me()
    assert me.alive
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert not evolve(me, pid=process.pid).alive
