"""Environments of server programs are made once, whoever asks for them at the same time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ale_servers.environment import Recipe, is_made, make

UV = """#!/bin/sh
echo "$1" >> "$(dirname "$0")/calls"
if [ "$1" = venv ]; then
    test ! -e "$4/bin" || exit 1
    sleep 0.2
    mkdir -p "$4/bin"
fi
"""


def test_an_environment_that_two_want_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALE_SERVER_ENVIRONMENTS", str(tmp_path / "environments"))
    uv = tmp_path / "uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    recipe = Recipe(name="one", packages=("a==1",))
    with ThreadPoolExecutor(4) as threads:
        folders = [*threads.map(lambda _: make(recipe, str(uv)), range(4))]
    assert {*folders} == {tmp_path / "environments" / "one"}
    assert is_made(recipe)
    assert (tmp_path / "calls").read_text().split() == ["venv", "pip"]
