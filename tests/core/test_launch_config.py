"""The section `launch`, and a run directory that the launcher names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen
from click.testing import CliRunner, Result

from ale._cli.main import cli
from ale._config import load_config
from ale._registry import Registry
from ale.errors import InputError
from ale.plugin import BuildContext, Component, Ranks, doc, hookimpl
from ale.protocols import LOGS, Launch, Process
from ale.runs import check_config
from ale.testing.fakes import FakeChunker

Ale = Callable[..., Result]
BASE = "tasks: {type: list, n: 3}\nagent: {type: bench}\n"


@frozen(kw_only=True)
class LauncherOptions:
    """Options of one launcher."""

    queue: str = field(default="short", metadata=doc("Where to."))


class Launchers:
    """Registers launchers; no test starts one."""

    @hookimpl
    def ale_launchers(self) -> list[Component[Any, Any]]:
        return [
            Component("local", None, lambda o, c: None, summary="Here."),
            Component("queue", LauncherOptions, lambda o, c: None, summary="There."),
        ]


@pytest.fixture
def read(registry: Registry, tmp_path: Path) -> Callable[..., Any]:
    registry.add(Launchers(), "ale-launchers")

    def made(section: str, *overrides: str) -> Any:
        (tmp_path / "c.yaml").write_text(f"{BASE}launch: {section}\n")
        return load_config(tmp_path / "c.yaml", registry, overrides)

    return made


def test_options_of_every_launcher_stand_beside_its_own(read: Callable[..., Any]) -> None:
    process = "{name: sample, role: server, command: [serve, x], count: 2, gpus: 1}"
    config = read(f"{{type: queue, queue: long, nodes: 2, restarts: 0, processes: [{process}]}}")
    assert config.launch.options == LauncherOptions(queue="long")
    assert (config.launching.nodes, config.launching.restarts) == (2, 0)
    (sample,) = config.launching.processes
    assert (sample.name, sample.command, sample.count) == ("sample", ("serve", "x"), 2)
    assert config.resolved["launch"]["nodes"] == 2
    assert config.resolved["launch"]["queue"] == "long"


def test_without_a_type_the_launcher_is_this_machine(read: Callable[..., Any]) -> None:
    assert read("{restarts: 1}").launch.name == "local"


def test_without_a_section_there_is_no_launcher(read: Callable[..., Any]) -> None:
    config = read("null")
    assert config.launch is None
    assert "launch" not in config.resolved


def test_another_launcher_keeps_what_every_launcher_has(read: Callable[..., Any]) -> None:
    config = read("{type: queue, queue: long, nodes: 2}", "launch.type=local")
    assert (config.launch.name, config.launching.nodes) == ("local", 2)
    assert config.notes == [
        "--set launch.type=local: dropped launch.queue, which local does not have"
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{type: queue, restart: 1}", "did you mean 'restarts'"),
        ("{type: queue, nodes: 0}", "launch.nodes"),
        ("{type: queu}", "no launcher 'queu'"),
        ("{processes: [{name: run, role: server, command: [x]}]}", "not 'run'"),
        ("{processes: [{name: a b, role: server, command: [x]}]}", "expected a word"),
        ("{processes: [{name: a, role: trainer, command: [x]}]}", "role"),
        ("{processes: [{name: a, role: server, command: []}]}", "command"),
    ],
)
def test_what_is_wrong_is_named(read: Callable[..., Any], section: str, message: str) -> None:
    with pytest.raises(InputError, match=r"c\.yaml:3") as caught:
        read(section)
    assert message in str(caught.value)


def test_processes_have_a_name_and_a_log_each(tmp_path: Path) -> None:
    one = Process(name="one", role="server", command=("x",))
    two = Process(name="two", role="worker", command=("x",), count=2)
    launch = Launch(name="r", directory=tmp_path, run=one, others=[two])
    assert [*one.names, *two.names] == ["one", "two-0", "two-1"]
    assert launch.log("two-1") == tmp_path / "logs" / "two-1.log"


def test_a_trainer_says_how_torchrun_starts_it() -> None:
    component: Component[Any, Any] = Component(
        "t", None, lambda o, c: None, summary="", ranks=lambda o: Ranks(count=4, module="m")
    )
    assert component.ranks is not None
    assert component.ranks(None) == Ranks(count=4, module="m")


@pytest.fixture
def ale(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ale:
    (tmp_path / "c.yaml").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(vars(cli), "registry", registry)
    monkeypatch.setitem(vars(cli), "added", {})
    del vars(cli)["added"]
    return lambda *arguments: CliRunner().invoke(cli, arguments)


def test_the_same_command_creates_a_run_and_then_continues_it(ale: Ale, tmp_path: Path) -> None:
    first = ale("run", "c.yaml", "--directory", "out/one")
    assert first.exit_code == 0, first.output
    episodes = (tmp_path / "out" / "one" / "episodes.jsonl").read_bytes()
    again = ale("run", "c.yaml", "--directory", "out/one")
    assert again.exit_code == 0, again.output
    assert "out/one holds a run: it is resumed with its saved config\n" in again.output
    changed = ale("run", "c.yaml", "--directory", "out/one", "--set", "run.seed=7", "-n", "3")
    assert changed.exit_code == 0, changed.output
    assert (
        "saved config, from which c.yaml differs\n  not used: run.seed: 7 (saved: 0)\n"
        "  to use it, choose another --directory\n"
    ) in changed.output
    (tmp_path / "c.yaml").write_text("runn: {}")
    invalid = ale("run", "c.yaml", "--directory", "out/one")
    assert invalid.exit_code == 0, invalid.output
    assert "c.yaml is not used, and is not valid:\n" in invalid.output
    assert (tmp_path / "out" / "one" / "episodes.jsonl").read_bytes() == episodes
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["one"]


def test_a_run_can_be_created_where_its_launcher_has_put_the_logs(ale: Ale, tmp_path: Path) -> None:
    (tmp_path / "one" / LOGS).mkdir(parents=True)
    (tmp_path / "one" / LOGS / "run.log").write_text("starting\n")
    (tmp_path / "one").chmod(0o755)
    assert ale("run", "c.yaml", "--directory", "one").exit_code == 0
    assert (tmp_path / "one" / "manifest.json").exists()
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o700, "nobody else reads it"


def test_a_folder_with_anything_else_is_refused(ale: Ale, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "thesis.tex").write_text("")
    refused = ale("run", "c.yaml", "--directory", "one")
    assert refused.exit_code == 1
    assert "one can't be created: File exists" in refused.output
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["thesis.tex"]


def test_a_directory_and_a_resume_are_one_too_many(ale: Ale) -> None:
    assert ale("run", "--resume", "a", "--directory", "b").exit_code == 2


def test_a_part_is_told_whether_its_config_is_only_checked(
    ale: Ale, registry: Registry, tmp_path: Path
) -> None:
    told = []

    class Asks:
        @hookimpl
        def ale_chunkers(self) -> list[Component[Any, Any]]:
            def build(_: Any, context: BuildContext) -> FakeChunker:
                told.append(context.checking)
                return FakeChunker()

            return [Component("asks", None, build, summary="Asks.")]

    registry.add(Asks(), "ale-asks")
    check_config(tmp_path / "c.yaml", registry, ["chunker.type=asks"])
    for command in ("check", "run"):
        assert ale(command, "c.yaml", "--set", "chunker.type=asks").exit_code == 0
    assert told == [True, True, False]


def test_a_checked_config_says_where_it_is_stored(
    ale: Ale, registry: Registry, tmp_path: Path
) -> None:
    checked = check_config(tmp_path / "c.yaml", registry, directory=tmp_path / "x")
    assert checked.path == tmp_path / "x"
    assert checked.ranks is None
