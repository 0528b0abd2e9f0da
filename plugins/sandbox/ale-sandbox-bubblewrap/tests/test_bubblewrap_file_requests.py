"""What a request for a file may ask of the supervisor."""

from pathlib import Path

import pytest

from ale_sandbox_bubblewrap import file_requests


def test_a_path_of_very_many_folders_is_an_error_and_does_not_end_the_supervisor(
    tmp_path: Path,
) -> None:
    with pytest.raises(OSError, match="too long"):
        file_requests.do({"do": "folders", "path": f"{tmp_path}/" + "a/" * 1900}, [])
