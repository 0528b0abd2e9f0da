"""What is left out of an artifact, held against GNU tar itself."""

import subprocess
from pathlib import Path

import pytest

from ale_tasks_harbor.artifacts import is_left_out, thin_out

NAMES = (
    "a.tmp",
    "keep",
    "deep/a.tmp",
    "deep/keep",
    "deep/er/keep",
    "node_modules/x/index.js",
    "deep/node_modules/y",
    "deep/.git/config",
    "[odd]",
    "Keep",
)


@pytest.mark.parametrize(
    "patterns",
    [
        ["*.tmp"],
        ["node_modules"],
        ["./node_modules"],
        ["deep/*"],
        ["er/keep"],
        ["./keep", "x/*.js"],
        ["d*p"],
        ["[!a-z]odd]"],
        ["?eep"],
        ["deep/"],
        ["*"],
        ["nothing"],
        [],
    ],
)
def test_the_same_is_left_out_as_by_tar(patterns: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    packed = tmp_path / "packed.tar"
    flags = [f"--exclude={pattern}" for pattern in patterns]
    subprocess.run(["tar", "cf", packed, *flags, "-C", folder, "."], check=True)
    listed = subprocess.run(["tar", "tf", packed], check=True, capture_output=True, text=True)
    expected = {line.removeprefix("./").rstrip("/") for line in listed.stdout.splitlines()} - {""}
    thin_out(folder, patterns)
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*")} == expected


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.tmp").write_text("")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "way.tmp").symlink_to(outside)
    (folder / "way").symlink_to(outside)
    thin_out(folder, ["*.tmp"])
    assert (outside / "a.tmp").exists()
    assert [path.name for path in folder.iterdir()] == ["way"]


def test_a_file_is_never_thinned_out(tmp_path: Path) -> None:
    file = tmp_path / "a.tmp"
    file.write_text("")
    thin_out(file, ["*"])
    assert file.exists()


def test_matching_is_by_whole_folders() -> None:
    assert is_left_out("a/b/c", ["b/c"])
    assert not is_left_out("a/ab/c", ["b/c"])
