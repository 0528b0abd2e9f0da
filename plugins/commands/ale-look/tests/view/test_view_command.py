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

from .conftest import attempt, begin_run, write_run

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


def bundled(runs: Path, target: Path, store: Path) -> str:
    arguments = [str(runs), "--bundle", str(target), "--store", str(store)]
    done = CliRunner().invoke(view, arguments, obj=Registry())
    return f"{done.output}{done.exception or ''}"


def test_a_bundle_takes_the_place_of_a_bundle_only(runs: Path, tmp_path: Path) -> None:
    site, store = tmp_path / "site", tmp_path / "index.sqlite"
    for _ in range(2):
        assert "1 run, 3 episodes" in bundled(runs, site, store)
    assert (site / "api/run/first/episode/0.json").is_file()
    assert site.stat().st_mode & 0o077 == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    assert "something else than a bundle" in bundled(runs, tmp_path / "mine", store)
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize("name", ["thesis.tex", ".git/HEAD", "CNAME", "api/run/mine.txt", "empty/"])
def test_what_no_bundle_has_written_is_named_and_stays(
    runs: Path, tmp_path: Path, name: str
) -> None:
    site, store = tmp_path / "site", tmp_path / "index.sqlite"
    assert "1 run, 3 episodes" in bundled(runs, site, store)
    other = site / name
    (other if name.endswith("/") else other.parent).mkdir(parents=True, exist_ok=True)
    if not name.endswith("/"):
        other.write_text("mine")
    said = bundled(runs, site, store)
    assert "something else than a bundle: " in said
    assert name.partition("/")[0] in said
    assert other.exists()


def test_a_bundle_that_can_not_be_written_is_named(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for target in (tmp_path / "file/site", tmp_path / ("x" * 250)):
        said = bundled(runs, target, tmp_path / "index.sqlite")
        assert f"{target}: the site can't be written: " in said
        assert "expected a folder in which you may make one" in said


def test_a_folder_that_only_looks_like_a_bundle_is_left(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "site" / "api").mkdir(parents=True)
    (tmp_path / "site" / "api" / "about.json").write_text("{}")
    assert "than a bundle: api" in bundled(runs, tmp_path / "site", tmp_path / "index.sqlite")
    assert (tmp_path / "site" / "api" / "about.json").exists()


def test_a_bundle_names_no_place_of_this_machine(tmp_path: Path) -> None:
    place = tmp_path / "my secret" / "tasks"
    text = f"--volume={tmp_path}/secret/data:/data http://host:80/v1/models"
    config = {"tasks": {"type": "tbp", "path": str(place)}, "sandbox": {"type": "x", "args": text}}
    begin_run(tmp_path / "runs" / "first", **config).close()
    bundled(tmp_path / "runs", tmp_path / "site", tmp_path / "index.sqlite")
    api = tmp_path / "site" / "api"
    assert not [f for f in api.rglob("*.json") if "secret" in f.read_text()]
    assert not [f for f in api.rglob("*.json") if str(tmp_path) in f.read_text()]
    shown = dict(json.loads((api / "run/first.json").read_text())["documents"])["Config"]
    assert json.loads(shown)["tasks"]["path"] == "…/tasks"
    assert "…/data:/data http://host:80/v1/models" in shown


def test_runs_named_like_files_of_others_are_in_a_bundle(tmp_path: Path) -> None:
    for name in ("x", "x.json"):
        write_run(tmp_path / "runs" / name, attempt(0))
    said = bundled(tmp_path / "runs", tmp_path / "site", tmp_path / "index.sqlite")
    assert "2 runs, 2 episodes" in said


def test_a_folder_that_is_not_there_gets_the_nearest_one(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    for folder, hint in (("frist", "did you mean 'first'"), ("runs", "ale run CONFIG makes it")):
        asked = [] if folder == "runs" else [folder]
        done = CliRunner().invoke(view, asked, obj=Registry())
        assert hint in str(done.exception)
