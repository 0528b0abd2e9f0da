"""`ale view` as it is typed."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from ale._cli.main import cli
from ale.runs import Registry
from ale_look.view.command import view

PATIENCE_S = 60.0


def got(url: str, token: str) -> object:
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_at_the_printed_address_until_it_is_ended(
    how: signal.Signals, runs: Path, tmp_path: Path
) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "ale", "view", str(runs / "first"), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    url, _, rest = address.partition("/#token=")
    token, _, first = rest.partition("/")
    assert url.startswith("http://127.0.0.1:")
    assert first == "run/first"
    assert len(token) >= 32
    assert got(f"{url}/api/run/first.json", token)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        got(f"{url}/api/run/first.json", "other")
    process.send_signal(how)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_token_of_its_own_is_not_printed(runs: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "MINE": "a-token-of-mine"}
    command = [sys.executable, "-m", "ale", "view", str(runs), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--token-env", "MINE"], stdout=subprocess.PIPE, text=True, env=environ
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert "a-token-of-mine" not in address
    assert got(f"{address.partition('#')[0]}api/runs.json", "a-token-of-mine")
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    empty = CliRunner(env={"MINE": ""}).invoke(cli, ["view", str(runs), "--token-env", "MINE"])
    assert (empty.exit_code, "MINE is not set" in empty.output) == (2, True)


def test_a_bundle_takes_the_place_of_a_bundle_only(runs: Path, tmp_path: Path) -> None:
    site, store = tmp_path / "site", str(tmp_path / "index.sqlite")

    def write(target: Path) -> str:
        arguments = [str(runs), "--bundle", str(target), "--store", store]
        done = CliRunner().invoke(view, arguments, obj=Registry())
        return f"{done.output}{done.exception or ''}"

    for _ in range(2):
        assert "1 run, 3 episodes" in write(site)
    assert (site / "api/run/first/episode/0.json").is_file()
    assert not any(str(tmp_path) in file.read_text() for file in (site / "api").rglob("*.json"))
    assert site.stat().st_mode & 0o077 == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    assert "something else than a bundle" in write(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()
