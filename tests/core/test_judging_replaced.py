"""What was changed in a judge while a check ran, and what its score says of that."""

import ctypes
import errno
import os
import re
import resource
import struct
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ale.judging import EVERYTHING, Place, Scope, Upper, judged
from ale.judging import watch as watching
from ale.judging.replaced import replaced_among
from ale.judging.replaced import watched as folders_to_watch
from ale.testing.fakes import FolderSandbox
from ale.types import CarriedChange, Score, replace

SITE = "/usr/lib/python3/dist-packages"
LOCAL = "/usr/local/lib/python3.11/site-packages"
STANDARD = "/usr/lib/python3.11"
SCOPE = Scope(workdir="/app", own=("/tests",))
LINKS = ("/app/json", "/app/html")
"""To folders, of which one is a package."""
VENV = "/app/.venv/lib/python3.11/site-packages"
IMAGE = (
    "/usr/bin/cmp",
    "/checks",
    "/app/dev",
    f"{SITE}/numpy",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    VENV,
)


def cache(*libraries: tuple[str, str]) -> bytes:
    """The loader's, with names and paths."""
    head = struct.Struct("<20sI24x")
    entry = struct.Struct("<iIIIQ")
    start = head.size + len(libraries) * entry.size
    entries, texts = b"", b""
    for name, path in libraries:
        where = start + len(texts)
        entries += entry.pack(0x303, where, where + len(name) + 1, 0, 0)
        texts += f"{name}\0{path}\0".encode()
    return head.pack(b"glibc-ld.so.cache1.1", len(libraries)) + entries + texts


FILES = {
    f"{LOCAL}/x.pth": b"import os",
    f"{LOCAL}/plain.pth": b"/app/src",
    f"{LOCAL}/mine-1.dist-info/entry_points.txt": b"[console_scripts]\nmine = mine:main",
    f"{LOCAL}/forge-1.dist-info/entry_points.txt": b"[pytest11]\nforge = forge",
    "/app/.git/HEAD": b"",
    "/app/.git/config": b"[core]\n\tfsmonitor = /app/evil",
    "/app/sub/.git/HEAD": b"",
    "/app/sub/.git/info/exclude": b"# git ls-files\n*\n",
    "/app/plain/.git/HEAD": b"",
    "/app/plain/.git/info/exclude": b"# git ls-files\n",
    "/root/.gitconfig": b"[status]\n\tshowUntrackedFiles = no",
    "/etc/gitconfig": b"[user]\n\tname = me",
    "/root/.config/git/ignore": b"*",
    "/app/tox.ini": b"[pytest]\naddopts = --co",
    "/app/pyproject.toml": b"[tool.pytest.ini_options]",
    "/app/setup.cfg": b"[metadata]",
    "/app/.cargo/config": b"[target.x]\nrunner = 'true'",
    "/app/.cargo/config.toml": b"[alias]\nt = 'test'",
    "/app/ready/pyvenv.cfg": b"",
    "/app/dev/pyproject.toml": b"[project]\ndependencies = ['pytest']",
    "/tests/deep/setup.cfg": b"[tool:pytest]",
    "/app/queue": b"\x7fELF",
    "/app/json/__init__.pyc": b"",
    f"{LOCAL}/last.pth": b"import sys; sys.path.append('/app/src')\n",
    f"{LOCAL}/more.pth": b"import sys; sys.path.append('/app/src'); import evil\n",
    "/etc/ld.so.cache": cache(("libmine.so.1", "/usr/local/lib/libmine.so.1")),
}


class FakeJudge:
    """What was made in it, beside the files of `FILES` and the image."""

    def __init__(self, made: Sequence[CarriedChange]) -> None:
        self._made = list(made)
        self.sandbox = self

    async def used(self) -> Sequence[CarriedChange]:
        return []

    async def watch(self, folders: Mapping[str, int]) -> None:
        """Nothing comes and goes."""

    async def made(self) -> Sequence[CarriedChange]:
        return self._made

    async def has(self, path: str, *, image: bool = False) -> bool:
        return path in IMAGE or (not image and path in FILES)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        if path in LINKS:
            raise IsADirectoryError(path)
        if path not in FILES:
            raise FileNotFoundError(path)
        return FILES[path][:max_bytes]


