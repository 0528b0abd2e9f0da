"""`ale new` as from a shell."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from ale.hookspecs import ale_commands
from ale_workbench.new.command import command
from ale_workbench.new.installing import install_command, uv_note
from ale_workbench.new.kinds import KINDS

ROOT = Path(__file__).parents[5]


def new(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_it_writes_a_package_and_prints_the_next_commands(tmp_path: Path) -> None:
    result = new("criterion", "ale-criterion-min-size", "--directory", str(tmp_path))
    root = tmp_path / "ale-criterion-min-size"
    made = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert result.exit_code == 0
    assert made == [
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/ale_criterion_min_size/__init__.py",
        "src/ale_criterion_min_size/criterion.py",
        "src/ale_criterion_min_size/plugin.py",
        "src/ale_criterion_min_size/py.typed",
        "tests/test_criterion.py",
    ]
    assert (
        f"""
Next:
  cd {root}
  {install_command()}
  pytest
  ale plugins criterion min_size
Then replace the implementation in src/ale_criterion_min_size/criterion.py.
"""
        in result.output
    )
    assert [line for line in result.output.splitlines() if line.startswith("wrote ")] == [
        f"wrote {root / path}" for path in sorted(made, key=result.output.index)
    ]


def test_an_objective_says_how_to_get_torch_without_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for there in (None, ModuleSpec("torch", None)):
        monkeypatch.setattr("importlib.util.find_spec", lambda _, found=there: found)
        with monkeypatch.context() as patched:
            patched.setattr("ale_workbench.new.installing.install_command", lambda: "install")
            patched.setattr("ale_workbench.new.installing.uv_note", lambda: None)
            done = new(
                "objective",
                f"ale-loss-{'with' if there else 'without'}",
                "--directory",
                str(tmp_path),
            )
        assert ("whl/cpu" in done.output) == (there is None), done.output


def test_a_kind_by_another_word_is_told_its_name() -> None:
    assert "did you mean 'objective'?" in new("loss", "ale-loss-mine").output


def specs(pip: bool, ale: Path) -> Callable[[str], ModuleSpec | None]:
    """An environment with or without pip, whose `ale` is in a folder."""
    known = {"ale": ModuleSpec("ale", None, origin=str(ale / "src/ale/__init__.py"))}
    known |= {"pip": ModuleSpec("pip", None)} if pip else {}
    return known.get


def test_the_next_commands_fit_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "check out" / "core"
    checkout.mkdir(parents=True)
    (checkout / "pyproject.toml").touch()

    def printed(*, pip: bool, uv: bool, ale: Path) -> tuple[str, str | None]:
        monkeypatch.setattr("importlib.util.find_spec", specs(pip, ale))
        monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/uv" if uv else None)
        note = uv_note()
        return install_command(), note and note.partition("\n  ")[2]

    with_pip, with_uv = "pip install -e '.[test]'", "uv pip install -e '.[test]'"
    kits = tmp_path / "check out" / "plugins" / "libraries" / "ale-testing"
    from_checkout = f"{with_uv} -e '{checkout}' -e '{kits}'"
    assert printed(pip=True, uv=True, ale=tmp_path) == (with_pip, None)
    assert printed(pip=True, uv=True, ale=checkout) == (with_pip, from_checkout)
    assert printed(pip=False, uv=True, ale=tmp_path) == (with_uv, None)
    assert printed(pip=False, uv=True, ale=checkout) == (from_checkout, None)
    bare = f"python -m ensurepip && python -m {with_pip}"
    assert printed(pip=False, uv=False, ale=tmp_path) == (bare, None)


def test_author_licence_and_homepage_are_in_the_metadata(tmp_path: Path) -> None:
    author = 'Ada "Countess" Lovelace <ada@example.org>'
    options = ("--author", author, "--license", "MIT", "--url", "https://example.org/ale-mine")
    assert new("llm", "ale-mine", "--directory", str(tmp_path), *options).exit_code == 0
    folder = tmp_path / "ale-mine"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["authors"] == [{"name": 'Ada "Countess" Lovelace', "email": "ada@example.org"}]
    assert (project["license"], project["license-files"]) == ("MIT", ["LICENSE"])
    assert project["urls"] == {"Homepage": "https://example.org/ale-mine"}
    copyright_line = (folder / "LICENSE").read_text().splitlines()[2]
    assert re.fullmatch(r'Copyright \(c\) \d{4} Ada "Countess" Lovelace', copyright_line)


def test_without_options_the_package_is_under_the_licence_of_ale(tmp_path: Path) -> None:
    assert new("agent", "ale-mine", "--directory", str(tmp_path)).exit_code == 0
    folder = tmp_path / "ale-mine"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["authors"] == [{"name": "The authors of ale-mine"}]
    assert project["license"] == "Apache-2.0"
    assert "urls" not in project
    assert project["description"] == "An agent for ale: mine."
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_without_a_directory_it_writes_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert new("command", "ale-hi").exit_code == 0
    assert (tmp_path / "ale-hi" / "pyproject.toml").is_file()


def test_an_existing_folder_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "ale-mine").mkdir()
    result = new("llm", "ale-mine", "--directory", str(tmp_path))
    assert (result.exit_code, list((tmp_path / "ale-mine").iterdir())) == (2, [])
    assert f"{tmp_path / 'ale-mine'} exists already" in result.output


def test_a_command_that_exists_already_is_refused(tmp_path: Path) -> None:
    group = click.Group(commands=[command, click.Command("show")])

    def under_ale(*arguments: str) -> Result:
        return CliRunner().invoke(group, ["new", *arguments, "--directory", str(tmp_path)])

    refused = under_ale("command", "ale-command-show")
    assert refused.exit_code == 2
    assert "'ale show' exists already" in refused.output
    assert list(tmp_path.iterdir()) == []
    assert under_ale("command", "ale-command-hi").exit_code == 0
    assert under_ale("llm", "ale-llm-show").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("criteria", "ale-mine"), "did you mean 'criterion'?"),
        (("llm", "My_Model"), "try 'my-model'"),
        (("llm", "ale-mine", "--directory", "nowhere"), "'nowhere' does not exist"),
        (("llm", "ale-mine", "--license", "GPL"), "'GPL' is not one of 'Apache-2.0', 'MIT'"),
        (("llm", "ale-mine", "--author", "Ada <nowhere>"), "'NAME <ADDRESS>'"),
        (("llm", "ale-mine", "--url", "example.org"), "'example.org' is not a URL"),
        (("llm",), "Missing argument 'NAME'"),
    ],
)
def test_bad_input_is_exit_status_2(arguments: tuple[str, ...], message: str) -> None:
    result = new(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    result = new("llm", "ale-" + "x" * 300, "--directory", str(tmp_path))
    assert result.exit_code == 2
    assert "File name too long; expected a folder in which you may make one" in result.output
    assert "[Errno" not in result.output


def test_help_names_every_kind_and_has_an_example() -> None:
    help_text = " ".join(new("--help").output.split())
    assert [kind for kind in KINDS if kind not in help_text] == []
    assert "ale new criterion ale-criterion-min-size" in help_text


def test_importing_the_command_reads_no_template_and_no_more_than_click() -> None:
    code = (
        "import sys, ale_workbench.new.command;"
        "print([name for name in ('ale_workbench.new.kinds', 'ale_workbench.new.writing',"
        " 'string', 'asyncio', 'importlib.resources')"
        " if name in sys.modules and name not in before])"
    )
    seen = subprocess.run(
        [sys.executable, "-c", f"import sys, click, ale.plugin; before = set(sys.modules); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout == "[]\n"


def test_the_command_is_registered_by_the_hook_for_commands() -> None:
    from ale_workbench import plugin

    assert plugin.ale_commands.__name__ == ale_commands.__name__
    assert "new" in [each.name for each in plugin.ale_commands()["Extend"]]
