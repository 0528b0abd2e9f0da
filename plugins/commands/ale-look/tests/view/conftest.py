"""Runs to look at, a server of the page, and a real browser that is driven over a pipe."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from ale._store import Redactor, RunDirectory
from ale.plugin import Component, hookimpl
from ale.runs import Registry
from ale.testing.builders import turn
from ale.testing.fakes import FakeChunker, FakeCreditScheme
from ale.types import (
    Chunk,
    Credit,
    CreditedEpisode,
    Episode,
    Failure,
    Message,
    Score,
    Stop,
    Task,
    Trajectory,
    whole_turn,
)
from ale_look.store.database import open_database
from ale_look.view.catalog import Catalog
from ale_look.view.server import app
from ale_openai_wire import Admission

TOKEN = "a-token-for-tests"
PATIENCE_S = 30.0
BROWSER = shutil.which("chromium")


class Parts:
    """A chunker and two credit schemes."""

    @hookimpl
    def ale_chunkers(self) -> Sequence[Component[Any, Any]]:
        return [Component("turns", None, lambda o, c: FakeChunker(), summary="By turn.")]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        def scheme(name: str, scale: float) -> Component[Any, Any]:
            made = FakeCreditScheme(scale=scale, name=name)
            return Component(name, None, lambda o, c: made, summary="The reward, scaled.")

        return [scheme("single", 1.0), scheme("double", 2.0)]


@pytest.fixture
def registry() -> Registry:
    """What the tests choose from."""
    made = Registry()
    made.add(Parts(), "ale-parts", "1.0")
    return made


def begin_run(path: Path, **config: Any) -> RunDirectory:
    """A run without episodes, still open; the caller closes it."""
    config = {
        "chunker": {"type": "ale-parts/turns"},
        "credit": {"type": "ale-parts/single"},
        "llm": {"type": "ale-llm/openai", "model": "m"},
        **config,
    }
    manifest = {"run_id": path.name, "created": "2026-11-01T12:00:00+00:00", "n_tasks": 1}
    store = RunDirectory.create(path, {**manifest, "config": config}, Redactor({}))
    store.add_task(Task(id="rename", goal="Rename the file a to b."))
    return store


def attempt(number: int, *, seen: str = "a", said: str = "I look.", **fields: Any) -> Episode:
    """An episode: 0 succeeds, 1 fails after an error of its shell, 2 is broken, and so on."""
    kind = number % 3
    turns = (
        turn(
            said,
            calls=[("shell", json.dumps({"command": "ls"}))],
            observations=[seen],
            errors=["exit code 2" if kind == 1 else None],
            fresh_context=True,
            prompt=[Message(role="system", content="Sigma"), Message(role="user", content="Go")],
        ),
        turn(f"I am done, attempt {number}.", calls=[("finish", "{}")]),
    )
    score = Score(criterion="exists", passed=kind == 0, value=float(kind == 0), detail="b is there")
    failure = Failure(stage="agent", kind="LLMError", message="connection refused")
    known: dict[str, Any] = {
        "id": f"0-rename-{number}",
        "task_id": "rename",
        "rollout": number,
        "reward": [1.0, 0.0, None][kind],
        "scores": () if kind == 2 else (score,),
        "trajectory": Trajectory(turns=turns, stop=Stop(reason="finished")),
        "failure": failure if kind == 2 else None,
        "started_at": "2026-11-01T12:00:00+00:00",
        "seconds": {"agent": 2.0},
        **fields,
    }
    return Episode(**known)


def credited(episode: Episode, *weights: float) -> CreditedEpisode:
    """A chunk per turn."""
    turns = episode.trajectory.turns
    chunks = tuple(
        Chunk(index=i, kind="turn", spans=(whole_turn(i, each),)) for i, each in enumerate(turns)
    )
    credit = Credit(
        episode_id=episode.id, scheme="single", rewards=weights, returns=weights, weights=weights
    )
    return CreditedEpisode(
        episode_id=episode.id, task_id="rename", chunker="turns", chunks=chunks, credit=credit
    )


def write_run(path: Path, *episodes: Episode, credit: bool = True) -> Path:
    """A run that has ended; the weights of its chunks are 0.5 and 1."""
    store = begin_run(path)
    for each in episodes:
        store.add_episode(each)
    if credit:
        with store.writing_credits(0) as keep:
            for each in episodes:
                if each.reward is not None:
                    keep(credited(each, 0.5, 1.0))
    store.set_outcome({"outcome": "completed", "seconds": 9.0})
    store.close()
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with a run of three episodes."""
    write_run(tmp_path / "runs" / "first", *map(attempt, range(3)))
    return tmp_path / "runs"


