"""`ale init` at a real terminal and without one, with the packages that are installed."""

import os
import pty
import select
import sys
import time
from pathlib import Path
from typing import Any

from ale.testing.openai_server import openai_server

PATIENCE_S = 300.0


class Terminal:
    """A process at a pseudo-terminal, which is read until it asks and then typed into."""

    def __init__(self, folder: Path, environ: dict[str, str], *command: str) -> None:
        self.shown = ""
        self.process, self._descriptor = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environ)

    def expect(self, text: str) -> None:
        """Read until the terminal shows this, after what was expected before."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < until, self.shown
            assert self._read(), f"it ended without '{text}': {self.shown}"
        self.shown = self.shown.partition(text)[2]

    def type(self, line: str) -> None:
        """A line and the enter key."""
        os.write(self._descriptor, f"{line}\n".encode())

    def ended(self) -> int:
        """Its exit status, once it has ended."""
        while self._read():
            pass
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], PATIENCE_S)
        assert ready, self.shown
        try:
            data = os.read(self._descriptor, 4096)
        except OSError:  # Linux reports the end of the other side so
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


def test_at_a_terminal_it_asks_and_writes_what_was_answered(workshop: Any) -> None:
    with openai_server({"models": [{"id": "big"}, {"id": "small"}], "*": {"text": "?"}}) as server:
        python = str(Path(sys.executable).absolute())
        terminal = Terminal(workshop.folder, workshop.environ, python, "-P", "-m", "ale", "init")
        terminal.expect("Folder of tasks [tasks]")
        terminal.type("")
        terminal.expect("Where do commands run?")
        terminal.expect("1. auto")
        terminal.expect("number [1]")
        terminal.type("1")
        # Where another server answers on this machine, there is a list; else this is all there is.
        while "URL of the model server" not in terminal.shown:
            terminal._read()
            if "number [1]" in terminal.shown:
                listed = [line for line in terminal.shown.splitlines() if "another server" in line]
                terminal.expect("number [1]")
                terminal.type(listed[0].strip().partition(".")[0])
        terminal.type(server.url)
        terminal.expect("Which model?")
        terminal.expect("2. small")
        terminal.expect("number [1]")
        terminal.type("2")
        terminal.expect("Which agent?")
        terminal.expect("1. iflow")
        terminal.expect("number [1]")
        terminal.type("9999")
        terminal.expect("is not in the range")
        terminal.expect("number [1]")
        terminal.type("")
        terminal.expect("Attempts at each task [4]")
        terminal.type("2")
        terminal.expect("ale run ale.yaml")
        assert terminal.ended() == 0
        written = (workshop.folder / "ale.yaml").read_text()
        assert "model: small" in written
        assert f"base_url: '{server.url}'" in written
        assert "rollouts: 2" in written
        checked = workshop.succeeds("check", "ale.yaml", timeout_s=PATIENCE_S)
        assert "1 task x 2 rollouts" in checked.out


def test_without_a_terminal_it_takes_what_is_said_and_the_config_runs(
    workshop: Any, shell: Any
) -> None:
    steps = [
        {"calls": [{"name": "shell", "arguments": {"command": "echo hello > hello.txt"}}]},
        {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]},
    ]
    with openai_server({"conversations": [{"match": "", "steps": steps}]}) as server:
        answers = ("--llm", "openai", "--base-url", server.url, "--sandbox", "local")
        workshop.succeeds("init", "my.yaml", "--yes", *answers, timeout_s=PATIENCE_S)
        workshop.succeeds("run", "my.yaml", timeout_s=PATIENCE_S)
    status = workshop.ale("status", timeout_s=PATIENCE_S)
    assert "completed" in status.out
    assert "1.000" in status.out, "the example's tasks were solved"
    again = workshop.ale("init", "my.yaml", "--yes", *answers, timeout_s=PATIENCE_S)
    assert again.code == 2
    assert "exists already" in again.err


def test_an_agent_that_asks_no_model_needs_no_server(workshop: Any) -> None:
    done = workshop.succeeds("init", "my.yaml", "--yes", "--agent", "oracle", "--sandbox", "local")
    assert "llm" not in (workshop.folder / "my.yaml").read_text().partition("# `ale plugins`")[2]
    done = workshop.ale("run", "my.yaml", timeout_s=PATIENCE_S)
    assert "success      4 of 4" in done.out, done.text


def test_without_a_terminal_it_does_not_wait_for_answers(workshop: Any) -> None:
    done = workshop.ale("init", timeout_s=PATIENCE_S)
    assert done.code == 2
    assert "--yes" in done.err
    done = workshop.ale("init", "--yes", "--llm", "openai", "--model", "m", "--agent", "ifow")
    assert done.code == 2
    assert "did you mean 'iflow'?" in done.err
    assert not list(workshop.folder.glob("*.yaml"))
    assert not (workshop.folder / "tasks").exists()


def test_a_run_at_a_terminal_says_first_what_it_is_doing(workshop: Any) -> None:
    """Before anything is imported that takes seconds, as torch does: here a file that waits."""
    gate = workshop.folder / "gate"
    lines = [
        "import pathlib, time",
        "from ale.plugin import hookimpl",
        f"while not pathlib.Path({str(gate)!r}).exists():",
        "    time.sleep(0.05)",
        "@hookimpl",
        "def ale_run_finished(event): ...",
    ]
    (workshop.folder / "slow.py").write_text("\n".join(lines))
    workshop.task("t")
    finish = {"calls": [{"name": "finish", "arguments": {"summary": "ok"}}]}
    workshop.scripted({"default": [finish]}, plugins=["slow.py"], observers=[{"type": "console"}])
    ale = str(Path(sys.executable).parent / "ale")
    terminal = Terminal(workshop.folder, workshop.environ, ale, "run", "run.yaml")
    terminal.expect("run.yaml: loading its parts, then a check of model and sandbox")
    gate.touch()
    terminal.expect("completed after")
    assert terminal.ended() == 0
    resumed = Terminal(workshop.folder, workshop.environ, ale, "run", "--resume", str(workshop.run))
    resumed.expect(f"{workshop.run.name}: loading its parts")
    assert resumed.ended() == 0
    assert "loading" not in workshop.succeeds("run", "run.yaml").err, "a log has the plan's line"
