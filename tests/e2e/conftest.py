"""A workshop: a folder with tasks, a script and a config, and the real `ale` run in it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import pytest
from attrs import field, frozen

from ale.testing.waiting import wait_for

from .preloaded import POLICY, RUN, Forked, Preloaded

ALE = Path(sys.executable).with_name("ale")

_left_out: dict[str, list[str]] = {}


@pytest.hookimpl(trylast=True)  # after -m and -k, so that only what they select is reported
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out a test marked ``needs(module, ...)`` where one of these is not installed."""
    for item in list(items):
        marks = item.iter_markers("needs")
        missing = sorted({name for mark in marks for name in mark.args if not find_spec(name)})
        if missing:
            _left_out.setdefault(", ".join(missing), []).append(item.nodeid)
            items.remove(item)
            config.hook.pytest_deselected(items=[item])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report what was left out."""
    for missing, left_out in _left_out.items():
        files = ", ".join(sorted({Path(item.partition("::")[0]).name for item in left_out}))
        number = f"{len(left_out)} test{'s' * (len(left_out) != 1)}"
        terminalreporter.write_line(f"{number} of {files} left out: {missing} not installed")


FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}


@frozen
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that it printed."""
        return self.out + self.err


@frozen
class Running:
    """A command that runs, leader of a process group as under a terminal."""

    process: "subprocess.Popen[bytes] | Forked"
    out: IO[bytes]
    err: IO[bytes]

    def signal(self, number: signal.Signals, *, group: bool = True) -> None:
        """As a terminal does (to the group), or as ``kill`` does (to the process alone)."""
        send = os.killpg if group else os.kill
        send(self.process.pid, number)

    def has_printed(self, text: str) -> bool:
        """Has it printed this on standard error by now?"""
        return text in _whole(self.err)

    @property
    def printed(self) -> str:
        """What it has printed on standard output by now."""
        return _whole(self.out)

    def ended(self, timeout_s: float = 300.0) -> Ended:
        """Wait for its end."""
        code = self.process.wait(timeout_s)
        return Ended(code, _whole(self.out), _whole(self.err))


