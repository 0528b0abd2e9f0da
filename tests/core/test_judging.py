"""Which changes are left out, when a check runs again, and what its score says of that."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ale.errors import NoVerdictError, SandboxDamagedError, UnsupportedError
from ale.judging import Place, Scope, judged
from ale.judging.tools import tools_among
from ale.testing.fakes import FolderSandbox
from ale.types import CarriedChange, Score, replace

SCOPE = Scope(
    workdir="/app",
    names=lambda path: (
        path in ("/etc/it.conf", "/usr/bin/grep", "/root/.bashrc", "/etc/gone")
        or path.startswith("/home/deploy/")
    ),
    path=["/usr/bin", "/opt/bin"],
)


class FakeJudge:
    """Changes that are used, the content of files, and what the image has."""

    def __init__(
        self,
        used: Sequence[CarriedChange],
        files: Mapping[str, bytes] | None = None,
        image: Collection[str] = (),
    ) -> None:
        self._used = list(used)
        self._files = files or {}
        self._image = image
        self.sandbox = self

    async def used(self) -> Sequence[CarriedChange]:
        return self._used

    async def watch(self, folders: Mapping[str, int]) -> None:
        """Nothing comes and goes."""

    async def made(self) -> Sequence[CarriedChange]:
        return []

    async def has(self, path: str, *, image: bool = False) -> bool:
        return path in self._image or (not image and path in self._files)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        if path not in self._files:
            raise (IsADirectoryError if path in LINKS else FileNotFoundError)(path)
        return self._files[path]


def added(path: str) -> CarriedChange:
    return CarriedChange(path=path, kind="added")


def changed(path: str, *, only_longer: bool = False) -> CarriedChange:
    return CarriedChange(path=path, kind="changed", only_longer=only_longer)


def removed(path: str) -> CarriedChange:
    return CarriedChange(path=path, kind="removed")


LINKS = ("/app/random", "/app/numpy", "/app/html")
"""To folders, of which two are packages."""
SITE = "/usr/local/lib/python3.11/site-packages"
ZONES = "/usr/share/zoneinfo"
USERS = "/root/.local/lib/python3.11/site-packages"
TOOLS = (
    added("/usr/local/bin/grep"),
    added("/opt/bin/tool"),
    changed("/usr/bin/python3.11"),
    changed("/usr/bin/grep"),  # though tests name it
    changed("/etc/passwd"),
    changed("/opt/of-the-image/lint"),
    removed("/usr/bin/cmp"),
    removed("/etc/skel/"),
    added("/etc/ld.so.preload"),
    added("/root/.curlrc"),
    changed("/root/.bashrc"),  # likewise
    added("/home/me/.config/uv/uv.toml"),
    added("/conftest.py"),
    added("/app/conftest.py"),
    added("/app/random.py"),
    added("/app/json/__init__.py"),
    added("/app/.git/hooks/pre-commit"),
    changed(f"{SITE}/requests/api.py"),
    added(f"{SITE}/pytest/__init__.py"),
    added(f"{SITE}/mine-1.DIST-INFO/entry_points.txt"),
    added(f"{SITE}/x.PTH"),
    added(f"{USERS}/numpy/__init__.py"),
    added(f"{USERS}/usercustomize.py"),
    added("/app/.venv/pyvenv.cfg"),
    added("/app/.venv/bin/python"),
    added("/app/pyproject.toml"),
    added("/app/.git/config"),
    added("/lib/x86_64-linux-gnu/libc.so.6"),
    added("/app/shown/json.py"),
    added("/app/numpy.py"),
    added("/app/lib/numpy/__init__.py"),
    added("/app/elsewhere/hooks/post-checkout"),
    added("/app/elsewhere/info/attributes"),
    added("/app/elsewhere/config"),
    added("/app/elsewhere/index"),
    added("/app/elsewhere/info/exclude"),
    added("/app/random"),
    added("/app/random/__init__.pyc"),
    added("/app/random/__init__.cpython-311-x86_64-linux-gnu.so"),
    added("/app/numpy"),
    added("/opt/java/bin/grep"),
    added("/opt/conda/bin/mine"),
    added("/srv/me/.bash_profile"),
    changed("/app/node_modules/jest/bin/jest.js"),
    added("/node_modules/chai/index.js"),
    added("/go/pkg/mod/testify/assert.go"),
    added("/wheels/pytest-99-py3-none-any.whl"),
    added("/app/rust-toolchain.toml"),
    added("/app/.Rprofile"),
    added("/app/oldmodule.py"),
    added("/app/.git/refs/replace/abc"),
    added("/app/.git/objects/info/commit-graph"),
    added("/app/.git/info/grafts"),
    added("/app/.git/packed-refs"),
    changed("/app/.git/objects/ab/" + "c" * 38),
    added("/app/common/hooks/pre-commit"),
    added("/app/calc/org/__init__.py"),
    added("/app/calc/org/python/core.py"),
    replace(added("/app/calc/org"), link="/srv/org"),
    added("/app/whole/shallow"),
    added("/app/make/GNUmakefile"),
    added("/app/perl/.proverc"),
    added("/app/build/CTestCustom.cmake"),
    added("/app/.flake8"),
    added("/app/.gitattributes"),
    added("/app/lint/setup.cfg"),
    added("/app/node_modules/acorn/index.js"),
    replace(added("/app/node_modules/acorn"), link="../evil"),
    added("/app/lib/minitest/autorun.rb"),
    added("/app/lib/Test/More.pm"),
    *(replace(added("/app/out"), link=f"/dev/{name}") for name in ("stdin", "fd/0")),
    replace(changed("/etc/localtime"), link="/app/zone"),
    replace(changed("/etc/localtime"), link=f"{ZONES}/gone"),
    added("/etc/ld.so.cache"),
    added("/usr/local/lib/libc.so.6"),
    added("/usr/local/include/stdio.h"),
    added("/home/me/.ssh/authorized_keys"),  # which no tests name
    added("/home/deploy/.ssh/config"),
    replace(added("/app/own/bin/python"), link="/app/evil"),
    replace(added("/app/own/bin/python3"), link="/usr/bin/grep"),
    replace(added("/app/own/bin/grep"), link="/usr/bin/python3"),
    replace(added("/usr/bin/python"), link="python3"),
    added("/app/elsewhere/pyvenv.cfg"),
    added("/opt/pyvenv.cfg"),
    added(f"{SITE}/unrecorded-1.dist-info/METADATA"),
    added(f"{SITE}/planted-1.dist-info/METADATA"),
    added(f"{SITE}/images-1.dist-info/METADATA"),
    changed(f"{SITE}/mine-1.dist-info/METADATA"),
)
WORK = (
    added("/app/out.txt"),
    changed("/app/main.py"),
    removed("/app/old.py"),
    added("/app/images/json.py"),
    changed("/app/numpy.py"),
    added("/app/plain/index"),
    added("/app/plain/hooks/mine.py"),
    added("/app/plain/pyproject.toml"),
    added("/app/plain/.git/config"),
    added("/srv/data/it"),
    added("/etc/it.conf"),
    removed("/etc/gone"),
    removed("/var/cache/apt/pkgcache.bin"),
    changed("/etc/passwd", only_longer=True),
    added(f"{SITE}/mine/__init__.py"),
    added(f"{SITE}/plain.pth"),
    added("/opt/mine/lib/data"),
    added("/app/plain/.git/info/exclude"),
    added("/app/queue"),  # a program
    added("/app/html"),
    added("/app/random.txt"),
    added("/opt/mine/bin/mine"),
    added("/app/node_modules/jest/bin/jest.js"),
    added("/wheels/mine-1-py3-none-any.whl"),
    added("/app/plain/.git/packed-refs"),
    added("/app/plain/.git/objects/ab/" + "c" * 38),
    added("/app/bin/grep"),
    added("/app/java/org/python/Main.java"),
    added("/app/org"),
    added("/app/images/.gitattributes"),
    added("/app/cloned/.git/shallow"),
    added("/app/made/GNUmakefile"),
    added("/app/node_modules/mine/index.js"),
    added("/app/vendor/gems/minitest-5/lib/minitest.rb"),
    replace(added("/app/out"), link="/dev/null"),
    replace(changed("/etc/localtime"), link=f"{ZONES}/Asia/Tokyo"),
    added("/usr/local/lib/libmine.so.1"),
    added("/usr/local/include/mine/it.h"),
    added("/home/deploy/.ssh/authorized_keys"),
    replace(added("/app/own/bin/python"), link="python3"),
    replace(added("/app/own/bin/python3"), link="/usr/bin/python3"),
    added("/app/own/pyvenv.cfg"),
    added(f"{SITE}/mine-1.dist-info/METADATA"),
)
NUMPY = (
    *("/usr/lib/python3/dist-packages", "/usr/lib/python3/dist-packages/numpy"),
    *("/usr/bin/grep", "/opt/conda/bin", "/usr/lib", "/usr/lib/python3.6"),
    "/usr/lib/python3.6/oldmodule.py",
    *("/usr/bin/python3", f"{ZONES}/Asia/Tokyo", "/app/whole/HEAD", "/usr/share/nodejs/acorn"),
    *("/lib/x86_64-linux-gnu/libc.so.6", "/usr/include/stdio.h", f"{SITE}/of_images.py"),
    "/opt/bin",
)
FILES = {
    "/app/make/Makefile": b"",
    "/app/lint/setup.cfg": b"[metadata]\nname = x\n[flake8]\nexclude = *\n",
    "/app/.gitattributes": b"* text=auto\n.env -diff\n",
    "/app/images/.gitattributes": b"# x binary\n*.png binary\n*.sh text eol=lf\n",
    "/app/cloned/.git/HEAD": b"",
    "/etc/ld.so.cache": b"not one",
    "/app/own/pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = false\n",
    "/app/elsewhere/pyvenv.cfg": b"home = /app/evil\n",
    "/opt/pyvenv.cfg": b"home = /usr/bin\n",  # beside a folder of programs of the image's
    f"{SITE}/mine-1.dist-info/RECORD": b"../../../bin/mine,,\nmine-1.dist-info/RECORD,,\nmine.py,,",
    f"{SITE}/mine.py": b"",
    f"{SITE}/planted-1.dist-info/RECORD": b"planted/__init__.py,,\npytest.py,,\n",
    f"{SITE}/pytest.py": b"",
    f"{SITE}/images-1.dist-info/RECORD": b"of_images.py,,\n",
    f"{SITE}/x.PTH": b"\xef\xbb\xbfimport os",
    f"{SITE}/plain.pth": b"/app/src\n",
    "/app/shown/__init__.py": b"",
    "/app/elsewhere/HEAD": b"",
    "/app/elsewhere/info/exclude": b"# git ls-files\n*\n",
    "/app/plain/.git/info/exclude": b"# git ls-files\n",
    "/app/queue": b"\x7fELF",
    "/app/random/__init__.abi3.so": b"",
    "/app/numpy/__init__.py": b"",
    "/app/elsewhere/config": b"[diff 'd']\n\tcommand = true",
    "/app/.git/HEAD": b"",
    "/app/.git/packed-refs": b"abc refs/replace/def\n",
    "/app/plain/.git/packed-refs": b"abc refs/heads/main\n",
    "/app/common/objects": b"",
    "/app/rust-toolchain.toml": b'[toolchain]\npath = "/app/evil"\n',
    "/app/plain/.git/HEAD": b"",
    "/app/.venv/pyvenv.cfg": b"",
    "/app/pyproject.toml": b"[tool.pytest.ini_options]",
    "/app/plain/pyproject.toml": b"[project]",
    "/app/.git/config": b"[core]\n\thooksPath = /app",
    "/app/plain/.git/config": b"[core]\n\tbare = false\n[user]\n\tname = me\n",
}


@pytest.mark.parametrize("change", TOOLS, ids=lambda change: f"{change.kind} {change.path}")
async def test_changes_to_what_tests_run_with(change: CarriedChange) -> None:
    judge = FakeJudge([change], FILES, NUMPY)
    assert await tools_among(judge, SCOPE) == [change.path]  # type: ignore[arg-type]


@pytest.mark.parametrize("change", WORK, ids=lambda change: f"{change.kind} {change.path}")
async def test_changes_that_are_work(change: CarriedChange) -> None:
    judge = FakeJudge([change], FILES, [*NUMPY, "/app/images/__init__.py"])
    assert await tools_among(judge, SCOPE) == []  # type: ignore[arg-type]


async def test_a_module_of_a_package_is_work() -> None:
    mine = ["/app/mine/__init__.py", "/app/mine/json.py"]
    judge = FakeJudge([added(path) for path in mine], dict.fromkeys(mine, b""))
    assert await tools_among(judge, SCOPE) == []  # type: ignore[arg-type]


class Judged(FolderSandbox):
    """A sandbox whose judges use these changes, as long as they have them."""

    capabilities = replace(FolderSandbox.capabilities, features=("judge",))

    def __init__(self, folder: Path, *used: str, running: int = 0) -> None:
        super().__init__(folder)
        self.opened: list[tuple[str, ...]] = []
        self.error: Exception | None = None
        self._paths = used
        self._count = running

    @asynccontextmanager
    async def open_judge(self, without: Collection[str] = ()) -> AsyncIterator[FakeJudge]:
        if self.error is not None:
            raise self.error
        self.opened.append(tuple(without))
        yield FakeJudge([added(path) for path in self._paths if path not in without])

    async def prepare_judge(self) -> None:
        """Does nothing."""

    async def left_running(self) -> int:
        return self._count


def score(value: float) -> Score:
    return Score(criterion="it", passed=value == 1, value=value)


async def verdict(sandbox: FolderSandbox, check: object) -> Score:
    async def one(place: Place) -> list[Score]:
        return [await check(place)]  # type: ignore[operator]

    (found,) = await judged(sandbox, one, SCOPE)
    return found


def with_tools(value: float, otherwise: float) -> object:
    async def check(place: Place) -> Score:
        return score(value if place.kind == "judge" else otherwise)

    return check


async def test_where_no_tool_is_the_agents_there_is_one_verdict(tmp_path: Path) -> None:
    sandbox = Judged(tmp_path, "/app/out.txt")
    found = await verdict(sandbox, with_tools(1.0, 0.0))
    assert (found.value, found.contested, len(sandbox.opened)) == (1.0, None, 1)
    assert found.detail == "[files of the agent that were used: /app/out.txt]"


async def test_a_verdict_that_is_the_same_without_tools_is_not_contested(tmp_path: Path) -> None:
    sandbox = Judged(tmp_path, "/etc/one")
    found = await verdict(sandbox, with_tools(1.0, 1.0))
    assert (found.value, found.contested) == (1.0, None)
    assert "the same without the agent's changes to what the check itself uses: /etc/one" in (
        found.detail
    )
    assert [path for path in sandbox.opened[1] if path.startswith("/")] == ["/etc/one"]


async def test_a_verdict_that_is_another_one_without_tools_is_contested(tmp_path: Path) -> None:
    found = await verdict(Judged(tmp_path, "/etc/one", "/etc/two"), with_tools(1.0, 0.25))
    assert (found.value, found.contested) == (1.0, 0.25)
    assert "contested: 1 with, 0.25 without" in found.detail
    assert "/etc/one, /etc/two" in found.detail


async def test_no_verdict_without_tools_is_contested_too(tmp_path: Path) -> None:
    for error in (NoVerdictError("none"), SandboxDamagedError("gone")):

        async def check(place: Place, error: Exception = error) -> Score:
            if place.kind == "judge":
                return score(1.0)
            raise error

        found = await verdict(Judged(tmp_path, "/etc/one"), check)
        assert (found.value, found.contested) == (1.0, 0.0)


async def test_tools_that_are_used_only_then_are_left_out_too(tmp_path: Path) -> None:
    class Deeper(Judged):
        @asynccontextmanager
        async def open_judge(self, without: Collection[str] = ()) -> AsyncIterator[FakeJudge]:
            self.opened.append(tuple(without))
            paths = ["/etc/one"] if len(self.opened) < 2 else ["/etc/two"]
            yield FakeJudge([added(path) for path in paths if path not in without])

    sandbox = Deeper(tmp_path)
    found = await verdict(sandbox, with_tools(1.0, 1.0))
    assert found.contested is None
    assert {"/etc/one", "/etc/two"} <= set(sandbox.opened[-1])


async def test_a_failure_is_looked_at_once(tmp_path: Path) -> None:
    sandbox = Judged(tmp_path, "/etc/one")
    found = await verdict(sandbox, with_tools(0.0, 1.0))
    assert (found.value, found.contested, len(sandbox.opened)) == (0.0, None, 1)


async def test_a_failure_is_looked_at_beside_the_agents_processes(tmp_path: Path) -> None:
    async def check(place: Place) -> Score:
        return score(1.0 if place.kind == "own" else 0.0)

    found = await verdict(Judged(tmp_path, running=2), check)
    assert (found.value, found.contested) == (1.0, 0.0)
    assert "beside the agent's 2 running processes" in found.detail


async def test_no_verdict_is_none_where_nothing_runs(tmp_path: Path) -> None:
    async def check(place: Place) -> Score:
        raise NoVerdictError("none")

    with pytest.raises(NoVerdictError, match="none"):
        await verdict(Judged(tmp_path), check)


async def test_without_a_judge_the_score_says_so(tmp_path: Path) -> None:
    sandbox = Judged(tmp_path, running=0)
    sandbox.error = UnsupportedError("no overlay")
    found = await verdict(sandbox, with_tools(0.0, 1.0))
    assert found.value == 1.0
    assert "judged in the agent's own sandbox" in found.detail
    assert "no overlay" in found.detail
    plain = await verdict(FolderSandbox(tmp_path), with_tools(0.0, 1.0))
    assert "judged in the agent's own sandbox" in plain.detail
    assert plain.contested is None


async def test_without_a_judge_a_pass_beside_processes_is_contested(tmp_path: Path) -> None:
    sandbox = Judged(tmp_path, running=1)
    sandbox.error = UnsupportedError("no overlay")
    assert (await verdict(sandbox, with_tools(0.0, 1.0))).contested == 0.0


def linked(path: str, text: str) -> CarriedChange:
    return CarriedChange(path=path, kind="added", link=text)


@pytest.mark.parametrize(
    ("links", "leads"),
    [
        ([linked("/app/out", "/tests/test.sh")], True),
        ([linked("/app/a/out", "../../tests")], True),
        ([linked("/app/d", "/opt"), linked("/app/out", "d/../tests/it")], True),
        ([linked("/app/d", "/"), linked("/app/out", "d/tests/it")], True),
        ([linked("/app/out", "/usr/lib/ssl/certs/../../../tests")], True),
        ([linked("/app/out", "/proc/self/cmdline")], True),
        ([linked("/app/out", "/dev/stdout")], False),
        ([linked("/app/out", "../srv/it")], False),
        ([linked("/app/out", "out")], False),
        ([linked("/app/out", "/app/tests/it")], False),
    ],
    ids=str,
)
async def test_links_to_the_tests(links: Sequence[CarriedChange], leads: bool) -> None:
    found = await tools_among(FakeJudge(links), replace(SCOPE, own=["/tests"]))  # type: ignore[arg-type]
    assert ("/app/out" in found or "/app/a/out" in found) == leads


async def test_a_new_user_with_a_shell_of_the_agents() -> None:
    change = changed("/etc/passwd", only_longer=True)
    lines = b"root:x:0:0::/root:/bin/bash\nme:x:1:1::/home/me:/app/evil\n"
    for shells, found in ({"/app/evil": b""}, ["/etc/passwd"]), ({}, []):
        judge = FakeJudge([change], {"/etc/passwd": lines, **shells}, ["/usr/bin/bash"])
        assert await tools_among(judge, SCOPE) == found  # type: ignore[arg-type]
