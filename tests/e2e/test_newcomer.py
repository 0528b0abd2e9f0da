"""A newcomer's first hour: clone, the README's commands, ten mistakes, Ctrl-C and a resume.

All of it happens in one fresh clone of the committed state, in the environment that
``python3 noxfile.py demo`` makes there.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from tempfile import TemporaryFile

import pytest
from attrs import frozen

from ale.testing.waiting import wait_for
from ale_servers.program import free_port

from .preloaded import Preloaded
from .test_docs import missing

ROOT = Path(__file__).parents[2]
SECTIONS = (
    "tasks, sandbox, llm, agent, chunker, credit, starts, trainer, executor, launch, middleware, "
    "scorers, evaluation, observers, run, plugins"
)
RUN_OPTIONS = (
    "alert_if, budget, concurrency, contested, deterministic, directory, grading_timeout_s, "
    "keep, keep_checkpoints, keep_checkpoints_every, lost_sandbox, name, on_sigterm, "
    "open_timeout_s, preflight, refills, retries, rollouts, schedule, seed, setup_timeout_s, "
    "staleness, steps, stop_after_broken, stop_if, take_first, tasks_per_step, too_stale, "
    "webhook_env"
)


@frozen
class Clone:
    """A clone of the repository and what `python3 noxfile.py demo` printed in it."""

    folder: Path
    environ: dict[str, str]
    demo: CompletedProcess[str]
    preloaded: Preloaded

    @property
    def run(self) -> str:
        """The directory of the demo's run, as it was printed."""
        found = re.search(r"^stored in\n  (\S+)$", self.demo.stdout, re.M)
        assert found, self.demo.stdout
        return found[1]

    def start(self, *arguments: str) -> "Popen[str]":
        """Start the demo's `ale`."""
        command = [str(self.folder / ".nox/demo/bin/ale"), *arguments]
        return Popen(
            command, cwd=self.folder, env=self.environ, text=True, stdout=PIPE, stderr=PIPE
        )

    def ale(self, *arguments: str) -> CompletedProcess[str]:
        """Run the demo's `ale` to its end."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=300)
        return CompletedProcess(arguments, process.returncode, out, err)

    def checked(self, *arguments: str) -> CompletedProcess[str]:
        """Run `ale` in this folder without starting Python anew, for what only reads."""
        with TemporaryFile() as out, TemporaryFile() as err:
            started = self.preloaded.start(arguments, self.folder, self.environ, out, err)
            code = started.wait(300)
            printed = [os.pread(file.fileno(), 1 << 20, 0).decode() for file in (out, err)]
        return CompletedProcess(arguments, code, *printed)

    def with_mistake(self, old: str, new: str) -> str:
        """A copy of configs/examples.yaml in which `old` is replaced; its path."""
        text = (self.folder / "configs/examples.yaml").read_text()
        assert text.count(old) == 1
        (self.folder / "configs/my.yaml").write_text(text.replace(old, new))
        return "configs/my.yaml"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, preloaded_without_policy: Preloaded) -> Clone:
    home = tmp_path_factory.mktemp("newcomer")
    folder = home / "ale"
    git = shutil.which("git")
    assert git is not None
    subprocess.run([git, "clone", "--quiet", str(ROOT), str(folder)], check=True)
    ours = ("NOX", "VIRTUAL_ENV", "PYTEST")  # of the environment in which these tests run
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ["XDG_RUNTIME_DIR"] = str(home / "runtime")
    python = [sys.executable, "noxfile.py", "demo"]
    demo = subprocess.run(python, cwd=folder, env=environ, text=True, capture_output=True)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    return Clone(folder, environ, demo, preloaded_without_policy)


def test_a_new_package_works_by_the_commands_that_are_printed(clone: Clone, tmp_path: Path) -> None:
    done = clone.ale("new", "criterion", "ale-criterion-min-size", "--directory", str(tmp_path))
    printed = re.search(r"^Next:\n((?:  .+\n)+)", done.stdout, re.M)
    assert printed, done.stdout + done.stderr
    demo = clone.folder / ".nox/demo"
    environ = {**clone.environ, "VIRTUAL_ENV": str(demo)}
    environ["PATH"] = f"{demo}/bin:{environ['PATH']}"
    command = ["bash", "-ec", printed[1]]
    typed = subprocess.run(
        command, cwd=clone.folder, env=environ, text=True, capture_output=True, check=False
    )
    assert typed.returncode == 0, typed.stdout + typed.stderr
    assert " passed" in typed.stdout
    assert "from ale-criterion-min-size 0.1.0" in typed.stdout


def readme_blocks() -> list[str]:
    """The code blocks of the README."""
    return re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)


def test_the_demo_prints_what_the_readme_shows(clone: Clone) -> None:
    (shown,) = (block for block in readme_blocks() if block.startswith("completed: 208"))
    assert missing(shown, clone.demo.stdout, exact=False) is None
    assert "success      188 of 208  90.4%  (95% interval 85.6 to 93.7)" in clone.demo.stdout


def test_every_suggested_command_works(clone: Clone) -> None:
    _, _, suggested = clone.demo.stdout.partition("\nnext\n")
    commands = re.findall(r"^  ale (.+)$", suggested, re.M)
    assert [command.split()[:2] for command in commands] == [
        ["show", clone.run],
        ["report", clone.run],
        ["show", "credit"],
    ]
    for command in commands:
        done = clone.ale(*command.split())
        assert (done.returncode, done.stderr) == (0, ""), command
    (compared,) = (block for block in readme_blocks() if "--episode 0-basics-ls-0" in block)
    shown = ("show", "credit", clone.run, "--scheme", "ipa", "--scheme", "grpo")
    printed = clone.ale(*shown, "--episode", "0-basics-ls-0").stdout
    assert printed == compared.partition("\n")[2]
    assert (clone.folder / clone.run / "report.html").stat().st_size > 100_000


def test_the_clone_stays_clean(clone: Clone) -> None:
    command = ["git", "status", "--porcelain"]
    status = subprocess.run(command, cwd=clone.folder, check=True, text=True, stdout=PIPE)
    assert [line for line in status.stdout.splitlines() if "configs/my.yaml" not in line] == []


MISTAKES = {
    "a typo in a section": (
        ("sandbox:", "sandbx:"),
        "configs/my.yaml:11: sandbx: unknown section",
        f"    expected  one of {SECTIONS}",
        "    hint      did you mean 'sandbox'?",
    ),
    "a typo in an option": (
        ("gamma:", "gama:"),
        "configs/my.yaml:15: credit.gama: unknown option",
        "    expected  one of error_penalty, failure_reward, gamma, per_chunk_rewards, "
        "terminal_reward, unfinished",
        "    hint      did you mean 'gamma'?",
    ),
    "a value of the wrong type": (
        ("rollouts: 4", "rollouts: four"),
        'configs/my.yaml:16: run.rollouts: expected a whole number, found the text "four"',
    ),
    "a value out of range": (
        ("gamma: 0.95", "gamma: 1.5"),
        "configs/my.yaml:15: credit.gamma: expected a value <= 1.0, found 1.5",
    ),
    "a component that does not exist": (
        ("type: ipa", "type: gropo"),
        "configs/my.yaml:15: credit.type: no credit scheme 'gropo'; installed: dr-grpo, "
        "filtered-imitation, gae, gigpo, grpo, ipa, ipa-lite, none, oracle, reinforce, repair, "
        "rloo, step-scores, tree, weight-one",
        "    hint      did you mean 'grpo'?",
    ),
    "a component as plain text": (
        ("{type: local}", "local"),
        'configs/my.yaml:11: sandbox: expected a mapping with a type, found the text "local"',
        "    hint      sandbox: {type: local}",
    ),
    "a missing section": (
        ("tasks: {", "# tasks: {"),
        "configs/my.yaml:11: section 'tasks' is missing",
        "    expected  tasks: {type: ...}, one of alignment, gsm8k, harbor, humaneval, jsonl, "
        "math, mbpp, shell, swe, tbp, validated",
    ),
    "a missing file": (
        ("script: examples.script.yaml", "script: example.script.yaml"),
        "configs/my.yaml:12: llm.script: no such file: FOLDER/configs/example.script.yaml",
        "    expected  a script: a YAML file with a model's answers, for 'tasks' or as 'default'",
        "    hint      did you mean 'examples.script.yaml'?",
    ),
    "a bracket that is not closed": (
        ("gamma: 0.95}", "gamma: 0.95"),
        "configs/my.yaml:16: not valid YAML: did not find expected ',' or '}' (while parsing a "
        "flow mapping)",
    ),
    "a tab": (
        ("agent: {type: iflow}", "agent:\n\ttype: iflow"),
        "configs/my.yaml:14: not valid YAML: found character that cannot start any token (while "
        "scanning for the next token)",
        "    hint      indent with spaces",
    ),
    "a section that is given twice": (
        ("run: {rollouts: 4}", "run: {rollouts: 4}\nrun: {seed: 1}"),
        "configs/my.yaml:17: 'run' is given twice, first on line 16",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_answer_to_a_mistake_in_the_config(clone: Clone, mistake: str) -> None:
    (old, new), *answer = MISTAKES[mistake]
    refused(clone, ["run", clone.with_mistake(old, new)], answer)


ARGUMENTS = {
    "an override without a value": (
        ("run", "configs/examples.yaml", "--set", "rollouts"),
        "--set: expected key.key=value, found 'rollouts'",
        "    hint      for example --set credit.type=grpo",
    ),
    "an override without its section": (
        ("run", "configs/examples.yaml", "--set", "rollouts=8"),
        "--set: rollouts: unknown section",
        f"    expected  one of {SECTIONS}",
        "    hint      did you mean 'run.rollouts'?",
    ),
    "an override with a typo": (
        ("run", "configs/examples.yaml", "--set", "run.rolouts=8"),
        "--set: run.rolouts: unknown option",
        f"    expected  one of {RUN_OPTIONS}",
        "    hint      did you mean 'rollouts'?",
    ),
    "a config that does not exist": (
        ("run", "configs/exmples.yaml"),
        "configs/exmples.yaml: no such file",
        "    hint      did you mean 'examples.yaml'?",
    ),
    "a folder for a config": (
        ("run", "configs"),
        "configs: is a folder, not a YAML file",
    ),
    "a run that does not exist": (
        ("show", "runs/nope"),
        "runs/nope: no such directory",
        "    hint      ale status lists the runs in ./runs",
    ),
    "a file of rows that does not exist": (
        ("data", "score", "--in", "datasets/raw.jsonl", "--out", "datasets/scored.jsonl"),
        "datasets/raw.jsonl: no such file",
    ),
    "a sandbox that does not exist": (
        ("sandbox", "list", "--type", "dockr"),
        "--type: no sandbox 'dockr'; installed: bubblewrap, cwsandbox, docker, e2b, local, podman",
        "    hint      did you mean 'docker'?",
    ),
    "a server without http://": (
        ("proxy", "localhost:8000"),
        "URL: expected a URL, found 'localhost:8000'",
        "    expected  http://127.0.0.1:8000/v1",
    ),
    "a folder that is not a run": (
        ("show", "configs"),
        "configs: not a run directory (no manifest.json)",
        "    expected  the directory of a run, such as runs/20260101-120000-3f2a-quickstart",
        "    hint      the folder contains no runs",
    ),
    "a folder that is not a run, to resume": (
        ("run", "--resume", "configs"),
        "FOLDER/configs: not a run directory (no manifest.json)",
        "    expected  the directory of a run, such as runs/20260101-120000-3f2a-quickstart",
        "    hint      the folder contains no runs",
    ),
}


@pytest.mark.parametrize("mistake", ARGUMENTS)
def test_the_answer_to_a_mistake_on_the_command_line(clone: Clone, mistake: str) -> None:
    arguments, *answer = ARGUMENTS[mistake]
    refused(clone, arguments, answer)


def refused(clone: Clone, arguments: Sequence[str], answer: Sequence[str]) -> None:
    """Exit status 2, this answer and no other word, and no new run."""
    before = set((clone.folder / "runs").iterdir())
    done = clone.checked(*arguments)
    starts = "; nothing was started" if arguments[0] == "run" else ""
    expected = [*answer, f"1 problem{starts}."]
    printed = done.stderr.replace(str(clone.folder), "FOLDER").splitlines()
    assert (done.returncode, printed, done.stdout) == (2, expected, "")
    assert set((clone.folder / "runs").iterdir()) == before


def test_a_command_with_a_typo_names_the_nearest_one(clone: Clone) -> None:
    done = clone.ale("rnu")
    assert done.returncode == 2
    assert done.stderr.endswith("Error: no such command 'rnu'; did you mean 'run'?\n")


DEAD_SERVER = (
    "--set llm.type=lmstudio: dropped llm.script, which lmstudio does not have",
    "network: false, set by 1 task (basics-ls), is not enforced: sandbox 'local' does not isolate "
    "the network",
    "llm: 127.0.0.1:PORT: cannot connect to http://127.0.0.1:PORT/v1 (All connection attempts "
    "failed); start the server (lms server start) or correct llm.base_url",
    "    hint      run.preflight: false skips this check, as does ale run --no-checks",
    "1 problem; nothing was started.",
)


def test_a_model_server_that_does_not_answer_is_named_with_how_to_start_it(clone: Clone) -> None:
    port = free_port()
    model = ("llm.type=lmstudio", "llm.model=NAME", f"llm.base_url=http://127.0.0.1:{port}/v1")
    few = ("tasks.path=tasks/tbp_examples/basics_ls.yaml", "run.rollouts=1")
    before = set((clone.folder / "runs").iterdir())
    done = clone.ale("run", "configs/examples.yaml", *(f"--set={each}" for each in (*model, *few)))
    printed = done.stderr.replace(str(port), "PORT").splitlines()
    assert (done.returncode, printed, done.stdout) == (2, [*DEAD_SERVER], "")
    assert set((clone.folder / "runs").iterdir()) == before


def test_ctrl_c_and_the_command_it_suggests_finish_the_run(clone: Clone) -> None:
    known = set((clone.folder / "runs").iterdir())
    process = clone.start("run", "configs/examples.yaml", "--set", "run.rollouts=1")
    wait_for(lambda: _some_episode(set((clone.folder / "runs").iterdir()) - known))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Finishing the running episodes; press Ctrl-C again to cancel them." in err
    suggested = re.search(r"^  ale (run --resume (\S+))$", out, re.M)
    assert suggested, out
    resumed = clone.ale(*suggested[1].split())
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.startswith("completed: 52 episodes on disk after ")
    reported = clone.ale("report", suggested[2])
    assert reported.stdout.startswith(f"{suggested[2]}/report.html  ")


def _some_episode(runs: set[Path]) -> bool:
    files = [run / "episodes.jsonl" for run in runs]
    return any(file.exists() and file.stat().st_size > 0 for file in files)
