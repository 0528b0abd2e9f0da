"""The folders of pipes on the host."""

import threading
from pathlib import Path

from ale_sandbox_container.pipes import remove


def test_several_may_remove_the_same_folder_at_once(tmp_path: Path) -> None:
    """As a run that closes a sandbox and a `prune` that found its owner dead."""
    faults: list[BaseException] = []

    def one(folder: Path) -> None:
        try:
            remove(folder)
        except BaseException as fault:
            faults.append(fault)

    for number in range(200):
        folder = tmp_path / str(number)
        for inner in range(20):
            (folder / str(inner)).mkdir(parents=True)
        threads = [threading.Thread(target=one, args=(folder,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not folder.exists()
    assert faults == []


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    remove(tmp_path / "none")
