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


async def tools(changes: Sequence[CarriedChange], reference: Sequence[str] | None) -> list[str]:
    judge = FakeJudge(changes, FILES, IMAGE)
    return await tools_among(judge, scope(reference))  # type: ignore[arg-type]


def scope(reference: Sequence[str] | None) -> Scope:
    texts = ["import yaml", ". /app/extra.sh", "grep it /etc/it.conf", "import json"]
    names = named_in(texts)
    return Scope(workdir="/app", path=["/usr/bin"], names=names, reference=reference)


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


def test_a_score_keeps_few_paths_of_packages_and_repositories() -> None:
    site = "/usr/lib/python3/dist-packages/it"
    paths = [f"{site}/a.py", f"{site}/b.py", "/app/.git/objects/aa/bb", "/app/x.py"]
    found = [added(path) for path in [*paths, "/app/node_modules/@a/b/c.js"]]
    assert kept(found) == (site, "/app/.git/objects", "/app/x.py", "/app/node_modules/@a/b")
    assert len(kept([added(f"/app/{n}") for n in range(MOST_USED + 1)])) == MOST_USED