def change(text: str) -> CarriedChange:
    kind, path = text.split(" ", 1)
    return CarriedChange(path=path, kind=kind)  # type: ignore[arg-type]


REPLACED = (
    "changed /usr/bin/cmp",
    "removed /usr/bin/cmp",
    "changed /bin",
    "added /usr/local/bin/cmp",
    "changed /usr/local/bin/",
    "changed /opt/it/bin/lint",
    "changed /etc/alternatives/awk",
    "changed /etc/profile",
    "added /root/.bashrc",
    "added /etc/ld.so.preload",
    "changed /usr/lib/git-core/git",
    "added /usr/local/lib/libc.so.6",
    "added /opt/evil/libc.so.6",
    f"changed {STANDARD}/json/__init__.py",
    f"changed {STANDARD}/json/__pycache__/decoder.cpython-311.pyc",
    f"added {STANDARD}/sitecustomize.py",
    f"changed {SITE}/numpy/__init__.py",
    f"changed {LOCAL}/",
    f"added {LOCAL}/numpy/__init__.py",
    f"added {LOCAL}/x.pth",
    f"added {LOCAL}/forge-1.dist-info/entry_points.txt",
    "changed /tests/test_it.py",
    "removed /tests/data.json",
    "added /tests/json.py",
    "added /tests/conftest.py",
    "added /app/conftest.py",
    "added /conftest.py",
    "added /app/random.py",
    "added /app/json/__init__.py",
    "changed /app/.git/config",
    "added /app/json.pyc",
    "added /app/json.cpython-311-x86_64-linux-gnu.so",
    "added /app/json/__init__.pyc",
    "added /app/json/__init__.abi3.so",
    "added /app/json",
    "added /tests/deep/json.py",
    "added /tests/deep/setup.cfg",
    "changed /tests/conftest.py",
    "added /app/tox.ini",
    "changed /app/pyproject.toml",
    "added /app/uv.toml",
    "added /app/.npmrc",
    "added /app/sub/.git/info/exclude",
    "added /root/.gitconfig",
    "added /root/.config/git/ignore",
    "changed /root/.curlrc",
    f"added {LOCAL}/more.pth",
    f"changed {VENV}/requests/api.py",
    f"added {VENV}/x.pth",
    "added /root/.local/lib/python3.11/site-packages/pytest.py",
    "added /usr/lib/python311.zip",
    "added /usr/bin/pyvenv.cfg",
    "added /usr/pyvenv.cfg",
    "added /app/.cargo/config",
    "added /app/.cargo/config.toml",
    "added /checks/conftest.py",
    "changed /app/ready/bin/python",
    "added /app/ready/bin/cmp",
    "added /app/ready/bin/python",
    # Folders that were others meanwhile, and what is gone again.
    "changed /tests",
    "changed /app",
    "changed /usr/local/bin",
    "added /app/random/",
    "added /tests/deep/json/",
    f"added {STANDARD}/sitecustomize/",
    f"added {LOCAL}/gone.pth",
    f"added {LOCAL}/gone-1.dist-info/",
    f"added {SITE}/numpy/",
    "added /root/.local/",
    "added /app/.git/info/attributes",
)
WORK = (
    "added /usr/local/bin/mine",
    "added /usr/local/lib/libmine.so.1",
    "changed /etc/ld.so.cache",
    "changed /etc/passwd",
    "added /etc/profile.d/mine.sh",
    "changed /etc/nginx/nginx.conf",
    "changed /var/lib/dpkg/status",
    "added /tmp/cmp",
    "changed /root/",
    "added /root/.cache/pip/x",
    f"added {STANDARD}/__pycache__/json.cpython-311.pyc",
    f"added {SITE}/numpy/__pycache__/api.cpython-311.pyc",
    f"added {LOCAL}/mine/__init__.py",
    f"added {LOCAL}/plain.pth",
    f"added {LOCAL}/mine-1.dist-info/entry_points.txt",
    f"added {LOCAL}/mine-1.dist-info/METADATA",
    "added /tests/__pycache__/test_it.cpython-311.pyc",
    "added /tests/result.json",
    "changed /tests/",
    "added /app/main.o",
    "changed /app/main.py",
    "removed /app/random.py",
    "added /app/mine/types.py",
    "added /app/out/conftest.py",
    "added /app/.git/hooks/pre-commit",
    "added /app/.git/objects/info/commit-graph",
    "added /app/queue",  # a program
    "added /app/html",
    "added /app/setup.cfg",
    "added /app/plain/.git/info/exclude",
    "changed /etc/gitconfig",
    f"added {LOCAL}/last.pth",
    "added /opt/app/pyvenv.cfg",
    "added /opt/app/bin/python3",
    "added /opt/app/lib/python3.11/site-packages/pip/__init__.py",
    "added /opt/app/lib/python3.11/site-packages/x.pth",
    "changed /opt/app/lib/python3.11/site-packages/",
    "added /checks/out/conftest.py",
    "added /app/ready/bin/mine",
    "added /app/dev/pyproject.toml",
    "added /app/build/",
    "added /app/calendar",
    "added /app/out/json/",
    "added /app/.venv/",
    "added /root/.cache/",
    f"added {LOCAL}/gone/",
    f"added {STANDARD}/__pycache__/",
    "added /opt/app/lib/python3.11/site-packages/gone-1.dist-info/",
)


