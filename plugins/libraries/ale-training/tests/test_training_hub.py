"""A model's name on a hub that can't be reached, as the hub's client sees it in a new process."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ale_training.hub import only_local

ASK = """
import sys
from ale.errors import InputError
from ale_training.hub import only_local
try:
    print(only_local(sys.argv[1], path="llm.model"))
except InputError as error:
    print(error)
"""


def asked(name: str, home: Path, **environ: str) -> str:
    """What a process prints that asks about a name."""
    environ = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home), **environ}
    done = subprocess.run(
        [sys.executable, "-c", ASK, name],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
        cwd=home,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def hub() -> Iterator[str]:
    """A server that knows nothing."""
    server = HTTPServer(("127.0.0.1", 0), _Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class _Silent(BaseHTTPRequestHandler):
    """Answers 501 to all."""

    def log_message(self, format: str, *args: object) -> None: ...


def test_an_unreachable_hub_is_one_error_that_says_what_to_do(tmp_path: Path) -> None:
    started = time.monotonic()
    said = asked("someone/model", tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert time.monotonic() - started < 20  # the hub's client alone takes 23 s or more
    assert "llm.model: someone/model can't be loaded: there is no folder" in said
    assert "http://127.0.0.1:9 can't be reached (Connection refused)" in said
    assert f"the hub's cache, {tmp_path}/hub, does not have it" in said
    assert "hint      where there is a network: hf download someone/model" in said


def test_what_the_cache_has_is_read_from_there(tmp_path: Path) -> None:
    revision = tmp_path / "hub" / "models--someone--model" / "snapshots" / "abc"
    revision.mkdir(parents=True)
    (revision / "config.json").write_text("{}")
    refs = tmp_path / "hub" / "models--someone--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    for environ in ({"HF_ENDPOINT": "http://127.0.0.1:9"}, {"HF_HUB_OFFLINE": "1"}):
        assert asked("someone/model", tmp_path, **environ) == "True\n"


def test_a_hub_that_answers_is_left_to_its_client(tmp_path: Path, hub: str) -> None:
    assert asked("someone/model", tmp_path, HF_ENDPOINT=hub) == "False\n"


def test_the_offline_mode_is_named_as_the_reason(tmp_path: Path) -> None:
    said = asked("someone/model", tmp_path, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE is set" in said


@pytest.mark.parametrize("name", ["/absent/folder", "./absent", "a/b/c"])
def test_a_path_is_never_looked_for_on_the_hub(name: str) -> None:
    assert only_local(name, path="llm.model")
