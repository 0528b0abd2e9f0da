"""Which used files go beyond what the reference solution's pass has used."""

from collections.abc import Mapping, Sequence

import pytest

from ale.judging import MOST_USED, Scope, named_in
from ale.judging.reference import kept
from ale.judging.tools import tools_among
from ale.types import CarriedChange

from .test_judging import FakeJudge, added, changed, removed

MAIN = b"""from helpers import say
import words_check
options, env = {'conf/a'}, 1
say(open('words.json'), '.state')
os.system('make_it')
"""
FILES: Mapping[str, bytes] = {
    "/app/main.py": MAIN,
    "/app/run": b"#!/bin/sh\n",
    "/app/built": b"\x7fELF",
    "/app/notes": b"",
    "/app/words.json": b"{}",
    "/app/settings.py": b"",
    "/app/data/words.toml": b"",
    "/app/.state": b"",
    "/app/diff": b"#!/bin/sh\n",
    "/app/lint.toml": b"off",
    "/app/.lintrc": b"off",
    "/app/Rulesfile": b"off",
    "/app/jest.config.js": b"",
    "/app/env.sh": b"",
    "/srv/data/it": b"",
    "/srv/it.toml": b"",
    "/app/check.sh": b"",
    "/app/options.py": b"",
    "/app/conf/it.ini": b"",
    "/app/env/it.toml": b"",
    "/app/expected.csv": b"",
    "/lint.toml": b"",
    "/app/venv/pyvenv.cfg": b"home = /usr/bin\n",
    "/app/.git/info/sparse-checkout": b"",
}
IMAGE = (
    "/usr/bin/diff",
    "/usr/share/perl5/strict.pm",
    "/app/tests",
    "/app/.lintrc.json",
    "/srv",
    "/usr/bin/python3",
)
REFERENCE = ("/app/main.py", "/app/Buildfile", "/app/.mine/rules", "/app/in.ini", "/app/old.cfg")
WORK = (
    added("/app/main.py"),
    added("/app/helpers.py"),
    added("/app/util/_parts.rs"),
    added("/app/words.csv"),
    added("/app/words.json"),  # which the work names
    added("/app/.state"),
    added("/app/run"),
    added("/app/built"),
    added("/app/sub/Buildfile"),
    added("/app/.mine/rules"),
    added("/app/other.ini"),
    added("/app/user.model.ts"),
    added("/app/notes.2024.csv"),
    added("/app/lib.so.1.2"),
    added("/srv/it/more.txt"),
    added("/srv/data/it"),
    added("/app/venv/pyvenv.cfg"),
    added("/app/parts/yaml.py"),
    added("/app/yaml2.py"),
    added("/app/main.sh"),
    added("/app/conf/it.ini"),
    added("/app/words_check.py"),
    CarriedChange(path="/app/venv/bin/python3", kind="added", link="/usr/bin/python3"),
    added("/app/.git/refs/heads/other"),
    added("/app/.git/packed-refs"),
    added("/app/.gitignore"),
    added("/app/node_modules/x/.rc.json"),
    added("/app/folder"),  # a link to one
    changed("/app/parts.py"),
    changed("/app/old.cfg"),
    removed("/app/old.py"),
    removed("/app/old.cfg"),
)
BEYOND = (
    added("/app/.lintrc"),
    added("/app/lint.toml"),
    added("/app/Rulesfile"),
    added("/app/GNUmakefile"),
    added("/app/jest.config.js"),
    added("/app/env.sh"),
    added("/app/setup.py"),
    added("/app/diff"),
    added("/srv/it.toml"),
    added("/lint.toml"),
    added("/app/yaml.py"),
    added("/app/yaml/__init__.py"),
    added("/app/extra.sh"),
    added("/app/check.sh"),
    added("/app/options.py"),
    added("/app/env/it.toml"),
    added("/app/expected.csv"),
    added("/etc/it.conf"),
    added("/app/lib/strict.pm"),
    added("/app/tests/test_more.py"),
    added("/app/more_test.go"),
    added("/app/MoreTest.java"),
    added("/app/data/words.toml"),
    added("/app/.git/info/sparse-checkout"),
    changed("/app/.git/config"),
    changed("/app/expected.csv"),
    changed("/app/tests/test_it.py"),
    changed("/app/check.py"),
    changed("/app/Buildfile.local"),
    changed("/app/.lintrc.json"),
    removed("/app/tests/test_it.py"),
    removed("/app/lint.cfg"),
)


async def tools(
    changes: Sequence[CarriedChange], reference: Sequence[str] | None, *, contested: bool = False
) -> list[str]:
    judge = FakeJudge(changes, FILES, IMAGE)
    return await tools_among(judge, scope(reference, contested=contested))  # type: ignore[arg-type]


def scope(reference: Sequence[str] | None, *, contested: bool = False) -> Scope:
    texts = ["import yaml", ". /app/extra.sh", "grep it /etc/it.conf", "import json"]
    return Scope(
        workdir="/app",
        path=["/usr/bin"],
        names=named_in(texts),
        reference=reference,
        reference_contested=contested,
    )


@pytest.mark.parametrize("change", WORK, ids=lambda change: f"{change.kind} {change.path}")
async def test_work_of_another_shape(change: CarriedChange) -> None:
    assert await tools([added("/app/main.py"), change], REFERENCE) == []


@pytest.mark.parametrize("change", BEYOND, ids=lambda change: f"{change.kind} {change.path}")
async def test_what_the_reference_passed_without(change: CarriedChange) -> None:
    assert await tools([added("/app/main.py"), change], REFERENCE) == [change.path]
    named_as_known = await tools([added("/app/main.py"), change], [*REFERENCE, change.path])
    without = await tools([added("/app/main.py"), change], None)
    assert named_as_known == without