@pytest.fixture
def catalog(runs: Path, tmp_path: Path) -> Iterator[Catalog]:
    """The runs of that folder."""
    database = open_database(str(tmp_path / "index.sqlite"))
    made = Catalog(runs, database)
    yield made
    made.refresh(PATIENCE_S)
    database.close()


@pytest.fixture
def client(catalog: Catalog, registry: Registry) -> TestClient:
    """A client with the token, in the same process."""
    made = app(catalog, registry, TOKEN, Admission.at("127.0.0.1"))
    head = {"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1:8900"}
    return TestClient(made, headers=head)


@contextmanager
def serving(application: Any, port: int = 0) -> Iterator[str]:
    """The URL of a server while the block runs."""
    config = uvicorn.Config(
        application, port=port, log_level="critical", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def served(catalog: Catalog, registry: Registry) -> Iterator[str]:
    """The URL of a server of the page."""
    with serving(app(catalog, registry, TOKEN, Admission.at("127.0.0.1"))) as url:
        yield url


class Page:
    """A page in Chromium, driven by the DevTools protocol over a pipe."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        to_browser, write = os.pipe()
        read, from_browser = os.pipe()
        self._writer = os.fdopen(write, "wb", 0)
        self._reader = os.fdopen(read, "rb")
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
        more = ("--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe")
        # The protocol's ends are 3 and 4 in the browser.
        shell = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$0" "$@"'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", shell, BROWSER, *flags, *more, f"--user-data-dir={profile}"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._session: str | None = None
        self._left = b""
        self.errors: list[str] = []
        self.tab()

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        self._writer.write(json.dumps(asked).encode() + b"\0")
        while True:
            said = self._next()
            self._note(said)
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]

    def _next(self) -> Any:
        while b"\0" not in self._left:
            piece = os.read(self._reader.fileno(), 1 << 20)
            assert piece, "the browser has ended"
            self._left += piece
        first, _, self._left = self._left.partition(b"\0")
        return json.loads(first)

    def _note(self, said: Any) -> None:
        """Keep what went wrong: exceptions, and what the policy of the page has refused."""
        if said.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["params"])[:1000])
        if said.get("method") == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
            entry = said["params"]["entry"]
            # The page listens again by itself.
            if not str(entry.get("url", "")).endswith("/api/live"):
                self.errors.append(entry["text"])

    def tab(self) -> str:
        """Open a tab, which is the one that is driven from now on; its name for `turn_to`."""
        self._session = None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = str(attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        return self._session

    def turn_to(self, tab: str) -> None:
        """Drive this tab from now on."""
        self._session = tab

    def leave(self) -> None:
        """Close the tab that is driven; turn to another one then."""
        self._ask("Page.close")

    def open(self, url: str) -> None:
        """Go to an address; a part after ``#`` alone does not load the page again."""
        self._ask("Page.navigate", url=url)

    def resize(self, width: int) -> None:
        """Make the window so many CSS pixels wide."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + patience_s
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end, (expression, self.text()[:2000], self.errors)
            if self._networks_changed():
                self._ask("Page.reload")
            time.sleep(0.05)

    def _networks_changed(self) -> bool:
        """A request failed because a network of the machine came or went, as those of containers
        do: Chromium then fails requests to loopback too. Such errors are forgotten.
        """
        others = [each for each in self.errors if "ERR_NETWORK_CHANGED" not in each]
        changed, self.errors = len(others) < len(self.errors), others
        return changed

    def text(self) -> str:
        """The text of the page that can be seen."""
        return str(self.value("document.body ? document.body.innerText : ''"))

    def reads(self, text: str) -> None:
        """Wait until a text can be seen: the browser lays out turns once they come into sight."""
        self.until(f"document.body?.innerText.includes({json.dumps(text)})")

    def press(self, key: str) -> None:
        """Press and release a key: a character, or one with a name."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def close(self) -> None:
        """End the browser."""
        self._writer.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()
        self._reader.close()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """A page in a real browser. Nothing may have gone wrong in it at the end."""
    if BROWSER is None:
        reason = "chromium is not installed; .ci/engines installs it on Debian"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    made = Page(tmp_path / "profile")
    yield made
    made.close()
    made._networks_changed()
    assert made.errors == []


Make = Callable[..., Path]


@pytest.fixture
def make() -> Make:
    """Writes a run."""
    return write_run
