"""The command line: output, exit codes and imports."""

import asyncio
import errno
import gc
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from ale._cli.common import RUN
from ale._cli.main import cli, main
from ale._cli.run import _evaluations
from ale._config.load import keys_near
from ale._registry import Registry
from ale._store.index import Index, StoredEpisode
from ale.errors import LLMError
from ale.plugin import hookimpl
from ale.protocols import AgentContext
from ale.text import rate_line, seconds, table
from ale.types import Constraints, Environment, Stop

Ale = Callable[..., Result]


@pytest.fixture
def ale(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ale:
    """Run `ale` with the bench as the only plugin, in a folder with a config of three tasks."""
    (tmp_path / "c.yaml").write_text("tasks: {type: list, n: 3}\nagent: {type: bench}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(vars(cli), "registry", registry)
    monkeypatch.setitem(vars(cli), "added", {})  # so that it is put back after the test
    del vars(cli)["added"]

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments)

    return invoke


def only_run(tmp_path: Path) -> str:
    (run,) = (tmp_path / "runs").iterdir()
    return str(run)


class Inspects:
    """A package with commands that look at stored runs."""

    @hookimpl
    def ale_commands(self) -> list[click.Command]:
        return [click.Command("show")]


def test_a_run_ends_with_a_summary_its_directory_and_commands_to_try(
    ale: Ale, registry: Registry, tmp_path: Path
) -> None:
    registry.add(Inspects(), "ale-inspects")
    done = ale("run", "c.yaml")
    assert done.exit_code == 0, done.output
    assert "completed: 3 episodes on disk" in done.output
    assert "success      3 of 3  100.0%  (95% interval 43.9 to 100.0)" in done.output
    path = Path(only_run(tmp_path)).relative_to(tmp_path)
    assert f"ale show {path}" in done.output


def test_a_run_ends_with_a_summary_where_only_linux_knows_when_a_process_began(
    ale: Ale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    done = ale("run", "c.yaml")
    assert done.exit_code == 0, done.exception
    assert "completed: 3 episodes on disk" in done.output


def test_only_installed_commands_are_suggested(ale: Ale) -> None:
    output = ale("run", "c.yaml").output
    assert "stored in" in output
    assert "next" not in output


@pytest.mark.parametrize("rollouts", [1, 2])
def test_suggested_commands_can_be_pasted_into_a_shell(
    ale: Ale, registry: Registry, tmp_path: Path, rollouts: int
) -> None:
    registry.add(Inspects(), "ale-inspects")
    named = ("--set", "run.name='it is; x'", "--set", f"run.rollouts={rollouts}")
    done = ale("run", "c.yaml", *named)
    path = str(Path(only_run(tmp_path)).relative_to(tmp_path))
    assert f"stored in\n  {path}\n" in done.output
    pasted = [shlex.split(line) for line in done.output.partition("next\n")[2].splitlines()]
    of_groups = ["ale", "show", "credit", path]
    assert pasted == [["ale", "show", path], *([of_groups] if rollouts > 1 else [])]


def test_a_run_with_broken_episodes_exits_with_3(ale: Ale, bench: Any) -> None:
    async def agent(_: AgentContext) -> Stop:
        raise LLMError("down")

    bench.agent = agent
    done = ale("run", "c.yaml", "--no-checks")
    assert done.exit_code == 3
    assert "broken       3" in done.output


def test_bad_input_exits_with_2_and_starts_nothing(ale: Ale, tmp_path: Path) -> None:
    done = ale("run", "c.yaml", "--set", "agent.type=bensh", "--set", "run.sed=1")
    assert done.exit_code == 2
    assert "did you mean 'bench'?" in done.output
    assert "did you mean 'seed'?" in done.output
    assert done.output.endswith("2 problems; nothing was started.\n")
    assert not (tmp_path / "runs").exists()
    assert ale("check", "c.yaml", "--set", "run.sed=1").output.endswith("\n1 problem.\n")


def test_the_first_of_many_problems_are_shown(ale: Ale) -> None:
    done = ale("check", "c.yaml", *(part for n in range(30) for part in ("--set", f"run.k{n}=1")))
    assert done.exit_code == 2
    assert "run.k19: unknown option" in done.output
    assert "run.k20" not in done.output
    assert done.output.endswith("\n30 problems, of which these are the first 20.\n")


def test_a_dry_run_prints_the_plan_and_starts_nothing(ale: Ale, tmp_path: Path) -> None:
    done = ale("run", "c.yaml", "--dry-run", "--set", "run.rollouts=4", "-n", "2")
    assert done.exit_code == 0
    assert (
        "3 tasks; 1 step of 3 tasks x 4 rollouts: 12 episodes, at most 2 at the same time"
        in done.output
    )
    assert not (tmp_path / "runs").exists()


def test_check_reports_a_valid_config(ale: Ale) -> None:
    done = ale("check", "c.yaml")
    assert (done.exit_code, "Config is valid." in done.output) == (0, True)


@pytest.mark.parametrize(
    "arguments", [(), ("c.yaml", "--resume", "x"), ("--resume", "x", "--set", "a.b=1")]
)
def test_a_run_takes_a_config_or_a_directory_to_resume(ale: Ale, arguments: Any) -> None:
    assert ale("run", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("--rollout", "--set run.rollouts=VALUE"),
        ("--rollouts", "--set run.rollouts=VALUE"),
        ("--stop-after-brokn", "--set run.stop_after_broken=VALUE"),
        ("--n", "--set tasks.n=VALUE"),
        ("--tasks.n", "--set tasks.n=VALUE"),
        ("--credit", "--set credit.type=VALUE"),
    ],
)
def test_an_unknown_option_near_a_key_of_the_config_is_shown_as_set_takes_it(
    ale: Ale, typed: str, written: str
) -> None:
    refused = ale("run", "c.yaml", typed, "2")
    assert refused.exit_code == 2
    assert f"no such option {typed}; write {written}" in refused.output


def test_an_option_of_the_command_comes_before_a_key_that_is_as_near(
    registry: Registry,
) -> None:
    assert keys_near("--sed", ["--set"], registry) == ["run.seed"]
    assert keys_near("--sed", ["--saed"], registry) == []


@pytest.mark.parametrize("typed", ["--resum", "--dryrun", "--replays", "--quux", "--concurency"])
def test_an_unknown_option_near_none_or_one_of_the_commands_own_names_no_key(
    ale: Ale, typed: str
) -> None:
    refused = ale("run", "c.yaml", typed)
    assert refused.exit_code == 2
    assert "--set" not in refused.output


def test_a_run_without_a_config_takes_the_one_that_init_writes(ale: Ale, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").rename(tmp_path / "ale.yaml")
    assert ale("run").exit_code == 0
    assert ale("run", "--resume", "latest").exit_code == 0


def test_the_latest_run_is_found_by_when_it_was_created(ale: Ale, tmp_path: Path) -> None:
    assert "there is no run in ./runs" in ale("run", "--resume", "latest").output
    for name, created in (("z", "2026-01-01T00:00:00"), ("a", "2026-01-02T00:00:00")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "manifest.json").write_text(f'{{"created": "{created}"}}')
    assert RUN.convert("latest", None, None) == Path("runs/a")
    nested = tmp_path / "runs" / "of-a-benchmark" / "b"
    nested.mkdir(parents=True)
    (nested / "manifest.json").write_text('{"created": "2026-01-03T00:00:00"}')
    assert RUN.convert("latest", None, None) == Path("runs/of-a-benchmark/b")


def test_an_option_of_the_section_run_is_shown_as_set_takes_it(ale: Ale) -> None:
    done = ale("run", "c.yaml", "--rollouts", "3")
    assert done.exit_code == 2
    assert "--set run.rollouts=VALUE" in done.output
    assert "run.rolouts" not in ale("run", "c.yaml", "--rolouts", "3").output


def test_plugins_lists_kinds_names_and_options(ale: Ale) -> None:
    assert "agent      bench        ale-bench  A test's agent." in ale("plugins").output
    one = ale("plugins", "tasks", "list")
    assert "n       whole number  1        How many." in one.output
    assert ale("plugins", "agnt").exit_code == 2
    gone = ale("plugins", "ale-results")
    assert (gone.exit_code, "part of ale-look now" in gone.output) == (2, True)
    absent = ale("plugins", "agent", "bnch")
    assert (absent.exit_code, "no agent 'bnch'" in absent.output) == (2, True)
    assert "did you mean 'bench'?" in absent.output


def test_a_package_can_add_a_command(ale: Ale, registry: Registry) -> None:
    class Adds:
        @hookimpl
        def ale_commands(self) -> list[click.Command]:
            return [click.Command("hello", callback=lambda: click.echo("hi")), click.Command("run")]

    registry.add(Adds(), "ale-hello")
    listed = ale("--help").output
    assert "the command 'run' is registered by ale-core and by ale-hello" in listed
    assert _sections(listed) == {
        "Run": ["run", "check", "regrade", "steer"],
        "Extend": ["plugins", "doctor"],
        "Others": ["hello"],
    }
    assert ale("hello").output == "hi\n"


def _sections(output: str) -> dict[str, list[str]]:
    """The commands of `ale --help` by section."""
    found: dict[str, list[str]] = {}
    for line in output.partition("--help")[2].partition("Exit status")[0].splitlines():
        if title := re.fullmatch(r"([A-Z][\w ]+):", line):
            found[title[1]] = []
        elif name := re.match(r"  ([\w-]+)", line):
            [*found.values()][-1].append(name[1])
    return found


def _saying(name: str, text: str) -> click.Command:
    return click.Command(name, callback=lambda: click.echo(text))


def _package(answer: object) -> object:
    class Adds:
        @hookimpl
        def ale_commands(self) -> object:
            return answer

    return Adds()


def test_packages_name_the_sections_of_their_commands(ale: Ale, registry: Registry) -> None:
    first = {"Look": [click.Command("view")], "Zoo": [click.Command("feed")]}
    second = {"Look": [click.Command("list")], "Run": [click.Command("again")]}
    registry.add(_package(first), "ale-first")
    registry.add(_package(second), "ale-second")
    assert _sections(ale("--help").output) == {
        "Run": ["run", "check", "regrade", "steer", "again"],
        "Look": ["list", "view"],
        "Extend": ["plugins", "doctor"],
        "Zoo": ["feed"],
    }


def test_groups_of_the_same_name_are_joined(ale: Ale, registry: Registry) -> None:
    ours = click.Group("data", [_saying("make", "made"), _saying("both", "ours")])
    theirs = click.Group("data", [_saying("send", "sent"), _saying("both", "theirs")])
    registry.add(_package({"Data and training": [ours]}), "ale-ours")
    registry.add(_package([theirs]), "ale-theirs")
    for _ in range(2):  # joining them changes neither group
        vars(cli).pop("added", None)
        listed = ale("data", "--help")
        assert "the command 'both' is registered by ale-ours and by ale-theirs" in listed.output
        assert re.findall(r"^  (make|send|both)", listed.output, flags=re.M) == [
            *("both", "make", "send")
        ]
    assert ale("data", "send").output.endswith("sent\n")
    assert ale("data", "both").output.endswith("ours\n")


def test_a_command_that_has_another_name_now_is_named(ale: Ale) -> None:
    old = ale("results", "runs/x")
    assert (old.exit_code, "`ale results` is now `ale show results`" in old.output) == (2, True)


def test_an_added_command_gets_the_registry(ale: Ale, registry: Registry) -> None:
    @click.command("kinds")
    @click.pass_obj
    def kinds(given: Registry) -> None:
        click.echo(given is registry)

    class Adds:
        @hookimpl
        def ale_commands(self) -> list[click.Command]:
            return [kinds]

    registry.add(Adds(), "ale-kinds")
    assert ale("kinds").output == "True\n"


@pytest.mark.parametrize("arguments", [["collecting"], ["--help"], ["--version"]])
def test_garbage_is_collected_in_a_command_and_after_it(
    ale: Ale, registry: Registry, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    class Package:
        @hookimpl
        def ale_commands(self) -> list[click.Command]:
            show = click.Command("collecting", callback=lambda: click.echo(str(gc.isenabled())))
            return [show]

    registry.add(Package(), "ale-extra")
    with pytest.raises(SystemExit):
        main(arguments)
    assert (capsys.readouterr().out == "True\n") == (arguments == ["collecting"])
    assert gc.isenabled()


@pytest.mark.parametrize(("raised", "status"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_ctrl_c_at_a_question_is_an_interrupt(
    ale: Ale, registry: Registry, raised: type, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Package:
        @hookimpl
        def ale_commands(self) -> list[click.Command]:
            return [click.Command("asking", callback=lambda: click.confirm("Sure?"))]

    def end(_: str) -> str:
        raise raised

    registry.add(Package(), "ale-extra")
    monkeypatch.setattr("click.termui.visible_prompt_func", end)
    with pytest.raises(SystemExit) as exits:
        main(["asking"])
    assert exits.value.code == status


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EEXIST, errno.ENOTDIR])
def test_a_file_that_may_not_be_read_or_written_is_named(
    ale: Ale, registry: Registry, number: int
) -> None:
    @click.command()
    @click.argument("file")
    def peek(file: str) -> None:
        """Read a file of another user."""
        raise OSError(number, os.strerror(number), file or None)

    registry.add(SimpleNamespace(ale_commands=hookimpl(lambda: [peek])), "ale-peek")
    found = ale("peek", "runs/x/manifest.json")
    assert (found.exit_code, found.stderr) == (1, f"runs/x/manifest.json: {os.strerror(number)}\n")
    assert isinstance(ale("peek", "").exception, OSError)


def test_a_full_disk_below_the_output_is_named() -> None:
    command = [sys.executable, "-c", "from ale._cli.main import main; main(['plugins'])"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "No space left on device: the output is incomplete\n"


def test_an_argument_that_is_not_utf_8_is_named(ale: Ale, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["run", "c.yaml", "--set", "run.name=b\udcfcro"]
    monkeypatch.setattr(sys, "argv", ["ale", *arguments])
    found = ale(*arguments)
    assert found.exit_code == 2
    assert found.stderr == "'b\ufffdro' is not UTF-8 and can't be used here\n"
    monkeypatch.setattr(sys, "argv", ["ale"])
    assert isinstance(ale(*arguments).exception, UnicodeEncodeError)  # a bug of ours


def test_an_unknown_command_names_the_nearest(ale: Ale) -> None:
    done = ale("chekc")
    assert done.exit_code == 2
    assert "no such command 'chekc'; did you mean 'check'?" in done.output


def test_a_command_that_is_not_installed_is_named_with_its_package(
    ale: Ale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "added", {})
    done = ale("eval")
    assert done.exit_code == 2
    assert "no such command 'eval'; pip install ale-bench; in a clone: pip" in done.output


@pytest.mark.parametrize("name", ["run", "check", "regrade", "steer", "plugins", "doctor"])
def test_every_command_has_help_with_an_example(ale: Ale, name: str) -> None:
    done = ale(name, "--help")
    assert done.exit_code == 0
    assert "Example" in done.output
    assert f"ale {name}" in done.output


def test_help_imports_neither_commands_nor_records_nor_yaml() -> None:
    code = (
        "import sys\nfrom ale._cli.main import cli\n"
        "try: cli(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('ale._cli.run', 'ale.types', 'yaml', 'cattrs', 'msgspec', 'asyncio',"
        " 'importlib.metadata') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_rate_without_a_graded_episode_is_none() -> None:
    assert rate_line([]) == rate_line([(0, 0)]) == "none graded"


def test_durations_are_printed_in_readable_units() -> None:
    assert [seconds(s) for s in (0.85, 12.34, 250, 7500)] == [
        "850 ms",
        "12.3 s",
        "4 min 10 s",
        "2 h 5 min",
    ]


def test_a_table_pads_to_its_widest_cell() -> None:
    assert table(["a", "n"], [["long", "1"]], right=(1,)) == "a     n\nlong  1"


def test_check_prints_every_option_and_marks_the_defaults(ale: Ale) -> None:
    lines = ale("check", "c.yaml", "--set", "run.rollouts=2").output.splitlines()
    assert "tasks     list           n=3" in lines
    assert "          gamma=1.0 (default)" in lines
    assert "run                      rollouts=2" in lines
    assert "          seed=0 (default)" in lines


def test_auto_reports_its_choice_and_what_it_does_not_isolate(ale: Ale) -> None:
    (line,) = ale("check", "c.yaml").stderr.splitlines()
    assert line == (
        "auto: using folder, which does not isolate the network, files or processes from this "
        "machine: no other sandbox is installed"
    )
    assert ale("check", "c.yaml", "--set", "sandbox.type=folder").stderr == ""


def test_a_network_ban_that_the_sandbox_does_not_enforce_is_reported(ale: Ale, bench: Any) -> None:
    offline = Constraints(network=False)
    make = bench.tasks
    bench.tasks = lambda n: [evolve(task, constraints=offline) for task in make(n)]
    for command in ("check", "run"):
        done = ale(command, "c.yaml", "--set", "sandbox.type=folder")
        assert done.exit_code == 0
        assert done.stderr.splitlines()[0] == (
            "network: false, set by 3 tasks (t0, ...), is not enforced: sandbox 'folder' does not "
            "isolate the network"
        )


def test_a_sandbox_without_the_required_isolation_is_refused(ale: Ale, tmp_path: Path) -> None:
    required = ("--set", "sandbox.type=folder", "--set", "sandbox.require=[network, processes]")
    done = ale("run", "c.yaml", *required)
    assert done.exit_code == 2
    assert (
        "sandbox.require: sandbox 'folder' does not isolate the network or processes" in done.stderr
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("named", ["image", "build"])
def test_tasks_with_images_are_refused_by_a_sandbox_without_images(
    ale: Ale, bench: Any, named: str
) -> None:
    environment = Environment(**{named: "debian:13"})
    make = bench.tasks
    bench.tasks = lambda n: [evolve(task, environment=environment) for task in make(n)]
    for command in ("check", "run"):
        done = ale(command, "c.yaml", "--set", "sandbox.type=folder")
        assert done.exit_code == 2
        assert (
            "sandbox.type: 3 tasks (t0, ...) need an image (debian:13), and sandbox 'folder' does "
            "not start from images"
        ) in done.stderr


def test_a_file_in_place_of_a_folder_for_runs_is_refused(ale: Ale, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for command in ("check", "run"):
        done = ale(command, "c.yaml", "--set", f"run.directory={file}/runs")
        assert done.exit_code == 2
        assert "run.directory: the run can't be stored in " in done.stderr
        assert f": {file} is not a folder" in done.stderr
    done = ale("run", "c.yaml", "--directory", "file", "--dry-run")
    assert done.exit_code == 2
    assert f"the run can't be stored in {file}: {file} is not a folder" in done.stderr


def test_a_folder_without_runs_is_refused_as_such(ale: Ale, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = ale("run", "--resume", "empty")
    assert done.exit_code == 2
    assert "not a run directory (no manifest.json)" in done.stderr
    assert "expected  the directory of a run" in done.stderr
    assert "the folder contains no runs" in done.stderr


def test_a_missing_run_is_looked_for_in_runs(ale: Ale, tmp_path: Path) -> None:
    assert "ale status lists the runs in ./runs" in ale("run", "--resume", "absent").stderr
    assert ale("run", "c.yaml", "--directory", "runs/one").exit_code == 0
    assert f"did you mean '{tmp_path}/runs/one'?" in ale("run", "--resume", "one").stderr
    assert (
        "c.yaml: is a file, not the directory of a run" in ale("run", "--resume", "c.yaml").stderr
    )


def test_a_run_that_was_moved_is_found_by_its_name_and_no_other_is_suggested(
    ale: Ale, tmp_path: Path
) -> None:
    first, second = "20260101-120000-3f2a-c", "20260101-120107-9b1e-c"
    for name in (first, second):
        assert ale("run", "c.yaml", "--directory", f"runs/{name}").exit_code == 0
    (tmp_path / "runs/old").mkdir()
    (tmp_path / "runs" / first).rename(tmp_path / "runs/old" / first)
    gone = ale("run", "--resume", f"runs/{first}").stderr
    assert f"runs/{first}: no such directory" in gone
    assert f"did you mean '{tmp_path}/runs/old/{first}'?" in gone
    (tmp_path / "runs/old" / first).rename(tmp_path / first)
    gone = ale("run", "--resume", f"runs/{first}").stderr
    assert "ale status lists the runs in ./runs" in gone
    misspelt = ale("run", "--resume", f"runs/{second.replace('9b1e', '9b1f')}").stderr
    assert f"did you mean '{second}'?" in misspelt
    assert f"did you mean '{second}'?" in ale("run", "--resume", "runs/9b1e").stderr


def test_latest_is_a_run_that_the_user_started_and_no_part_of_a_validation(
    ale: Ale, tmp_path: Path
) -> None:
    part = "runs/validate-c/tools"
    assert ale("run", "c.yaml", "--directory", part).exit_code == 0
    (tmp_path / "runs/validate-c/validation.json").write_text("{}")
    only = ale("run", "--resume", "latest")
    assert only.exit_code == 2
    assert "runs/validate-c, which is newer, is a validation: name one of its runs" in only.stderr
    assert ale("run", "c.yaml", "--directory", "runs/mine").exit_code == 0
    for name, year in (("runs/mine", 2020), (part, 2021)):
        file = tmp_path / name / "manifest.json"
        made = json.loads(file.read_text()) | {"created": f"{year}-01-01T00:00:00+00:00"}
        file.write_text(json.dumps(made))
    done = ale("run", "--resume", "latest")
    assert done.exit_code == 0, done.output
    assert "latest is runs/mine; runs/validate-c, which is newer, is a validation" in done.stderr
    folder = ale("run", "--resume", "runs/validate-c").stderr
    assert "it is a validation, which `ale validate` shows; its runs: tools" in folder


def test_to_resume_a_complete_run_does_not_make_it_longer(ale: Ale, tmp_path: Path) -> None:
    def seconds() -> float:
        manifest = json.loads((tmp_path / "r/manifest.json").read_text())
        return float(manifest["outcome"]["seconds"])

    assert ale("run", "c.yaml", "--directory", "r").exit_code == 0
    before = seconds()
    for _ in range(2):
        done = ale("run", "--resume", "r")
        assert done.exit_code == 0, done.output
        assert ", of which" not in done.output
        assert seconds() == before


def test_the_time_in_which_broken_episodes_are_sampled_again_counts(
    ale: Ale, bench: Any, tmp_path: Path
) -> None:
    async def broken(_: AgentContext) -> Stop:
        raise LLMError("down")

    async def slow(_: AgentContext) -> Stop:
        await asyncio.sleep(0.2)
        return Stop(reason="finished")

    manifest = tmp_path / "r/manifest.json"
    bench.agent = broken
    once = ("--no-checks", "--set", "run.retries=0")
    assert ale("run", "c.yaml", "--directory", "r", *once).exit_code == 3
    before = json.loads(manifest.read_text())["outcome"]["seconds"]
    bench.agent = slow
    done = ale("run", "--resume", "r", "--retry-broken")
    assert done.exit_code == 0, done.output
    assert ", of which" in done.output
    assert json.loads(manifest.read_text())["outcome"]["seconds"] > before + 0.2


def test_every_mistake_in_the_evaluation_is_reported(ale: Ale) -> None:
    done = ale("check", "c.yaml", "--set", "evaluation.evry=3")
    assert "evaluation.evry: unknown option" in done.stderr
    assert "evaluation.tasks: 'tasks' is missing" in done.stderr


def test_one_of_something_is_not_plural(ale: Ale) -> None:
    assert "1 episode on disk" in ale("run", "c.yaml", "--set", "tasks.n=1").output


def test_doctor_starts_with_the_sandbox_that_auto_chooses(ale: Ale) -> None:
    first, second, *_ = ale("doctor").output.splitlines()
    assert first == "auto: folder (A folder.)"
    assert second == "auto with sandbox.image: folder (A folder.)"


MINE = """\
from ale.plugin import Component, hookimpl


class Agent:
    limits = None

    async def run(self, context):
        raise RuntimeError("called")


@hookimpl
def ale_agents():
    return [Component("mine", None, lambda options, context: Agent(), summary="Mine.")]
"""


def test_a_config_can_name_a_plugin_file_relative_to_itself(ale: Ale, tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "c.yaml").write_text(
        "plugins: [./mine.py]\ntasks: {type: list}\nagent: {type: mine}\n"
    )
    done = ale("check", "sub/c.yaml")
    assert done.exit_code == 0, done.output
    assert "agent     mine" in done.output


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os\n1 / 0\n", "mine.py:2: failed to load: ZeroDivisionError: division by zero"),
        ("x = 1\ndef f(:\n", "mine.py:2: failed to load: SyntaxError"),
        (MINE.replace("ale_agents", "ale_agent"), "no such hook: ale_agent"),
        (
            MINE + "\n\n@hookimpl\ndef ale_llms():\n    return [nothing]\n",
            "mine.py:18: broke",
        ),
        ("x = 1\n", "mine.py: registers nothing: it has no hook"),
        (None, "no such file"),
    ],
)
def test_a_broken_plugin_file_is_an_error_of_the_config_with_its_line(
    ale: Ale, tmp_path: Path, code: str | None, message: str
) -> None:
    if code is not None:
        (tmp_path / "mine.py").write_text(code)
    config = (tmp_path / "c.yaml").read_text()
    (tmp_path / "c.yaml").write_text(f"{config}plugins:\n  - mine.py\n")
    done = ale("run", "c.yaml")
    assert done.exit_code == 2
    assert "c.yaml:4: plugins[0]: " in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_evaluations_are_listed_by_temperature_not_as_they_ended() -> None:
    index = Index()
    for temperature in (1.0, None, 0.3, 0.0):
        index.add(evaluated("a", 0, 1.0, temperature), 0)
    named = [line.rpartition(", ")[2] for line in _evaluations(index)]
    assert named == ["greedy", "T=0.3", "T=1", "sampled"]


def test_rollouts_of_one_held_out_task_are_not_as_many_trials() -> None:
    """A task decides each of them: 2 of 3 tasks, see `ale.intervals.success_interval`."""
    index = Index()
    for task, reward in {"a": 1.0, "b": 1.0, "c": 0.0}.items():
        for rollout in range(8):
            index.add(evaluated(task, rollout, reward), 0)
    (line,) = _evaluations(index)
    assert line.split(None, 3)[3] == (
        "16 of 24  66.7%  (95% interval 20.8 to 93.9) on held-out tasks"
    )


def evaluated(
    task_id: str, rollout: int, reward: float, temperature: float | None = None
) -> StoredEpisode:
    return StoredEpisode(
        id=f"{task_id}{rollout}{temperature}",
        task_id=task_id,
        step=0,
        rollout=rollout,
        reward=reward,
        split="evaluation",
        temperature=temperature,
    )
