"""Task folders that use Harbor as strangers do: what is legal in them, and what is only usual.

Each is the text of its files by path. Whatever is not there is that of `USUAL`.
"""

from collections.abc import Mapping
from pathlib import Path

BASE = "ale-test-harbor:1"
"""A small Debian with bash, python3, git and the applets of busybox; its workspace is /app."""
CHECK = "if {check}; then echo 1; else echo 0; fi >/logs/verifier/reward.txt"
_PREBUILT = f'[environment]\ndocker_image = "{BASE}"\n'
"""Where a task says nothing of its environment: to build an image for each takes longer."""
USUAL = {
    "task.toml": 'schema_version = "1.4"\n[agent]\ntimeout_sec = 30\n'
    "[verifier]\ntimeout_sec = 30\n",
    "instruction.md": "Do it.\n",
    "solution/solve.sh": "#!/bin/bash\necho right >out.txt\n",
    "tests/test.sh": "#!/bin/bash\n" + CHECK.format(check="grep -qx right out.txt") + "\n",
}
_FETCH = (
    "import sys, urllib.request as u; "
    "sys.exit(u.urlopen(sys.argv[1], timeout=5).read() != b'hi\\n')"
)
_SERVED = (
    f'#!/bin/bash\nsleep 1\npython3 -c "{_FETCH}" http://localhost:8000/word\n'
    + CHECK.format(check="[ $? -eq 0 ]")
)
_PING = "wget -q -O - http://127.0.0.1:{port}/ >/dev/null"
_SOCKET = (
    "import socket, os; s = socket.socket(socket.AF_UNIX); s.bind('/app/s'); s.listen(); "
    "exec(\\\"while True:\\n c, _ = s.accept()\\n c.sendall(b'hi')\\n c.close()\\\")"
)


def _rewards(text: str, name: str = "reward.txt") -> Mapping[str, str]:
    return {
        "tests/test.sh": "#!/bin/bash\n"
        f"[ -e out.txt ] || {{ echo 0 >/logs/verifier/{name}; exit; }}\n"
        f"cat >/logs/verifier/{name} <<'EOF'\n{text}\nEOF\n"
    }


def _toml(text: str) -> str:
    return f'schema_version = "1.4"\n{text}\n'


def _beside(text: str) -> Mapping[str, str]:
    compose = f"services:\n  other:\n    image: {BASE}\n    {text}\n"
    return {"environment/docker-compose.yaml": compose}


