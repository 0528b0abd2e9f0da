"""What `ale init` finds on a machine. At a terminal, with real packages: tests/e2e/test_init.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from ale.errors import InputError, Problem, StoreError
from ale.plugin import Component, Probe, doc, hookimpl
from ale.runs import Registry
from ale.testing.openai_server import openai_server
from ale_workbench.machine.servers import Server, answering
from ale_workbench.machine.wizard import Given, _Asking, _chosen, _sandboxes, run

SILENT = "http://127.0.0.1:1/v1"


def _never(options: Any, context: Any) -> Any:
    raise AssertionError("nothing is built")


def registry(url: str = SILENT) -> Registry:
    """Two sandboxes of which one is usable, models here and elsewhere, and agents."""

    @frozen(kw_only=True)
    class Local:
        """A server on this machine."""

        base_url: str = field(default=url, metadata=doc("Where."))
        model: str = field(metadata=doc("Which."))

    @frozen(kw_only=True)
    class Far:
        """A server elsewhere, which is not asked."""

        base_url: str = field(default="https://api.example.org/v1", metadata=doc("Where."))

    class Package:
        @hookimpl
        def ale_sandboxes(self) -> Sequence[Any]:
            yes, no = Probe(usable=True, reason="it is here"), Probe(usable=False, reason="gone")
            return [
                Component("folder", None, _never, probe=lambda: yes, summary="F"),
                Component("absent", None, _never, probe=lambda: no, summary="A"),
            ]

        @hookimpl
        def ale_llms(self) -> Sequence[Any]:
            return [
                Component("local", Local, _never, summary="L"),
                Component("far", Far, _never, summary="F"),
                Component("plain", None, _never, summary="P"),
            ]

        @hookimpl
        def ale_agents(self) -> Sequence[Any]:
            return [
                Component("another", None, _never, needs=("llm",), summary="A"),
                Component("iflow", None, _never, needs=("llm",), summary="I"),
                Component("noop", None, _never, summary="N"),
            ]

    made = Registry()
    made.add(Package(), "kit")
    return made


def test_servers_that_list_models_are_found_and_others_are_not() -> None:
    script = {"*": {"text": "Hm."}, "models": [{"id": "big"}, {"id": "small"}]}
    with openai_server(script) as server:
        found = answering(registry(server.url))
        assert found == [Server(llm="local", base_url=server.url, models=("big", "small"))]
    assert answering(registry(server.url)) == []


def test_what_is_recommended_is_what_is_here() -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        sections = _chosen(_Asking(False), Given(), registry(server.url))
    assert sections == {
        "tasks": {"type": "tbp", "path": "tasks"},
        "sandbox": {"type": "auto"},
        "llm": {"type": "local", "base_url": server.url, "model": "scripted"},
        "agent": {"type": "iflow"},
        "run": {"rollouts": 4},
    }


def test_a_sandbox_that_is_not_usable_is_not_offered() -> None:
    assert [name for name, _ in _sandboxes(registry())] == ["auto", "folder"]


def test_without_a_model_server_none_is_made_up() -> None:
    with pytest.raises(InputError, match="no model server answers") as refused:
        _chosen(_Asking(False), Given(), registry())
    assert SILENT in str(refused.value)
    with pytest.raises(InputError, match="lists no models"):
        _chosen(_Asking(False), Given(llm="local"), registry())
    given = Given(llm="far", model="m")
    assert _chosen(_Asking(False), given, registry())["llm"] == {"type": "far", "model": "m"}


@pytest.mark.parametrize(
    ("given", "message"),
    [({"llm": "opnai"}, "--llm: no llm 'opnai'"), ({"sandbox": "lcal"}, "--sandbox: no sandbox")],
)
def test_a_misspelt_name_is_the_first_thing_said(
    tmp_path: Path, given: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        run(tmp_path / "ale.yaml", Given(**given), Registry.installed(), asks=False)
    assert message in str(refused.value)


def test_a_file_that_exists_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "ale.yaml"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        run(path, Given(), registry(), asks=False)
    assert path.read_text() == "mine"


def test_a_config_that_is_not_valid_is_not_written(tmp_path: Path) -> None:
    given = Given(llm="local", model="m")
    with pytest.raises(InputError, match="tbp") as refused:  # there is no such task source here
        run(tmp_path / "ale.yaml", given, registry(), asks=False)
    assert "ale.yaml" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_attempts_is_asked_again_until_it_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter(["many", "0", "3"])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(answers))
    given = Given(tasks="tasks", sandbox="auto", llm="far", model="m", agent="iflow")
    assert _chosen(_Asking(True), given, registry())["run"] == {"rollouts": 3}


@pytest.mark.parametrize("tasks", ["a/b/c", "~/a/b"])
def test_what_could_not_be_checked_leaves_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    given = Given(llm="local", model="m", tasks=tasks)
    with pytest.raises(InputError, match="tbp"):
        run(tmp_path / "ale.yaml", given, registry(), asks=False)
    assert list(tmp_path.iterdir()) == []


def test_a_home_folder_of_tasks_is_where_the_config_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("ale_workbench.machine.wizard.check_config", lambda path, registry: None)
    given = Given(llm="local", model="m", tasks="~/mine")
    run(tmp_path / "ale.yaml", given, registry(), asks=False)
    assert (tmp_path / "home" / "mine" / "hello.yaml").exists()
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(
    ("path", "typed"),
    [("ale.yaml", "ale.yaml"), ("my own.yaml", "'my own.yaml'"), ("-x.yaml", "./-x.yaml")],
)
def test_the_next_commands_can_be_typed_as_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    path: str,
    typed: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ale_workbench.machine.wizard.check_config", lambda path, registry: None)
    run(Path(path), Given(llm="local", model="m"), registry(), asks=False)
    assert capsys.readouterr().out.endswith(f"Next:\n  ale check {typed}\n  ale run {typed}\n")


def test_a_mistake_in_tasks_names_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks").mkdir()

    def refuse(path: Path, registry: Registry) -> None:
        ours, theirs = str(path), str(tmp_path / "tasks" / "a.yaml")
        raise InputError(
            [
                Problem(message="wrong here", file=ours, line=3, path="llm"),
                Problem(message="wrong there", file=theirs, line=2),
            ]
        )

    monkeypatch.setattr("ale_workbench.machine.wizard.check_config", refuse)
    with pytest.raises(InputError) as refused:
        run(tmp_path / "ale.yaml", Given(llm="local", model="m"), registry(), asks=False)
    assert str(refused.value).splitlines() == [
        "llm: wrong here",
        f"{tmp_path / 'tasks' / 'a.yaml'}:2: wrong there",
    ]


@pytest.mark.parametrize("path", ["file/ale.yaml", "gone/ale.yaml"])
def test_where_nothing_can_be_written_it_says_so(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "tasks").mkdir()
    folder = str(tmp_path / "tasks") if "gone" in path else "tasks"
    given = Given(llm="local", model="m", tasks=folder)
    with pytest.raises(StoreError, match="can't be written: N"):
        run(tmp_path / path, given, registry(), asks=False)
    assert {each.name for each in tmp_path.iterdir()} == {"file", "tasks"}
