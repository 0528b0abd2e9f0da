"""Terminal-Bench task folders that use its harness as strangers do: parsers, shells, users, times.

Each is the text of its files by path. Whatever is not there is that of `USUAL`.
"""

from collections.abc import Mapping
from pathlib import Path

BASE = "ale-test-harbor-bench:1"
"""A small Debian with bash, python3, tmux, asciinema, and busybox's httpd and wget; in /app."""
COMPOSE = """services:
  client:
    build:
      dockerfile: Dockerfile
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
"""
_TASK = "difficulty: easy\nmax_agent_timeout_sec: 60\nmax_test_timeout_sec: 30\n"
_HEAD = "#!/bin/bash\n"
_SUMMARY = 'echo "==== short test summary info ===="\n'


def _tests(check: str, before: str = "") -> str:
    return (
        f"{_HEAD}{before}{_SUMMARY}if {check}; then said=PASSED; else said=FAILED; fi\n"
        'echo "$said test_outputs.py::test_it"\n'
    )


_USER = "useradd -m w && mkdir -p /tests /oracle && chown w /app /tests /oracle"
"""The harness makes folders as the image's user."""
_BASH = "#!/bin/sh\nwords=(a right)\n[ ${words[1]} = right ] || exit 1\n"
USUAL = {
    "task.yaml": _TASK,
    "Dockerfile": f"FROM {BASE}\nWORKDIR /app\n",
    "docker-compose.yaml": COMPOSE,
    "solution.sh": f"{_HEAD}touch done\n",
    "run-tests.sh": _tests("[ -e done ]"),
}
_PRINTS = "#!/bin/bash\n[ -e done ] || exit 1\ncat <<'EOF'\n{}\nEOF\n"


def _prints(*lines: str, parser: str = "pytest") -> Mapping[str, str]:
    return {
        "task.yaml": f"{_TASK}parser_name: {parser}\n",
        "run-tests.sh": _PRINTS.format("\n".join(lines)),
    }


def _summary(*lines: str) -> Mapping[str, str]:
    return _prints("== short test summary info ==", *lines)