async def test_what_doubtful_files_name_is_work_if_they_are() -> None:
    changes = [added("/app/data/words.toml"), added("/app/words.json"), added("/app/main.py")]
    assert await tools(changes, REFERENCE) == ["/app/data/words.toml"]
    judge = FakeJudge(changes, {**FILES, "/app/words.json": b'["words.toml"]'}, IMAGE)
    assert await tools_among(judge, scope(REFERENCE)) == []  # type: ignore[arg-type]


async def test_tests_are_work_where_the_reference_has_some() -> None:
    assert await tools([added("/app/tests/test_b.py")], ["/app/tests/test_a.py"]) == []
    assert await tools([changed("/app/tests/test_b.py")], ["/app/tests/test_a.py"]) != []


async def test_a_program_alone_is_work() -> None:
    assert await tools([added("/app/run")], ["/app/other"]) == []


async def test_the_target_of_a_link_of_the_work_is_work() -> None:
    link = CarriedChange(path="/app/main.py", kind="added", link="out/top")
    judge = FakeJudge([link, added("/app/out/top")], {"/app/out/top": b"7", "/app/main.py": b"7"})
    assert await tools_among(judge, scope(REFERENCE)) == []  # type: ignore[arg-type]


PLACED = (
    "/etc/backup.conf",
    "/etc/default/kv",
    "/etc/words/it.toml",
    "/usr/local/lib/backup/backup.py",
    "/usr/local/share/greet/words.sh",
    "/var/lib/kv/state",
)
LOOKED_FOR = (
    "/etc/diff.conf",  # a program of the image's has this name
    "/etc/diffrc",
    "/etc/pip.conf",
    "/etc/gitconfig",
    "/etc/gitconfig.local",
    "/etc/ld.so.preload",
    "/etc/ld.so.conf.d/it.conf",
    "/etc/profile.d/it.sh",
    "/etc/sudoers.d/it",
    "/etc/own/it.conf",  # a folder of the image's
    "/etc/default/locale",
    "/etc/default/diff",
    "/usr/lib/backup/backup.py",
    "/usr/local/bin/backup",
    "/usr/local/lib/libit.so",
    "/usr/local/lib/it.sh",
    "/usr/local/lib/it/libdiff.so",
    "/usr/local/lib/site_perl/It.pm",
    "/usr/local/share/perl/5.36.0/It.pm",
    "/usr/local/lib/own/it.sh",
)


def placed(path: str, text: str) -> FakeJudge:
    """A used file of the system's, beside one of the work with this text."""
    files = {"/app/main.py": text.encode(), path: b""}
    image = ("/usr/bin/diff", "/etc/own", "/usr/local/lib/own", "/etc/default")
    return FakeJudge([added("/app/main.py"), added(path)], files, image)


@pytest.mark.parametrize("path", PLACED)
async def test_a_new_file_of_the_systems_that_the_work_names_is_work(path: str) -> None:
    for text, found in ((f". {path}", []), (f"a{path}", [path]), ("", [path])):
        judge = placed(path, text)
        assert await tools_among(judge, scope(REFERENCE)) == found  # type: ignore[arg-type]
    judge = placed(path, f". {path}")
    assert await tools_among(judge, scope(None)) == [path]  # type: ignore[arg-type]


@pytest.mark.parametrize("path", LOOKED_FOR)
async def test_a_file_that_tools_look_for_is_none_whatever_names_it(path: str) -> None:
    judge = placed(path, f". {path}")
    listed = await tools_among(judge, scope(None))  # type: ignore[arg-type]
    assert await tools_among(judge, scope(REFERENCE)) == listed  # type: ignore[arg-type]


async def test_a_file_of_the_systems_that_other_work_there_names_is_work() -> None:
    files = {"/usr/local/bin/it": b". /usr/local/share/it/a.sh"}
    files |= {"/usr/local/share/it/a.sh": b"b.sh", "/usr/local/share/it/b.sh": b""}
    judge = FakeJudge([added(path) for path in files], files)
    known = scope(["/usr/local/bin/it"], contested=True)
    assert await tools_among(judge, known) == []  # type: ignore[arg-type]
    assert await tools_among(judge, scope(["/usr/local/bin/it"])) == [*files]  # type: ignore[arg-type]


async def test_a_new_file_at_a_path_that_a_contested_reference_needs_is_work() -> None:
    site = "/usr/local/lib/python3.11/dist-packages/it"
    known = ["/usr/local/bin/it", "/etc/profile.d/it.sh", site, "/app/queue.py"]
    paths = ["/usr/local/bin/it", "/etc/profile.d/it.sh", f"{site}/__init__.py", "/app/queue.py"]
    new = [added(path) for path in paths]
    assert await tools(new, known, contested=True) == []
    assert await tools(new, known) == [paths[0], paths[1], paths[3]]
    old = [changed("/usr/local/bin/it")]
    assert await tools(old, known, contested=True) == ["/usr/local/bin/it"]
    leading = CarriedChange(path="/usr/local/bin/it", kind="added", link="/dev/stdin")
    assert await tools([leading], known, contested=True) == ["/usr/local/bin/it"]


def test_a_score_keeps_few_paths_of_packages_and_repositories() -> None:
    site = "/usr/lib/python3/dist-packages/it"
    paths = [f"{site}/a.py", f"{site}/b.py", "/app/.git/objects/aa/bb", "/app/x.py"]
    found = [added(path) for path in [*paths, "/app/node_modules/@a/b/c.js"]]
    assert kept(found) == (site, "/app/.git/objects", "/app/x.py", "/app/node_modules/@a/b")
    assert len(kept([added(f"/app/{n}") for n in range(MOST_USED + 1)])) == MOST_USED
