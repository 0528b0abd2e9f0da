"""Help texts and exit codes."""

import re
from typing import Any

import pytest

SECTIONS = {
    "Run": ["run", "check", "regrade", "steer", "ablate", "art", "eval", "plan", "validate"],
    "Look": ["audit", "monitor", "report", "runs", "show", "view"],
    "Data and training": ["data", "loop", "model", "skills", "train"],
    "Models and machines": [
        *("engines", "launch", "proxy", "sandbox", "serve", "status", "workers")
    ],
    "Extend": ["plugins", "doctor", "init", "new", "schema"],
}
COMMANDS = [command for commands in SECTIONS.values() for command in commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_an_example(workshop: Any, command: str) -> None:
    printed = workshop.succeeds(command, "--help")
    examples = re.findall(rf"^ +(?:Example: )?ale {command}\b", printed.out, flags=re.M)
    assert examples, printed.out


def test_the_help_lists_every_command_and_exit_code(workshop: Any) -> None:
    printed = workshop.ale("--help")
    for section, commands in SECTIONS.items():
        listed = printed.out.partition(f"\n{section}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  ([\w-]+)  ", listed, flags=re.M) == commands
    codes = re.findall(r"\b(\d+) [a-z]", printed.out.partition("Exit status:")[2])
    assert codes == ["0", "1", "2", "3", "4", "5", "75", "130", "143"]


def test_the_help_of_a_group_lists_whole_sentences(workshop: Any) -> None:
    for group in ("data", "loop", "runs", "skills", "workers"):
        printed = workshop.ale(*group.split(), "--help").out.partition("Commands:")[2]
        assert "  " in printed, group
        assert "..." not in printed, printed
    assert "..." not in workshop.ale("--help").out.partition("Run:")[2]


def test_the_exit_codes_match_the_help(workshop: Any, shell: Any) -> None:
    """130 and 143 are in test_signals, 1 for a full disk in test_full_disk."""
    workshop.task("t")
    workshop.scripted({"default": shell("touch done")})
    workshop.succeeds("run", "run.yaml")
    assert workshop.ale("run", "absent.yaml").code == 2
    assert workshop.ale("run").code == 2
    assert workshop.ale("rum").code == 2
    assert "did you mean 'run'?" in workshop.ale("rum").err
    assert workshop.ale("show", "absent").code == 2
    assert workshop.ale("plugins", "agent", "absent").code == 2
    workshop.write("script.yaml", {"default": [{"error": "gone"}]})
    assert workshop.ale("run", "run.yaml").code == 3


def test_the_version_is_the_cores(workshop: Any) -> None:
    assert re.fullmatch(r"ale, version \d+\.\d+\.\d+\n", workshop.ale("--version").out)