@pytest.mark.parametrize("text", REPLACED)
async def test_what_a_check_runs_with_was_replaced(text: str) -> None:
    one = change(text)
    assert await replaced_among(FakeJudge([one]), SCOPE) == [one.path]  # type: ignore[arg-type]


@pytest.mark.parametrize("text", WORK)
async def test_what_a_build_adds_is_its_work(text: str) -> None:
    assert await replaced_among(FakeJudge([change(text)]), SCOPE) == []  # type: ignore[arg-type]


async def test_programs_of_an_environment_that_a_build_makes_are_its_work() -> None:
    made = [change("added /app/ready/pyvenv.cfg"), change("added /app/ready/bin/cmp")]
    assert await replaced_among(FakeJudge(made), SCOPE) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "pth", "told"),
    [
        ("/app/src/pytest.py", "plain.pth", True),
        ("/app/src/pytest/__init__.py", "last.pth", True),
        ("/app/src/numpy.py", "plain.pth", True),
        ("/app/src/mine.py", "plain.pth", False),
        ("/app/src/deep/pytest.py", "plain.pth", False),
        ("/app/other/pytest.py", "plain.pth", False),
    ],
)
async def test_modules_that_a_plain_pth_leads_to(
    monkeypatch: pytest.MonkeyPatch, module: str, pth: str, told: bool
) -> None:
    monkeypatch.setitem(FILES, f"{SITE}/numpy/__init__.py", b"")
    made = [change(f"added {module}"), change(f"added {LOCAL}/{pth}")]
    found = await replaced_among(FakeJudge(made), SCOPE)  # type: ignore[arg-type]
    assert found == ([f"{LOCAL}/{pth}"] if told else [])


@pytest.mark.parametrize(
    ("name", "text", "configures"),
    [
        ("pyproject.toml", b"[project]\ndependencies = ['pytest']", False),
        ("pyproject.toml", b"[tool.pytest.ini_options]\naddopts = '--co'", True),
        ("pyproject.toml", b"[ tool . 'pytest' ]\naddopts = '--co'", True),
        ("pyproject.toml", b'[tool]\n"pyt\\u0065st" = {ini_options = {}}', True),
        ("pyproject.toml", b"[tool.uv]\nindex-url = 'x'", True),
        ("pyproject.toml", b"[tool.poetry.dependencies]\npytest = '^8'", False),
        ("pyproject.toml", b"[tool.pytest", True),
        ("pyproject.toml", b"#" * (1 << 20) + b"\n[tool.pytest]", True),
        ("pyproject.toml", b"a = " + b"[" * 100_000, False),
        ("pyproject.toml", b"a = " + b"[" * 100_000 + b"pytest", True),
        ("setup.cfg", b"[options]\ninstall_requires = pytest", False),
        ("setup.cfg", b"[metadata]\r[tool:pytest]\n", True),
        ("tox.ini", b"[testenv]\ndeps = pytest", False),
        ("tox.ini", b"[pytest]", True),
    ],
)
async def test_settings_of_pytest_are_a_section(
    monkeypatch: pytest.MonkeyPatch, name: str, text: bytes, configures: bool
) -> None:
    monkeypatch.setitem(FILES, f"/app/{name}", text)
    made = [change(f"added /app/{name}")]
    found = await replaced_among(FakeJudge(made), SCOPE)  # type: ignore[arg-type]
    assert bool(found) == configures


LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


@pytest.mark.parametrize(
    ("cached", "replaces"),
    [
        (cache(("libc.so.6", LIBC), ("libmine.so.1", "/opt/lib/libmine.so.1")), False),
        (b"ld.so-1.7.0 of before" + cache(("libc.so.6", LIBC)), False),
        (cache(("libc.so.6", "/tmp/x/libc.so.6")), True),
        (cache(("libc.so.6", "/usr/bin/cmp")), True),
        (b"ld.so-1.7.0 of before" + cache(("libc.so.6", "/tmp/x/libc.so.6")), True),
        (cache(("libmine.so.1", "/tmp/x/it"), ("libc.so.6", "/tmp/x/it")), True),
        (cache(("libc.so.6", LIBC))[:60], True),
        (b"nothing", True),
    ],
)
async def test_a_loaders_cache_that_finds_another_library(
    monkeypatch: pytest.MonkeyPatch, cached: bytes, replaces: bool
) -> None:
    monkeypatch.setitem(FILES, "/etc/ld.so.cache", cached)
    judge = FakeJudge([change("changed /etc/ld.so.cache")])
    assert bool(await replaced_among(judge, SCOPE)) == replaces  # type: ignore[arg-type]


@pytest.fixture
def upper(tmp_path: Path) -> Upper:
    """A folder over an image that has ``/usr/bin/cmp``, with a file of the agent's."""
    (tmp_path / "image/usr/bin").mkdir(parents=True)
    (tmp_path / "image/usr/bin/cmp").touch()
    (tmp_path / "upper/usr/bin").mkdir(parents=True)
    (tmp_path / "upper/app").mkdir()
    (tmp_path / "upper/app/mine").write_text("1")
    (tmp_path / "upper/app/early").write_text("1")

    def image(path: str) -> Path | None:
        place = tmp_path / f"image{path}"
        return place if place.exists() else None

    made = Upper({"": tmp_path / "upper"}, image, {"/app/mine"})
    made.note()
    return made


def told(upper: Upper) -> list[str]:
    return [f"{each.kind} {each.path}" for each in upper.changes()]


def test_changes_since_a_note(upper: Upper) -> None:
    folder = upper.folders[""]
    assert told(upper) == []
    (folder / "usr/bin/cmp").write_text("other")
    (folder / "usr/bin/new").write_text("new")
    (folder / "app/mine").write_text("2")
    (folder / "app/early").write_text("2")
    assert told(upper) == [
        "changed /app/early",
        "added /app/mine",
        "changed /usr/bin/cmp",
        "added /usr/bin/new",
    ]
    upper.note()
    assert told(upper) == []
    (folder / "app/early").unlink()
    assert "removed /app/early" in told(upper)


