"""What runs beside the tests: what starts with the container, and what the agent may leave."""

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from ale_tasks_harbor.processes import asked_for

from ale.plugin import BuildContext
from ale.testing.fakes import FolderSandbox
from ale.types import Score, Stop, StopReason, Task, Trajectory
from ale_tasks_harbor.criterion import TaskTests
from ale_tasks_harbor.dockerfile import again, background, started
from ale_tasks_harbor.folder import Folder
from ale_tasks_harbor.options import TaskTestsOptions
from ale_tasks_harbor.source import HarborSource

from .conftest import BENCH, BESIDE, HARBOR, Write

Source = Callable[..., HarborSource]

STARTS = (
    "pg_ctl -D /data -l log start",
    "su postgres -c 'pg_ctl -D /data \\\n  -w start'",
    "pg_ctlcluster 15 main start",
    "apachectl start",
    "apache2ctl -k restart",
    "supervisord -c /etc/supervisor/supervisord.conf",
    "supervisorctl start all",
    "pm2 start app.js",
    "mongod --dbpath /data --fork --logpath /log",
    "gunicorn app:app -b :8000 -D",
    "php-fpm -D",
    "memcached -u nobody -d",
    "docker-compose up -d",
    "docker compose -f a.yaml up --build --detach",
    "systemctl enable --now redis",
    "systemctl --user start it",
)
STARTS_NOTHING = (
    "pg_ctl -D /data stop",
    "pg_ctl -D /data stop; echo start",
    "# pm2 start app.js",
    "apt-get install -y supervisor postgresql apache2 gunicorn memcached",
    "cp supervisord.conf /etc/",
    "gunicorn --check-config app:app",
    "cc -D X main.c; mongod --version",
    "docker-compose build && ls -d .",
    "systemctl enable redis",
    "restart=1; systemctl disable it",
)
ASKS = (
    "psql -U me -c 'select 1'",
    "sudo -u postgres psql db -t",
    "psql <query.sql",
    "subprocess.run(['psql', '-c', 'select 1'])",
    "conn = psycopg2.connect(dsn)",
    "redis-cli ping",
    "subprocess.run(['redis-cli', 'ping'])",
    "mysql -u root",
    "mongosh --eval 1",
    "r = redis.Redis(port=1)",
    'curl "http://$(hostname):80"',
    "curl http://${HOSTNAME}/",
    's.connect(("::1", 80))',
    "curl -g ::1 ",
    "lsof -i :80",
    "lsof -nP -iTCP",
    "ss -ltn",
    "subprocess.run(['ss', '-tlnp'])",
    "netstat -an",
    "service nginx status",
    "systemctl is-active it",
    "supervisorctl status",
    "pg_isready",
    "curl localhost",
    "wget -qO- 0.0.0.0",
    "nc 127.0.0.1 80 </dev/null",
    "ssh -p 2222 root@localhost true",
    "ping -c 1 0.0.0.0",
    "requests.get('http://me:pw@0.0.0.0/')",
    "s.connect(('0.0.0.0', 80))",
    "http.client.HTTPConnection('localhost', 8000)",
    "HOST = '127.0.0.1'",
    '{"host": "localhost", "port": 80}',
    "client --host=localhost",
    "client -h 127.0.0.1 -p 80",
    "wait-for-it 0.0.0.0:8080",
    'f"localhost:{PORT}"',
    "subprocess.run(['curl', '-s', 'localhost'])",
)
ASKS_NOTHING = (
    "# psql -c x",
    "which psql && command -v redis-cli >/dev/null",
    "apt-get install -y mysql-client redis-tools -qq",
    "pip install psycopg2 pymysql -q",
    "import mysql.connector as m",
    "x = values[a::1]; y = a.py::10",
    "ffmpeg -ss 10 -t 5",
    "grep -c class -- style.css -n",
    "which netstat lsof ss",
    "customer service desk",
    "assert 'mysql' in text",
    "lsof file",
    "grep -q '0.0.0.0 - - .GET / 200' out.txt",
    "assert '127.0.0.1 - - [10/Oct/2000]' in log",
    "assert top == ['0.0.0.0', '10.1.2.3']",
    "assert counts['0.0.0.0'] == 3",
    "expected = {'127.0.0.1': 4, 'localhost': 2, '::1': 1}",
    "echo '0.0.0.0 GET /index.html' >>access.log",
    "test \"$(cut -d' ' -f1 log | sort -u)\" = 127.0.0.1",
    "assert version == '10.0.0.0.0'",
    "assert 'bind-address 0.0.0.0' in text",
)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tests/test.sh", "curl -s http://localhost:8080/\n"),
        ("tests/deep/test_outputs.py", "requests.get('http://127.0.0.1:5000')\n"),
        ("tests/test.sh", "nc -z server 80\n"),
        ("tests/test.sh", "exec 3<>/dev/tcp/$host/80\n"),
        ("tests/test_it.py", "s = socket.socket(socket.AF_UNIX)\n"),
        ("tests/test.sh", 'kill -0 "$(cat pid)"\n'),
        ("steps/one/tests/test.sh", "curl http://[::1]:1/\n"),
        ("solution/solve.sh", "python3 server.py &\n"),
        ("solution/solve.sh", "python3 server.py >log 2>&1 & # for ever\n"),
        ("solution/solve.sh", "(sleep 9 &)\n"),
        ("solution/solve.sh", "run & pid=$!\n"),
        ("solution/solve.sh", "nohup run\n"),
        ("solution/solve.sh", "service cron start\n"),
        ("solution/solve.sh", "redis-server --daemonize yes\n"),
        ("steps/two/solution/solve.sh", "setsid run\n"),
        *(("solution/solve.sh", f"{line}\n") for line in STARTS),
        *(("tests/test.sh", f"{line}\n") for line in ASKS),
    ],
)
def test_files_that_ask_for_what_runs(write: Write, file: str, text: str) -> None:
    why = asked_for(Folder(str(write("one", {**HARBOR, file: "#!/bin/sh\n" + text}))))
    assert why is not None
    assert why.startswith(f"{file} says '")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tests/test.sh", "# once was: curl localhost\ntest -e out.txt\n"),
        ("tests/test.sh", "make && ./run >log 2>&1 || exit 1; echo a &>b\n"),
        ("tests/data.bin", "\0localhost\n"),
        ("solution/solve.sh", "a && b; curl 'http://x/?a=1&b=2' >o 2>&1; echo 'R&D' |& cat\n"),
        ("solution/solve.py", "x = a & b\n"),
        ("instruction.md", "Start a server on localhost.\n"),
        ("environment/start.sh", "serve &\n"),
        *(("solution/solve.sh", f"{line}\n") for line in STARTS_NOTHING),
        *(("tests/test.sh", f"{line}\n") for line in ASKS_NOTHING),
    ],
)
def test_files_that_do_not(write: Write, file: str, text: str) -> None:
    assert asked_for(Folder(str(write("one", {**HARBOR, file: text})))) is None


