"""Environments of server programs are made once, whoever asks for them at the same time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ale_servers.environment import Recipe, is_made, make, missing

UV = """#!/bin/sh
echo "$1" >> "$(dirname "$0")/calls"
if [ "$1" = venv ]; then
    test ! -e "$4/bin" || exit 1
    sleep 0.2
    mkdir -p "$4/bin"
fi
"""


@pytest.fixture
def uv(tmp_path: Path) -> str:
    program = tmp_path / "uv"
    program.write_text(UV)
    program.chmod(0o755)
    return str(program)


def test_an_environment_that_two_want_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uv: str
) -> None:
    monkeypatch.setenv("ALE_SERVER_ENVIRONMENTS", str(tmp_path / "environments"))
    recipe = Recipe(name="one", packages=("a==1",))
    with ThreadPoolExecutor(4) as threads:
        folders = [*threads.map(lambda _: make(recipe, uv), range(4))]
    assert {*folders} == {tmp_path / "environments" / "one"}
    assert is_made(recipe)
    assert (tmp_path / "calls").read_text().split() == ["venv", "pip"]


def test_a_program_installed_by_another_version_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uv: str
) -> None:
    monkeypatch.setenv("ALE_SERVER_ENVIRONMENTS", str(tmp_path))
    old, new = (Recipe(name="one", packages=(f"a=={version}",)) for version in (1, 2))
    folder = tmp_path / "one"
    assert missing(new) == f"is not installed in {folder}"
    make(old, uv)
    assert not is_made(new)
    assert missing(new) == (
        f"was installed in {folder} by another version of ale, and has to be installed anew"
    )