def test_times_that_were_set_back_hide_nothing(upper: Upper) -> None:
    early = upper.folders[""] / "app/early"
    about = early.stat()
    early.write_text("2")
    os.utime(early, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert told(upper) == ["changed /app/early"]


def test_a_file_that_is_gone_again_leaves_a_changed_folder(upper: Upper) -> None:
    programs = upper.folders[""] / "usr/bin"
    (programs / "kept").touch()
    assert "changed /usr/bin/" not in told(upper)
    upper.note()
    (programs / "cmp").touch()
    (programs / "cmp").unlink()
    assert told(upper) == ["changed /usr/bin/"]


def watch(upper: Upper) -> None:
    root = os.open(upper.folders[""], os.O_RDONLY | os.O_DIRECTORY)
    upper.watch(root, {"/usr/bin": 0, "/app": 1, "/": 0, "/nowhere": 3})


@pytest.fixture
def watched(upper: Upper) -> Iterator[Upper]:
    """One whose programs and workspace are watched."""
    (upper.folders[""] / "app/sub").mkdir()
    watch(upper)
    upper.note()
    yield upper
    upper.close()


def test_what_came_and_is_gone_again_is_known_by_its_name(watched: Upper) -> None:
    root = watched.folders[""]
    (root / "usr/bin/grep").touch()
    (root / "usr/bin/grep").rename(root / "usr/bin/kept")
    (root / "app/sub/one").touch()
    (root / "app/sub/one").unlink()
    (root / "app/random").symlink_to("/tmp/evil")
    (root / "app/random").unlink()
    (root / "app/json").mkdir()
    (root / "app/json").rmdir()
    (root / "app/later").touch()
    found = told(watched)
    assert "added /app/json/" in found
    assert "added /app/json" not in found
    assert "added /app/random/" in found
    assert {"added /usr/bin/grep", "added /app/sub/one", "added /usr/bin/kept"} <= set(found)
    assert "changed /usr/bin/" not in found
    watched.note()
    assert told(watched) == []


def test_a_program_that_is_gone_again_is_no_package(watched: Upper) -> None:
    program = watched.folders[""] / "app/calendar"
    program.touch()
    deadline = time.monotonic() + 30
    while not list(watched.changes()) and time.monotonic() < deadline:
        time.sleep(0.01)
    program.unlink()
    assert told(watched) == ["added /app/calendar"]
    program.symlink_to("/tmp/evil")
    program.unlink()
    assert told(watched) == ["added /app/calendar", "added /app/calendar/"]


def test_another_folder_in_the_place_of_one(watched: Upper) -> None:
    root = watched.folders[""]
    (root / "app").rename(root / "other")
    (root / "app").mkdir()
    (root / "app").rmdir()
    (root / "other").rename(root / "app")
    assert "changed /app" in told(watched)


def test_more_than_the_kernel_keeps_is_told(watched: Upper) -> None:
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    gone = watched.folders[""] / "app/gone"
    assert watched._watch is not None
    with watched._watch._lock:
        for _ in range(kept):
            gone.touch()
            gone.unlink()
    assert {"changed /app", "changed /usr/bin", "changed /"} <= set(told(watched))


def test_every_folder_is_watched_where_few_files_may_be_open(upper: Upper) -> None:
    app = upper.folders[""] / "app"
    for number in range(100):
        (app / f"{number:03}").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 30, hard))
    try:
        watch(upper)
        upper.note()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number in range(100):
        (app / f"{number:03}/conftest.py").touch()
        (app / f"{number:03}/conftest.py").unlink()
    assert told(upper) == [f"added /app/{number:03}/conftest.py" for number in range(100)]
    upper.close()