def test_terminal_bench_has_its_scripts_elsewhere(write: Write) -> None:
    assert asked_for(Folder(str(write("one", BENCH)))) is None
    assert (
        asked_for(Folder(str(write("two", {**BENCH, "run-tests.sh": "curl localhost\n"}))))
        is not None
    )
    assert asked_for(Folder(str(write("three", {**BENCH, "solution.sh": "serve &\n"})))) is not None


@pytest.mark.parametrize(
    ("globs", "kept"),
    [
        (None, {"asks"}),
        (("auto",), {"asks"}),
        ((), set()),
        (("named",), {"named"}),
        (("auto", "n*"), {"asks", "named"}),
    ],
)
def test_processes_are_kept_by_name_or_by_what_the_files_say(
    write: Write, source: Source, globs: Sequence[str] | None, kept: set[str]
) -> None:
    write("asks", {**HARBOR, "tests/test.sh": "curl localhost\n"})
    write("named", HARBOR)
    write("other", HARBOR)
    made = source() if globs is None else source(keep_processes=globs)
    tasks: Sequence[Task] = list(made.load())
    assert {task.id for task in tasks if task.keep_processes} == kept
    reasons = {task.id: task.metadata.get("kept_processes") for task in tasks}
    assert {name for name, why in reasons.items() if why} == kept


def test_a_step_keeps_what_its_task_keeps(write: Write, source: Source) -> None:
    files = {
        **HARBOR,
        "task.toml": '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n',
        "steps/a/instruction.md": "Do.\n",
        "steps/b/instruction.md": "Do.\n",
        "steps/b/tests/test.sh": "curl localhost\n",
    }
    write("one", files)
    (task,) = source().load()
    assert [step.keep_processes for step in (task, *task.steps)] == [True, True, True]


