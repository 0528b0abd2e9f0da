"""Paths of very many folders."""

from pathlib import Path

import pytest

from ale.workspaces import Area


def test_a_path_of_very_many_folders_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        Area(tmp_path).write(f"{tmp_path}/" + "a/" * 1900 + "x", b"x", None)
