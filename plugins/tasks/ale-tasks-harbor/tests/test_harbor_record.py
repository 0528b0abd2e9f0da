"""The record of what was there before, written by a real shell and read back."""

import subprocess
from pathlib import Path

import pytest

from ale_tasks_harbor import integrity
from ale_tasks_harbor.paths import SandboxPaths

KEY = "0123456789abcdef"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder on PATH, before the system's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def record(tmp_path: Path, programs: Path, **variables: str) -> bytes:
    (tmp_path / "workspace").mkdir(exist_ok=True)
    places = SandboxPaths(
        tests=str(tmp_path / "tests"),
        logs=str(tmp_path / "logs"),
        records=(str(tmp_path / "file" / "record"), str(tmp_path / "record")),
    )
    (tmp_path / "file").touch()  # the first place can't be written to
    environ = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path), **variables}
    subprocess.run(
        ["sh", "-c", integrity.setup_step(KEY, places)],
        cwd=tmp_path / "workspace",
        env=environ,
        check=True,
    )
    return (tmp_path / "record").read_bytes()


def look(programs: Path, *folders: Path) -> integrity.Look:
    looked = subprocess.run(
        ["sh", "-c", f'{integrity.LOOK}\nlook "$@"', "sh", *map(str, folders)],
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        check=True,
        capture_output=True,
    )
    return integrity.look_of([part.decode() for part in looked.stdout.split(b"\0")])


def program(file: Path) -> None:
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)


def test_a_record_holds_environment_programs_and_pythons_folders(
    tmp_path: Path, programs: Path
) -> None:
    program(programs / "grep")
    odd = "two\nlines = 'x'"
    made = integrity.verified(record(tmp_path, programs, ODD=odd), KEY)
    assert made is not None
    assert made.environment["ODD"] == odd
    assert made.environment["PATH"].startswith(str(programs))
    assert made.look.tools["grep"] == str(programs / "grep")
    assert made.look.tools["sh"] in ("/usr/bin/sh", "/bin/sh")
    assert any("python3" in folder for folder in made.folders)
    assert not made.has_tests


def test_a_record_that_was_changed_or_signed_by_others_is_none(
    tmp_path: Path, programs: Path
) -> None:
    data = record(tmp_path, programs)
    assert integrity.verified(data, KEY) is not None
    assert integrity.verified(data, "another") is None
    assert integrity.verified(data.replace(b"N sh", b"N sx"), KEY) is None
    assert integrity.verified(data[:-64], KEY) is None
    assert integrity.verified(b"", KEY) is None


def test_a_new_program_before_the_images_is_found_and_a_new_one_is_none(programs: Path) -> None:
    seen = look(programs)
    program(programs / "grep")
    program(programs / "uvx")
    found = integrity.changes(seen, look(programs))
    assert dict(found.shadowed) == {"grep": seen.tools["grep"]}
    assert found.planted == []


def test_any_program_of_the_image_is_told_from_one_before_it_but_not_one_that_was_asked_for(
    programs: Path,
) -> None:
    seen = look(programs)
    names = ("git", "sha1sum", "grep")
    for name in names:
        assert name in seen.tools
        program(programs / name)
    now = look(programs)
    assert set(integrity.changes(seen, now).shadowed) == set(names)
    asked = "Build the newest Git, sha1 and grep."
    assert set(integrity.changes(seen, now, asked).shadowed) == {"sha1sum", "grep"}
    versioned = integrity.Look(tools={"node18": "/a", "x": "/x"}, modules=[], starts={})
    later = integrity.Look(tools={"node18": "/b", "x": "/y"}, modules=[], starts={})
    assert set(integrity.changes(versioned, later, "Install Node.js; see xargs").shadowed) == {"x"}


def test_an_archive_and_an_entry_point_for_pytest_are_planted(
    tmp_path: Path, programs: Path
) -> None:
    site, archive = tmp_path / "site", tmp_path / "python311.zip"
    for name, group in (("old", "pytest11"), ("tool", "console_scripts")):
        (site / f"{name}.dist-info").mkdir(parents=True)
        (site / f"{name}.dist-info" / "entry_points.txt").write_text(f"[{group}]\na = b\n")
    seen = look(programs, archive, site)
    archive.touch()
    for name, group in (("new", "a]\nb = c\n\n[pytest11"), ("other", "console_scripts")):
        (site / f"{name}.egg-info").mkdir()
        (site / f"{name}.egg-info" / "entry_points.txt").write_text(f"[{group}]\na = b\n")
    found = integrity.changes(seen, look(programs, archive, site))
    assert found.planted == [str(archive), str(site / "new.egg-info" / "entry_points.txt")]


def test_what_runs_in_every_python_is_found_new_or_changed(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "old.pth").write_text("import old\n")
    (folder / "kept.pth").write_text("import kept\n")
    seen = look(programs, folder)
    assert set(seen.starts) >= {str(folder / "old.pth"), str(folder / "kept.pth")}
    (folder / "old.pth").write_text("import old, os\n")
    (folder / "plain.pth").write_text("/somewhere\n")
    (folder / "new.pth").write_text("# nothing\nimport\tnew")
    (folder / "sitecustomize.py").touch()
    (folder / "usercustomize").mkdir()
    found = integrity.changes(seen, look(programs, folder))
    assert sorted(Path(path).name for path in found.planted) == [
        "new.pth",
        "old.pth",
        "sitecustomize.py",
        "usercustomize",
    ]


def test_a_module_before_the_images_is_planted_and_one_that_it_lacked_is_not(
    tmp_path: Path, programs: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (second / "pytest").mkdir(parents=True)
    first.mkdir()
    seen = look(programs, first, second)
    (first / "pytest.py").touch()
    (first / "pluggy").mkdir()
    found = integrity.changes(seen, look(programs, first, second))
    assert found.planted == [str(first / "pytest.py")]