TASKS: Mapping[str, Mapping[str, str]] = {
    # Rewards
    "reward-7": _rewards("7"),
    "reward-negative": _rewards("-1.5"),
    "reward-half": _rewards("0.5"),
    "reward-exponent": _rewards("2.5e-1"),
    "reward-huge": _rewards("1e300"),
    "reward-nan": _rewards("nan"),
    "reward-words": _rewards("well done"),
    "reward-two-lines": _rewards("1\n0"),
    "reward-underscore": _rewards("1_0"),
    "reward-empty": {"tests/test.sh": "#!/bin/bash\n: >/logs/verifier/reward.txt\n"},
    "reward-none": {"tests/test.sh": "#!/bin/bash\ntrue\n"},
    "json-several": _rewards('{"a": 3, "b": -1}', "reward.json"),
    "json-named": _rewards('{"reward": 12, "b": 0}', "reward.json"),
    "json-bool": _rewards('{"reward": true}', "reward.json"),
    "json-text": _rewards('{"reward": "1"}', "reward.json"),
    "json-nan": _rewards('{"reward": NaN}', "reward.json"),
    "json-number": _rewards("1", "reward.json"),
    "json-list": _rewards("[1, 0]", "reward.json"),
    "json-empty": _rewards("{}", "reward.json"),
    "exit-status-is-nothing": {"tests/test.sh": USUAL["tests/test.sh"] + "exit 3\n"},
    # Scripts
    "no-shebang": {
        "solution/solve.sh": "a=(x right)\necho ${a[1]} >out.txt\n",
        "tests/test.sh": USUAL["tests/test.sh"].removeprefix("#!/bin/bash\n"),
    },
    "crlf-tests": {"tests/test.sh": USUAL["tests/test.sh"].replace("\n", "\r\n")},
    "crlf-solution": {"solution/solve.sh": USUAL["solution/solve.sh"].replace("\n", "\r\n")},
    "python-script": {
        "tests/test.sh": "#!/usr/bin/env python3\nimport os\n"
        "open('/logs/verifier/reward.txt', 'w').write(str(int(os.path.exists('out.txt'))))\n"
    },
    "solution-fails-midway": {
        "solution/solve.sh": "#!/bin/bash\nset -e\necho right >out.txt\nfalse\nrm out.txt\n"
    },
    "odd-names": {
        "solution/a file.txt": "right\n",
        "solution/solve.sh": '#!/bin/bash\ncp "$(dirname "$0")/a file.txt" "out put.txt"\n',
        "tests/what's this.py": "print(open('out put.txt').read())\n",
        "tests/test.sh": "#!/bin/bash\ncd /app\n"
        + CHECK.format(check='python3 "/tests/what\'s this.py" | grep -qx right'),
    },
    "tests-read-the-solution": {
        "tests/test.sh": "#!/bin/bash\n" + CHECK.format(check="[ -e /solution/solve.sh ]")
    },
    "tests-know-their-place": {
        "tests/test.sh": '#!/bin/bash\ncd "$(dirname "$0")" && . ./more.sh\n',
        "tests/more.sh": CHECK.format(check="grep -qx right /app/out.txt") + "\n",
    },
    "reads-its-log": {
        "solution/solve.sh": "#!/bin/bash\necho a line; echo right >out.txt\n",
        "tests/test.sh": "#!/bin/bash\necho tested; "
        + CHECK.format(check="[ -d /logs/agent ] && [ -d /logs/artifacts ] && [ -e out.txt ]"),
    },
    "tests-by-a-runner": {
        "tests/test.sh": "#!/bin/bash\ncd /app\npython3 -m unittest discover -q -s /tests\n"
        "if [ $? -eq 0 ]; then\n  echo 1 > /logs/verifier/reward.txt\nelse\n"
        "  echo 0 > /logs/verifier/reward.txt\nfi\n",
        "tests/test_outputs.py": "import pathlib, unittest\n"
        "class T(unittest.TestCase):\n"
        "    def test_it(self):\n"
        "        self.assertEqual(pathlib.Path('/app/out.txt').read_text(), 'right\\n')\n",
    },
    "stdin-of-tests": {
        "tests/test.sh": "#!/bin/bash\nread -r -t 2 line; " + CHECK.format(check="[ -e out.txt ]")
    },
    "deep-in-git": {
        "environment/Dockerfile": f"FROM {BASE}\nWORKDIR /app/repo\nRUN git init -q . && "
        "git config user.email a@example.org && git config user.name a && "
        "echo 1 >f && git add f && git commit -qm one\n",
        "solution/solve.sh": "#!/bin/bash\ncd /app/repo && echo 2 >f && git commit -qam two\n",
        "tests/test.sh": "#!/bin/bash\n"
        + CHECK.format(check='[ "$(git -C /app/repo rev-list --count HEAD)" = 2 ]'),
    },
    "home-and-user": {
        "solution/solve.sh": "#!/bin/bash\necho $HOME $USER $LANG $TERM >~/who; id >>~/who\n",
        "tests/test.sh": "#!/bin/bash\n" + CHECK.format(check="[ -s /root/who ]"),
    },
    "login-shell": {
        "solution/solve.sh": "#!/bin/bash\necho 'export WORD=right' >>~/.bashrc\n",
        "tests/test.sh": "#!/bin/bash\n. ~/.bashrc\n" + CHECK.format(check='[ "$WORD" = right ]'),
    },
    # Processes
    "server-setsid": {
        "solution/solve.sh": "#!/bin/bash\necho hi >word\n"
        "setsid nohup python3 -m http.server 8000 >log 2>&1 </dev/null &\nsleep 1\n",
        "tests/test.sh": _SERVED,
    },
    "server-nohup": {
        "solution/solve.sh": "#!/bin/bash\necho hi >word\n"
        "nohup python3 -m http.server 8000 >log 2>&1 &\n",
        "tests/test.sh": _SERVED,
    },
    "server-plain": {
        "solution/solve.sh": "#!/bin/bash\necho hi >word\npython3 -m http.server 8000 &\nsleep 1\n",
        "tests/test.sh": _SERVED,
    },
    "server-daemon": {
        "solution/solve.sh": "#!/bin/bash\nmkdir www; echo hi >www/word; httpd -p 8000 -h www\n",
        "tests/test.sh": _SERVED,
    },
    "server-and-worker": {
        "solution/solve.sh": "#!/bin/bash\necho hi >word\n"
        "nohup sh -c 'python3 -m http.server 8000 & wait' >log 2>&1 &\nsleep 1\n",
        "tests/test.sh": _SERVED,
    },
    "server-by-other-test-file": {
        "solution/solve.sh": "#!/bin/bash\necho hi >word\n"
        "nohup python3 -m http.server 8000 >log 2>&1 &\nsleep 1\n",
        "tests/test.sh": '#!/bin/bash\nsleep 1\npython3 "$(dirname "$0")/ask.py"\n',
        "tests/ask.py": "import http.client\nok = 0\ntry:\n"
        "    c = http.client.HTTPConnection('localhost', 8000)\n    c.request('GET', '/word')\n"
        "    ok = int(c.getresponse().read() == b'hi\\n')\nexcept OSError: pass\n"
        "open('/logs/verifier/reward.txt', 'w').write(str(ok))\n",
    },
    "unix-socket": {
        "solution/solve.sh": f'#!/bin/bash\nnohup python3 -c "{_SOCKET}" >log 2>&1 &\nsleep 1\n',
        "tests/test.sh": '#!/bin/bash\npython3 -c "import socket\n'
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect('/app/s'); assert s.recv(9) == b'hi'\"\n" + CHECK.format(check="[ $? -eq 0 ]"),
    },
    "worker-without-socket": {
        "solution/solve.sh": "#!/bin/bash\n"
        "nohup sh -c 'while :; do [ -e in ] && mv in out; sleep 0.1; done' >log 2>&1 &\n"
        "echo $! >worker.pid\n",
        "tests/test.sh": "#!/bin/bash\ncd /app && touch in && sleep 2\n"
        + CHECK.format(check="[ -e out ]"),
    },
    "pid-file": {
        "solution/solve.sh": "#!/bin/bash\nsleep 1000 >/dev/null 2>&1 &\necho $! >/app/pid\n",
        "tests/test.sh": "#!/bin/bash\n" + CHECK.format(check='kill -0 "$(cat /app/pid)"'),
    },
    "tests-start-the-server": {
        "solution/solve.sh": "#!/bin/bash\necho hi >word\n",
        "tests/test.sh": "#!/bin/bash\ncd /app && python3 -m http.server 8000 >/dev/null 2>&1 &\n"
        + _SERVED.removeprefix("#!/bin/bash\n"),
    },
    "agent-time-is-up": {
        "task.toml": _toml("[agent]\ntimeout_sec = 15"),
        "solution/solve.sh": "#!/bin/bash\necho right >out.txt\nsleep 60\n",
    },
    "tests-never-end": {
        "task.toml": _toml("[verifier]\ntimeout_sec = 2"),
        "tests/test.sh": USUAL["tests/test.sh"] + "sleep 60\n",
    },
    "no-solution": {"solution/solve.sh": ""},
    # Images
    "workdir-missing": {
        "task.toml": _toml('[environment]\nworkdir = "/not/there"'),
        "environment/Dockerfile": f"FROM {BASE}\n",
        "tests/test.sh": "#!/bin/bash\n"
        + CHECK.format(check='[ "$PWD" = /not/there ] && [ -e out.txt ]'),
    },
    "workdir-missing-prebuilt": {
        "task.toml": _toml(f'[environment]\ndocker_image = "{BASE}"\nworkdir = "/not/there"')
    },
    "files-beside-a-prebuilt-image": {
        "environment/seed.txt": "right\n",
        "solution/solve.sh": "#!/bin/bash\ncp seed.txt out.txt\n",
    },
    "workdir-relative": {
        "environment/Dockerfile": f"FROM {BASE}\nWORKDIR /app\nWORKDIR inner\n",
        "tests/test.sh": "#!/bin/bash\n" + CHECK.format(check="[ -e /app/inner/out.txt ]"),
    },
    "entrypoint-own": {
        "environment/Dockerfile": f"FROM {BASE}\nWORKDIR /app\nCOPY start.sh /start.sh\n"
        'ENTRYPOINT ["/bin/sh", "/start.sh"]\n',
        "environment/start.sh": 'echo "$@" >/said; httpd -p 8090; exec "$@"\n',
        "tests/test.sh": "#!/bin/bash\nwget -q -O - http://127.0.0.1:8090/said; cat /said\n"
        + CHECK.format(check="[ -e out.txt ] && grep -qx 'sh -c sleep infinity' /said"),
    },
    "entrypoint-of-the-base": {
        "environment/Dockerfile": "FROM ale-test-harbor-served:1\nWORKDIR /app\n",
        "tests/test.sh": "#!/bin/bash\n"
        + CHECK.format(check=f"[ -e out.txt ] && {_PING.format(port=8090)}"),
    },
    "entrypoint-prebuilt": {
        "task.toml": _toml(
            '[environment]\ndocker_image = "ale-test-harbor-served:1"\nworkdir = "/app"'
        ),
        "tests/test.sh": "#!/bin/bash\n"
        + CHECK.format(check=f"[ -e out.txt ] && {_PING.format(port=8090)}"),
    },
    "entrypoint-shell-form": {
        "environment/Dockerfile": f"FROM {BASE}\nWORKDIR /app\n"
        "ENTRYPOINT touch /started; exec sleep infinity\n",
        "tests/test.sh": "#!/bin/bash\n" + CHECK.format(check="[ -e out.txt ] && [ -e /started ]"),
    },
    "command-is-not-run": {
        "environment/Dockerfile": f'FROM {BASE}\nWORKDIR /app\nCMD ["touch", "/started"]\n',
        "tests/test.sh": "#!/bin/bash\n"
        + CHECK.format(check="[ -e out.txt ] && [ ! -e /started ]"),
    },
    "environment-of-the-image": {
        "environment/Dockerfile": f"FROM {BASE}\nWORKDIR /app\nENV WORD=right PATH=/app/bin:$PATH\n"
        "RUN mkdir -p bin && ln -s /bin/true bin/mine\n",
        "solution/solve.sh": "#!/bin/bash\nmine && echo $WORD >out.txt\n",
    },
    "image-has-tests": {
        "environment/Dockerfile": f"FROM {BASE}\nRUN mkdir /tests && echo 1 >/tests/x\n",
        "tests/test.sh": "#!/bin/bash\n" + CHECK.format(check="[ -e /tests/x ] && [ -e out.txt ]"),
    },
    "user-of-the-image": {
        "environment/Dockerfile": f"FROM {BASE}\nRUN useradd -m w && chown w /app\n"
        "WORKDIR /app\nUSER w\n",
        "tests/test.sh": "#!/bin/bash\n"
        + CHECK.format(check='[ -e out.txt ] && [ "$USER$(id -un)" = w ]'),
    },
    "network-none": {
        "task.toml": _toml(f'{_PREBUILT}network_mode = "no-network"'),
        "tests/test.sh": "#!/bin/bash\n"
        + CHECK.format(check='[ -e out.txt ] && [ "$(ls /sys/class/net)" = lo ]'),
    },
    "verifier-env": {
        "task.toml": _toml(f'[verifier.env]\nWORD = "right"\n{_PREBUILT}env = {{OTHER = "x"}}'),
        "tests/test.sh": "#!/bin/bash\n"
        + CHECK.format(check='[ "$WORD$OTHER" = rightx ] && [ -e out.txt ]'),
    },
    "installs-editable": {
        "solution/solve.sh": "#!/bin/bash\nmkdir pkg && echo 'word = 1' >pkg/mine.py\n"
        "echo /app/pkg >$(python3 -c 'import site; print(site.getsitepackages()[0])')/mine.pth\n",
        "tests/test.sh": "#!/bin/bash\n" + CHECK.format(check="python3 -c 'import mine'"),
    },
    # Several containers
    "services": {
        "environment/Dockerfile": f"FROM {BASE}\n",
        "environment/docker-compose.yaml": """services:
  main:
    environment: ["PRICE=5$$"]
    volumes: ["shared:/shared"]
    depends_on: {store: {condition: service_healthy}}
  store:
    build: {context: ./store, args: {WORD: secret}}
    volumes: ["shared:/shared", "./word:/srv/more:ro"]
    healthcheck: {test: ["CMD", "test", "-e", "/tmp/ready"], interval: 1s, retries: 60}
    command: ["sh", "-c", "httpd -p 80 -h /srv; sleep 2; touch /tmp/ready; sleep infinity"]
volumes: {shared: {}}
""",
        "environment/word": "more\n",
        "environment/store/Dockerfile": f"FROM {BASE}\nARG WORD\n"
        "RUN mkdir -p /srv && echo $WORD >/srv/word\n",
        "solution/solve.sh": "#!/bin/bash\n"
        "[ \"$PRICE\" = '5$' ] && wget -q -O /shared/out.txt http://store/word\n",
        "tests/test.sh": "#!/bin/bash\nwget -q -O more.txt http://store/more\n"
        + CHECK.format(check="grep -qx secret /shared/out.txt && grep -qx more more.txt"),
    },
    "service-and-prebuilt": {
        "environment/docker-compose.yaml": f"""services:
  store:
    image: {BASE}
    command: ["sh", "-c", "mkdir -p /srv; echo right >/srv/word; exec httpd -f -p 80 -h /srv"]
""",
        "solution/solve.sh": "#!/bin/bash\n"
        "while ! wget -q -O out.txt http://store/word; do sleep 0.2; done\n",
    },
    "service-that-ends": _beside('command: "true"'),
    "service-that-fails": _beside('command: "false"'),
    "service-that-is-ill": _beside(
        'command: sleep infinity\n    healthcheck: {test: "false", interval: 1s, retries: 2}'
    ),
}


def write(folder: Path) -> Path:
    """All of them, as folders in this one. An empty text is a file that is left out."""
    for name, own in TASKS.items():
        files = {**USUAL, **own}
        if "environment/Dockerfile" not in own and "[environment]" not in files["task.toml"]:
            files["task.toml"] += _PREBUILT
        for path, text in files.items():
            if text:
                file = folder / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, newline="")
        seen(folder / name)
    return folder


def seen(task: Path) -> None:
    """Harbor does not see a task without this folder."""
    folder = task / "environment"
    if not folder.exists():
        folder.mkdir()
        (folder / "README.md").write_text("The image is there.\n")