def _sh(script: str, environment: Mapping[str, str], folder: Path) -> str:
    """Run it, wait for what it starts, and say what that was given."""
    subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{folder}:/usr/bin:/bin", **environment},
        cwd=folder,
        check=True,
    )
    written = folder / "written"
    return written.read_text() if written.exists() else ""


@pytest.mark.parametrize(
    ("entrypoint", "command", "of_image", "given"),
    [
        ((), (), None, ""),
        ((), (), "start", "sh|-c|sleep infinity|"),
        ((), (), "start -v 'a b'", "-v|a b|sh|-c|sleep infinity|"),
        ((), ("serve", "a b"), "start", "serve|a b|"),
        ((), ("start", "x"), None, "x|"),
        (("start", "own"), (), "false", "own|sh|-c|sleep infinity|"),
    ],
)
def test_what_starts_with_the_container_is_started(
    tmp_path: Path,
    entrypoint: Sequence[str],
    command: Sequence[str],
    of_image: str | None,
    given: str,
) -> None:
    start = tmp_path / "start"
    start.write_text("#!/bin/sh\nprintf '%s|' \"$@\" >written.new && mv written.new written\n")
    start.chmod(0o755)
    environment = {} if of_image is None else {"ALE_IMAGE_ENTRYPOINT": of_image}
    words = background(entrypoint, command)
    script = again(words, ["until [ -e written ]; do sleep 0.01; done"])
    assert _sh(script, environment, tmp_path) == given
    assert script.startswith(started(words)[0])


def test_a_check_that_does_not_pass_again_is_for_the_tests_to_tell(tmp_path: Path) -> None:
    words = background(("true",))
    assert _sh(again(words, ["exit 1"]) + "\necho went on >written", {}, tmp_path) == "went on\n"


_ALIVE = "grep -q '^State:.*sleeping' \"/proc/$(cat pid)/status\""
_STILL_THERE = f"""\
#!/bin/sh
if {_ALIVE}; then echo 1; else echo 0; fi >"$(dirname "$0")/../logs/verifier/reward.txt"
"""


async def _graded(
    folder: Path, stop: StopReason, *, remove_tests: bool = False
) -> tuple[Score, bool]:
    """Of a task that keeps processes; and is the agent's one alive after the tests?"""
    (folder / "workspace").mkdir()
    (folder / "test.sh").write_text(_STILL_THERE)
    options = TaskTestsOptions(
        tests=(str(folder / "test.sh"),), script="test.sh", remove_tests=remove_tests
    )
    criterion = TaskTests(options, BuildContext(), places=BESIDE)
    task = Task(id="one", goal="", keep_processes=True, metadata={"kept_processes": "says so"})
    sandbox = FolderSandbox(folder / "workspace")
    server = asyncio.ensure_future(sandbox.exec("echo $$ >new; mv new pid; exec sleep 1000"))
    assert (await sandbox.exec("until [ -e pid ]; do sleep 0.01; done")).exit_code == 0
    score = await criterion.grade(task, Trajectory(stop=Stop(reason=stop)), sandbox)
    alive = (await sandbox.exec(_ALIVE)).exit_code == 0
    await sandbox.close()
    await server
    return score, alive


async def test_what_the_agent_left_runs_during_the_tests_and_not_after_them(tmp_path: Path) -> None:
    score, alive = await _graded(tmp_path, "finished")
    assert (score.value, alive) == (1.0, False)
    assert "[the agent's processes kept running: says so]" in score.detail


async def test_it_runs_on_where_more_steps_follow(tmp_path: Path) -> None:
    score, alive = await _graded(tmp_path, "finished", remove_tests=True)
    assert (score.value, alive) == (1.0, True)


async def test_an_agent_whose_time_was_up_keeps_nothing(tmp_path: Path) -> None:
    score, alive = await _graded(tmp_path, "time_limit")
    assert (score.value, alive) == (0.0, False)
    assert "ran on" not in score.detail


async def test_a_reward_on_a_scale_of_the_tasks_own_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    script = 'echo -7.5 >"$(dirname "$0")/../logs/verifier/reward.txt"\n'
    (tmp_path / "test.sh").write_text("#!/bin/sh\n" + script)
    options = TaskTestsOptions(tests=(str(tmp_path / "test.sh"),), script="test.sh")
    criterion = TaskTests(options, BuildContext(), places=BESIDE)
    sandbox = FolderSandbox(tmp_path / "workspace")
    score = await criterion.grade(Task(id="one", goal=""), Trajectory(), sandbox)
    await sandbox.close()
    assert (score.value, score.passed, score.unbounded) == (-7.5, False, True)
