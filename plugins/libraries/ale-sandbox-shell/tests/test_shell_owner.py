"""Whether the process that a sandbox belongs to is still there."""

import errno
from pathlib import Path

import pytest
from attrs import evolve

from ale_sandbox_shell.owner import Owner, machine_name


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