def _whole(file: IO[bytes]) -> str:
    """A file that another process writes; its position, which they share, stays."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()


@frozen
class Workshop:
    """Writes what a run needs and runs it."""

    folder: Path
    environ: dict[str, str]
    preloaded: Preloaded | None = None
    started: list[Running] = field(factory=list)

    @property
    def space(self) -> Path:
        """Where the sandboxes of these runs are. `ale` itself has no variable that names it."""
        return self.folder / "space"

    def write(self, name: str, content: Any) -> Path:
        """A file in the folder: text unchanged, everything else as JSON, which is YAML."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        path.write_text(whole)
        return path

    def task(self, id: str, check: str = "test -e done", **more: Any) -> None:
        """A task that holds when a command exits with 0."""
        criteria = [{"type": "command_exit_code", "command": check}]
        task = {"id": id, "goal": f"Do {id}.", "success_criteria": criteria, **more}
        self.write(f"tasks/{id}.yaml", task)

    def config(self, **sections: Any) -> Path:
        """The config ``run.yaml``: the tasks of `task`, the local sandbox, and `sections`."""
        basis: dict[str, Any] = {
            "tasks": {"type": "tbp", "path": "tasks"},
            "sandbox": {"type": "local", "root": str(self.space)},
            "agent": {"type": "iflow"},
        }
        return self.write("run.yaml", basis | sections)

    def scripted(self, script: Mapping[str, Any], **sections: Any) -> Path:
        """A config whose model plays a script."""
        self.write("script.yaml", script)
        return self.config(llm={"type": "scripted", "script": "script.yaml"}, **sections)

    def start(self, *arguments: str, **environ: str) -> Running:
        """Start ``ale``. What it prints goes to files, so that a test can look while it runs."""
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - kept open
        running = Running(self._process(arguments, self.environ | environ, out, err), out, err)
        self.started.append(running)
        return running

    def _process(
        self, arguments: Sequence[str], environ: dict[str, str], out: IO[bytes], err: IO[bytes]
    ) -> "subprocess.Popen[bytes] | Forked":
        # What Python reads as it starts, a fork would not have.
        if self.preloaded is not None and not any(name.startswith("PYTHON") for name in environ):
            return self.preloaded.start(arguments, self.folder, environ, out, err)
        return subprocess.Popen(
            [str(ALE), *arguments],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            process_group=0,
        )

    def ale(self, *arguments: str, timeout_s: float = 300.0, **environ: str) -> Ended:
        """Run ``ale`` to its end."""
        return self.start(*arguments, **environ).ended(timeout_s)

    def succeeds(self, *arguments: str, timeout_s: float = 300.0, **environ: str) -> Ended:
        """Run ``ale`` to its end, with the exit status 0."""
        done = self.ale(*arguments, timeout_s=timeout_s, **environ)
        assert done.code == 0, done.text
        return done

    @property
    def runs(self) -> list[Path]:
        """The run directories, oldest first."""
        base = self.folder / "runs"
        # Not by their names: two of one second differ there in letters drawn at random.
        return sorted(base.glob("[!.]*"), key=_begun)  # a hidden one never came to be a run

    @property
    def run(self) -> Path:
        """The only run."""
        (run,) = self.runs
        return run

    def lines(self, file: str = "episodes.jsonl", run: Path | None = None) -> list[dict[str, Any]]:
        """A file of the run, each line whole; none before the run has written it."""
        path = (run or self.run) / file
        if not path.exists():
            return []
        # While a run writes, a reader may see the beginning of a line before its end.
        deadline = time.monotonic() + 300.0
        while (text := path.read_text()) and not text.endswith("\n"):
            assert time.monotonic() < deadline, f"{file} ends with half a line"
            time.sleep(0.01)
        return [json.loads(line) for line in text.splitlines()]

    def episodes(self, run: Path | None = None) -> dict[str, dict[str, Any]]:
        """The episodes of a run by id; each is there once."""
        rows = self.lines(run=run)
        by_id = {row["id"]: row for row in rows}
        assert len(by_id) == len(rows), "an episode was written twice"
        return by_id

    def sampled(self, run: Path) -> dict[str, Any]:
        """By episode, the tokens of every turn: ids, their log-probabilities and versions."""
        return {
            name: [turn["completion"]["tokens"] for turn in episode["trajectory"]["turns"]]
            for name, episode in self.episodes(run).items()
        }

    def until(self, file: Path) -> str:
        """A command that waits for a file; also ends if this folder is gone: a test was killed."""
        opened = f"[ -e {file} ] || [ ! -d {self.folder} ]"
        return f"until {opened}; do sleep 0.05; done"

    def wait_for(self, what: Callable[[], Any], timeout_s: float = 300.0) -> Any:
        """What `what` gives as soon as it is something."""
        return wait_for(what, limit_s=timeout_s, pause_s=0.01)

    def orphans(self) -> list[str]:
        """Processes of the sandboxes, by their environment or where they work."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                where = str((process / "cwd").readlink())
                marks = (process / "environ").read_bytes()
                command = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:  # it has just ended, or is a zombie
                continue
            if where.startswith(str(self.space)) or str(self.space).encode() in marks:
                found.append(f"{process.name}: {command}")
        return found

    def left_behind(self) -> list[str]:
        """Processes, workspaces and records of sandboxes that are still there."""
        places = [*self.space.glob("ale-*/*"), *(self.folder / "runtime").glob("ale/*/*")]
        return self.orphans() + [str(place) for place in places]


def _begun(run: Path) -> int:
    """When its tasks were written, in nanoseconds; or until then, when it was made."""
    tasks = run / "tasks.jsonl"
    return (tasks if tasks.exists() else run).stat().st_mtime_ns


# A run in the background ignores Ctrl-C, and so would every command that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    """One for all tests that need torch."""
    made = Preloaded(POLICY)
    yield made
    made.close()


@pytest.fixture(scope="session")
def preloaded_without_policy() -> Iterator[Preloaded]:
    """One for the others."""
    made = Preloaded(RUN)
    yield made
    made.close()


@contextmanager
def workshop_in(folder: Path, preloaded: Preloaded | None = None) -> Iterator[Workshop]:
    """A workshop with the state folder of its sandboxes in it; its commands end with it."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
        "OMP_NUM_THREADS": "1",
    }
    made = Workshop(folder, environ, preloaded)
    yield made
    for running in made.started:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        running.out.close()
        running.err.close()


@pytest.fixture
def workshop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workshop]:
    """A workshop of its own, whose commands start without importing anew what a run needs.

    In a test that ``needs`` torch that is torch, too. With the mark ``own_process`` each command is
    a new process, as a user's: for tests of how one starts and ends.
    """
    preloaded = None
    if request.node.get_closest_marker("own_process") is None:
        needed = {name for mark in request.node.iter_markers("needs") for name in mark.args}
        name = "preloaded" if "torch" in needed else "preloaded_without_policy"
        preloaded = request.getfixturevalue(name)
    with workshop_in(tmp_path, preloaded) as made:
        yield made


@pytest.fixture
def left_behind(workshop: Workshop) -> Iterator[None]:
    """Asserts, after the test, that nothing of any sandbox is left."""
    yield
    assert workshop.left_behind() == []


@pytest.fixture
def shell() -> Callable[..., Sequence[Mapping[str, Any]]]:
    """The lines of a model that runs commands, one per turn, and finishes."""

    def lines(*commands: str) -> Sequence[Mapping[str, Any]]:
        return [*({"shell": command} for command in commands), FINISH]

    return lines