def test_more_folders_than_are_watched_is_told(
    upper: Upper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale.judging.watch._MOST", 3)
    for number in range(4):
        (upper.folders[""] / f"app/{number}").mkdir()
    watch(upper)
    upper.note()
    assert {"changed /app", "changed /usr/bin"} <= set(told(upper))
    upper.close()


def test_a_folder_that_can_no_more_be_opened_is_told(
    upper: Upper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder_below(root: int, path: str) -> int:
        if path == "/app":
            raise OSError(errno.EMFILE, "Too many open files")
        return below(root, path)

    below = watching.folder_below
    monkeypatch.setattr(watching, "folder_below", folder_below)
    watch(upper)
    assert "unseen Too many open files" in told(upper)
    upper.close()


@pytest.mark.parametrize(
    ("call", "setting"),
    [("inotify_init1", "max_user_instances"), ("inotify_add_watch", "max_user_watches")],
)
def test_what_an_agent_has_used_up_is_told(
    upper: Upper, monkeypatch: pytest.MonkeyPatch, call: str, setting: str
) -> None:
    def refused(*arguments: object) -> int:
        ctypes.set_errno(errno.EMFILE)
        return -1

    libc = ctypes.CDLL(None, use_errno=True)
    setattr(libc, call, refused)
    monkeypatch.setattr(ctypes, "CDLL", lambda *arguments, **options: libc)
    watch(upper)
    upper.note()
    assert told(upper) == [f"unseen Too many open files; raise fs.inotify.{setting}"]
    upper.close()


def test_a_link_is_not_followed_to_what_is_watched(upper: Upper, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (upper.folders[""] / "nowhere").symlink_to(tmp_path / "outside")
    watch(upper)
    upper.note()
    (tmp_path / "outside/it").touch()
    (tmp_path / "outside/it").unlink()
    assert told(upper) == []
    upper.close()


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("bin", "/app/bin"),
        ("", "/app"),
        (".", "/app"),
        ("../opt/", "/opt"),
        ("//opt", "/opt"),
        ("../../..", "/"),
    ],
)
def test_folders_of_a_path_may_have_any_spelling(folder: str, found: str) -> None:
    scope = Scope(workdir="/app", path=(folder,))
    watched = folders_to_watch(scope)
    assert found in watched
    assert all(each == "/" or re.fullmatch("(/[^/]+)+", each) for each in watched)


def test_a_workspace_and_tests_may_have_any_spelling() -> None:
    assert folders_to_watch(Scope(workdir="app/", own=("//tests/",)))["/tests"] > 1


class Judged(FolderSandbox):
    """A sandbox in whose judges programs are replaced: some by what the agent has left."""

    capabilities = replace(FolderSandbox.capabilities, features=("judge",))
    agents: Sequence[str] = ()
    checks: Sequence[str] = ()
    unseen: Sequence[str] = ()

    @asynccontextmanager
    async def open_judge(self, without: Collection[str] = ()) -> AsyncIterator[FakeJudge]:
        paths = [*self.checks, *(() if EVERYTHING in without else self.agents)]
        made = [CarriedChange(path=path, kind="changed") for path in paths]
        yield FakeJudge([*made, *(CarriedChange(path=why, kind="unseen") for why in self.unseen)])

    async def prepare_judge(self) -> None:
        """Does nothing."""

    async def left_running(self) -> int:
        return 0


async def verdict(sandbox: Judged, value: float = 1.0) -> tuple[Score, list[str]]:
    kinds: list[str] = []

    async def check(place: Place) -> list[Score]:
        kinds.append(place.kind)
        return [Score(criterion="it", passed=value == 1, value=value)]

    (found,) = await judged(sandbox, check, SCOPE)
    return found, kinds


async def test_a_pass_is_contested_where_the_agents_files_replace_a_program(
    tmp_path: Path,
) -> None:
    sandbox = Judged(tmp_path)
    sandbox.agents, sandbox.checks = ("/usr/bin/cmp",), ("/usr/bin/tac",)
    found, kinds = await verdict(sandbox)
    assert (found.value, found.contested) == (1.0, 0.0)
    assert "what it runs with was replaced: /usr/bin/cmp]" in found.detail
    assert kinds == ["judge", "without-tools"]


async def test_what_the_check_replaces_itself_is_not_contested(tmp_path: Path) -> None:
    sandbox = Judged(tmp_path)
    sandbox.checks = ("/usr/bin/tac",)
    found, _ = await verdict(sandbox)
    assert (found.value, found.contested) == (1.0, None)


async def test_a_pass_that_could_not_be_watched_is_contested(tmp_path: Path) -> None:
    sandbox = Judged(tmp_path)
    sandbox.unseen = ("Too many open files",)
    found, kinds = await verdict(sandbox)
    assert (found.value, found.contested) == (1.0, 0.0)
    assert "what the check runs with could not be watched: Too many open files]" in found.detail
    found, kinds = await verdict(sandbox, 0.0)
    assert (found.value, found.contested, kinds) == (0.0, None, ["judge"])


async def test_a_failure_is_looked_at_once(tmp_path: Path) -> None:
    sandbox = Judged(tmp_path)
    sandbox.agents = ("/usr/bin/cmp",)
    found, kinds = await verdict(sandbox, 0.0)
    assert (found.value, found.contested, kinds) == (0.0, None, ["judge"])