TASKS: Mapping[str, Mapping[str, str]] = {
    # What the tests print
    "fails": _summary("FAILED test_outputs.py::test_it - AssertionError: no"),
    "one-of-two-fails": _summary("PASSED t.py::test_a", "FAILED t.py::test_b - no - no"),
    "not-collected": _summary("ERROR tests/test_outputs.py - SyntaxError: invalid"),
    "skipped-and-expected": _summary("SKIPPED [1] t.py:3: no", "XFAIL t.py::test_b", "PASSED t::c"),
    "passed-unexpectedly": _summary("PASSED t.py::test_a", "XPASS t.py::test_b"),
    "indented": _summary("PASSED t.py::test_a", "   FAILED t.py::test_b"),
    "tabbed": _summary("PASSED t.py::test_a", "FAILED\tt.py::test_b"),
    "parametrized": _summary("PASSED t.py::test_a[x - y]", "PASSED t.py::test_a[a b]"),
    "capitals": _prints("=== SHORT TEST SUMMARY INFO ===", "PASSED t.py::test_a"),
    "crashes": {"run-tests.sh": f"{_HEAD}python3 -c 'import not_there'\n"},
    "summary-without-tests": _summary("1 error in 0.1s"),
    "said-twice": _summary("FAILED t.py::test_a - no", "PASSED t.py::test_a"),
    "colours": {
        "run-tests.sh": f"{_HEAD}[ -e done ] || exit 1\n"
        r"printf '\033[36m=== short test summary info ===\033[0m\n'"
        "\n"
        r"printf '\033[32mPASSED\033[0m t.py::\033[1mtest_a\033[0m\n'"
        "\n"
    },
    "colours-of-a-failure": {
        "run-tests.sh": f"{_HEAD}echo '== short test summary info =='; echo PASSED t.py::test_a\n"
        r"printf '\033[31mFAILED\033[0m t.py::\033[1mtest_b\033[0m - no\n'"
        "\n"
    },
    "long-lines": _summary("PASSED t.py::test_a", "PASSED t.py::test_" + "b" * 200),
    "much-output": {"run-tests.sh": _tests("[ -e done ]", "seq 20000\n")},
    "status-is-nothing": {"run-tests.sh": _tests("[ -e done ]") + "exit 3\n"},
    "by-pytest-of-python": {
        "run-tests.sh": f'{_HEAD}python3 "$TEST_DIR/outputs.py"\n',
        "tests/outputs.py": "import os\nprint('== short test summary info ==')\n"
        "print('PASSED' if os.path.exists('/app/done') else 'FAILED', 't.py::test_it')\n",
    },
    # Other parsers
    "swebench-fails": _prints(
        "SWEBench results starts here", "FAILED", "SWEBench results ends here", parser="swebench"
    ),
    "swebench-without-marks": _prints("PASSED", parser="swebench"),
    "sweperf-passes": _prints(
        "SWE-Perf results starts here", "PASSED", "SWE-Perf results ends here", parser="sweperf"
    ),
    "mlebench-without-marks": _prints("ALL TESTS PASSED", parser="mlebench"),
    "swelancer-says-nothing": _prints("Done.", parser="swelancer"),
    "swelancer-tool": _prints("user_tool has completed", parser="swelancer"),
    # Times
    "tests-never-end": {
        "task.yaml": "difficulty: easy\nmax_test_timeout_sec: 3\n",
        "run-tests.sh": USUAL["run-tests.sh"] + "sleep 30\n",
    },
    "agent-time-is-up": {
        "task.yaml": "difficulty: easy\nmax_agent_timeout_sec: 3\n",
        "solution.sh": f"{_HEAD}touch done\nsleep 15\n",
    },
    # Shells, users, services
    "shell-of-its-own": {
        "solution.sh": "",
        "solution.yaml": "- command: export WORD=right\n  block: true\n"
        "- command: touch done\n  block: true\n",
        "run-tests.sh": _tests('[ -e done ] && [ -z "$WORD" ]'),
    },
    "same-shell-kept": {
        "task.yaml": f"{_TASK}run_tests_in_same_shell: true\n",
        "solution.sh": "",
        "solution.yaml": "- command: export WORD=right\n  block: true\n"
        "- command: cd /tmp\n  block: true\n",
        "run-tests.sh": _tests('[ "$WORD$PWD" = right/tmp ]'),
    },
    "same-shell-and-a-script": {
        "task.yaml": f"{_TASK}run_tests_in_same_shell: true\n",
        "solution.sh": f"{_HEAD}export WORD=right\ntouch done\n",
        "run-tests.sh": _tests('[ -e done ] && [ -z "$WORD" ]'),
    },
    "solution-fails-midway": {"solution.sh": f"{_HEAD}set -e\ntouch done\nfalse\nrm done\n"},
    "server-left-running": {
        "solution.sh": f"{_HEAD}echo hi >word\n"
        "nohup python3 -m http.server 8000 >log 2>&1 &\nsleep 2\n",
        "run-tests.sh": _tests('[ "$(wget -q -O - http://localhost:8000/word)" = hi ]'),
    },
    "user-of-the-image": {
        "Dockerfile": f"FROM {BASE}\nRUN {_USER}\nWORKDIR /app\nUSER w\n",
        "run-tests.sh": _tests('[ "$(stat -c %U done)$(id -u)" = w0 ]'),
    },
    "user-of-the-service": {
        "Dockerfile": f"FROM {BASE}\nRUN {_USER}\nWORKDIR /app\n",
        "docker-compose.yaml": COMPOSE.replace("    command", "    user: w\n    command", 1),
        "run-tests.sh": _tests('[ "$(stat -c %U done)$(id -u)" = w0 ]'),
    },
    "profile-of-the-image": {
        "Dockerfile": f"FROM {BASE}\nRUN echo 'export WORD=right' >>/root/.bashrc\nWORKDIR /app\n",
        "run-tests.sh": _tests('[ -e done ] && [ "$WORD" = right ]'),
    },
    "first-line-says-sh": {
        "solution.sh": f"{_BASH}touch done\n",
        "run-tests.sh": _tests("[ -e done ]").replace(_HEAD, _BASH, 1),
    },
    "a-terminal": {"run-tests.sh": _tests("[ -e done ] && [ -t 1 ]")},
    "second-service": {
        "docker-compose.yaml": COMPOSE
        + f"  api:\n    image: {BASE}\n"
        + '    command: ["sh", "-c", "echo hi >/app/word; exec httpd -f -p 80 -h /app"]\n',
        "solution.sh": f"{_HEAD}while ! wget -q -O done http://api/word; do sleep 0.2; done\n",
        "run-tests.sh": _tests("grep -qx hi done"),
    },
}


def write(folder: Path) -> Path:
    """All of them, as folders in this one. An empty text is a file that is left out."""
    for name, own in TASKS.items():
        for path, text in {**USUAL, **own}.items():
            if text:
                file = folder / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                if path == "task.yaml":
                    text = f"instruction: Do {name}.\n{text}"
                file.write_text(text, newline="")
    return folder
