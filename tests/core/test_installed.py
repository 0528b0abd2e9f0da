"""Entry points are found as `importlib.metadata` finds them, without its cost."""

import importlib.metadata
import sys
import zipfile
from pathlib import Path

import pytest

from ale import _installed
from ale._installed import Entry, installed


def record(place: Path, folder: str, entry_points: str, file: str = "METADATA") -> None:
    """Record a package as an installer does."""
    name, _, version = folder.rpartition(".")[0].partition("-")
    (place / folder).mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version or '3'}\n"
    (place / folder / file).write_text(head + "\nVersion: of the description\n")
    (place / folder / "entry_points.txt").write_text(entry_points)


def by_the_book(group: str) -> list[Entry]:
    found = importlib.metadata.entry_points(group=group)
    made = [Entry(e.dist.name, e.dist.version, e.name, e.value) for e in found if e.dist]
    return sorted(made, key=lambda entry: (entry.distribution, entry.name))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "not there"), str(tmp_path)])
    return tmp_path


@pytest.mark.parametrize("group", ["ale", "console_scripts", "pytest11", "no such group"])
def test_the_packages_of_this_environment_match_importlib_metadata(group: str) -> None:
    assert _installed._only_folders()
    assert installed(group) == by_the_book(group)


def test_an_entry_points_file_is_read_as_by_importlib_metadata(place: Path) -> None:
    text = (
        "# ale\n\n[ale]\nb=m : thing [extra]\n # a = c\n  a  =  m.n\n[alert]\nx = y\n[other]\nc = d"
    )
    record(place, "ale_mine-1.5.dist-info", text)
    assert installed("ale") == by_the_book("ale")
    assert installed("ale")[0] == Entry("ale-mine", "1.5", "a", "m.n")


def test_an_egg_info_record_is_read(place: Path) -> None:
    record(place, "ale_old.egg-info", "[ale]\na = m\n", file="PKG-INFO")
    assert installed("ale") == by_the_book("ale") == [Entry("ale-old", "3", "a", "m")]


def test_of_two_packages_with_one_name_the_first_on_the_path_counts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(place / "first", "ale_two-2.dist-info", "[ale]\na = new\n")
    record(place / "second", "Ale.Two-1.dist-info", "[ale]\na = old\n")
    monkeypatch.setattr(sys, "path", [str(place / "first"), str(place / "second")])
    assert installed("ale") == by_the_book("ale") == [Entry("ale-two", "2", "a", "new")]


def test_the_current_folder_counts_if_it_is_on_the_path(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(place, "ale_here-1.dist-info", "[ale]\na = m\n")
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [""])
    assert installed("ale") == by_the_book("ale") == [Entry("ale-here", "1", "a", "m")]


def test_a_package_in_an_archive_is_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(place, "ale_zip-1.dist-info", "[ale]\na = m\n")
    with zipfile.ZipFile(place / "packages.zip", "w") as archive:
        for path in (place / "ale_zip-1.dist-info").iterdir():
            archive.write(path, path.relative_to(place))
    monkeypatch.setattr(sys, "path", [str(place / "packages.zip")])
    assert installed("ale") == [Entry("ale-zip", "1", "a", "m")]


def test_a_package_of_another_finder_is_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(place / "elsewhere", "ale_found-1.dist-info", "[ale]\na = m\n")

    class Finder(importlib.metadata.DistributionFinder):
        def find_spec(self, *arguments: object) -> None:
            return None

        def find_distributions(
            self, context: object = None
        ) -> list[importlib.metadata.Distribution]:  # type: ignore[override]
            folder = place / "elsewhere" / "ale_found-1.dist-info"
            return [importlib.metadata.PathDistribution(folder)]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert installed("ale") == [Entry("ale-found", "1", "a", "m")]


@pytest.mark.parametrize(
    ("value", "found"),
    [("json.decoder", "json.decoder"), ("json : loads [x]", "loads"), ("os:path.join", "join")],
)
def test_an_entry_point_loads_its_object(value: str, found: str) -> None:
    assert Entry("d", "1", "n", value).load().__name__ == found
