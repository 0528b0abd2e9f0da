"""configs/service/compose.yaml, started with docker compose: an agent, the loop and the workers.

There is no registry here, so the images are the small Debian of the sandboxes' tests; the programs
of this machine, Python's environment and nats-server, are mounted into it, at the same places.

The image of the Dockerfile takes minutes to build, and what it is made of has to be within reach.
Where the variable ALE_IMAGE names one, a long test uses it as it is::

    docker build -f configs/service/Dockerfile -t ale .
    ALE_IMAGE=ale pytest -m long tests/e2e/test_service.py

``--build-arg BASE=...`` and ``--build-arg TORCH_INDEX=...`` name another base and another index.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from attrs import frozen

from ale.testing.waiting import wait_for
from ale_sandboxing.container_testing.compose import COMPOSE, why_no_compose
from ale_sandboxing.container_testing.images import DEBIAN

from .harbor_tasks import why_not

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "configs" / "service"
SERVICES = ("model", "proxy", "loop", "worker")
KEYS = {
    "MODEL_KEY": "key-of-the-model",
    "FEEDBACK_KEY": "key-of-judges",
    "NATS_PASSWORD": "12e3-of-nats",
}
QUESTIONS = [f"Say something to {name}." for name in ("Ann", "Bob", "Cid", "Dan")]
PATIENCE_S = 300.0
STATUS = """
import os, socket
from urllib.request import Request, urlopen
key = {"Authorization": "Bearer " + os.environ["MODEL_KEY"], "Content-Type": "application/json"}
asked = Request(f"http://{socket.gethostname()}:8000/ale/status", b"{}", key)
print(urlopen(asked).read().decode())
"""

pytestmark = [pytest.mark.engine, pytest.mark.needs("torch")]


def with_programs_of_this_machine(*, all_services: bool) -> dict[str, Any]:
    """A compose file beside the example's: other images, with programs mounted into them.

    Args:
        all_services: and not only that of NATS.
    """
    places = {
        ROOT,
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(sys.executable).resolve().parents[1],
    }
    nats = Path(str(shutil.which("nats-server")))
    is_up = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8222/healthz')"
    ours = {
        "image": DEBIAN,
        "user": "root",
        "environment": {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        "volumes": [f"{place}:{place}:ro" for place in sorted(places)],
    }
    server = {
        "image": DEBIAN,
        "volumes": [f"{nats}:/usr/bin/nats-server:ro"],
        "healthcheck": {"test": ["CMD", "python3", "-c", is_up]},
    }
    ours_too = dict.fromkeys(SERVICES, ours) if all_services else {}
    return {"services": {"nats": server, **ours_too}}


@frozen
class Service:
    """The example under a project name of its own."""

    workshop: Any
    client: Sequence[str]
    project: str

    def compose(self, *arguments: str) -> str:
        """Run docker compose; what it prints."""
        done = self.tried(*arguments)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self._logs()}"
        return done.stdout

    def tried(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run docker compose, which may fail."""
        files = ("-f", str(SERVICE / "compose.yaml"), "-f", "here.yaml")
        return subprocess.run(
            [*self.client, "-p", self.project, *files, *arguments],
            cwd=self.workshop.folder,
            env=self.workshop.environ,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )

    def containers(self, service: str) -> list[str]:
        """The containers of a service, by the names that they have for themselves."""
        return [name[:12] for name in self.compose("ps", "--quiet", service).split()]

    def state(self, service: str, key: str) -> str:
        """What the engine says of the only container of a service."""
        argv = ["docker", "inspect", "--format", f"{{{{.State.{key}}}}}", *self.containers(service)]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    def served(self) -> int | None:
        """The version that the model server samples from; None while it starts."""
        if self.state("model", "Health.Status") != "healthy":
            return None
        return int(
            json.loads(self.compose("exec", "-T", "model", "python3", "-c", STATUS))["version"]
        )

    def wait_for(self, what: Callable[[], bool]) -> None:
        """Wait until something is so; each look starts programs, so they are seldom."""
        wait_for(what, self._logs, PATIENCE_S, 0.5)

    def left(self) -> list[str]:
        """What docker compose has made and is still there."""
        found = []
        for kind, every in (("container", ["--all"]), ("network", []), ("volume", [])):
            label = f"label=com.docker.compose.project={self.project}"
            argv = ["docker", kind, "ls", *every, "--quiet", "--filter", label]
            printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
            found += [f"{kind} {name}" for name in printed.split()]
        return found

    def _logs(self) -> str:
        label = f"label=com.docker.compose.project={self.project}"
        argv = ["docker", "ps", "--all", "--quiet", "--filter", label]
        names = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
        logs = ["docker", "logs", "--tail", "20"]
        said = [subprocess.run([*logs, name], capture_output=True, text=True) for name in names]
        return "\n".join(f"{done.args[-1]}: {done.stdout}{done.stderr}" for done in said)


def service(workshop: Any, version: str, image: str | None = None) -> Iterator[Service]:
    reason = why_not("docker") or why_no_compose(version)
    if reason is None and shutil.which("nats-server") is None:
        reason = "nats-server is not installed (Debian: apt-get install nats-server)"
    if reason is not None:
        pytest.skip(reason)
    workshop.environ.update(COMPOSE[version] | KEYS | {"PROXY_PORT": "0"})
    if image is not None:
        workshop.environ["ALE_IMAGE"] = image
    client = ("docker", "compose") if version == "2" else ("docker-compose",)
    workshop.write("here.yaml", with_programs_of_this_machine(all_services=image is None))
    made = Service(workshop, client, f"ale-test-{uuid.uuid4().hex[:12]}")
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "60")
        assert made.left() == []


@pytest.fixture
def newest(workshop: Any) -> Iterator[Service]:
    yield from service(workshop, "2")


@pytest.fixture
def oldest(workshop: Any) -> Iterator[Service]:
    yield from service(workshop, "1")


@pytest.fixture
def of_the_dockerfile(workshop: Any) -> Iterator[Service]:
    image = os.environ.get("ALE_IMAGE")
    if not image:
        pytest.skip("ALE_IMAGE names no image that was built of configs/service/Dockerfile")
    yield from service(workshop, "2", image)


def work(url: str) -> None:
    """The agent answers eight times each question; a judge wants a vowel in each answer."""
    client = openai.OpenAI(base_url=url, api_key=KEYS["MODEL_KEY"])
    for number in range(8 * len(QUESTIONS)):
        answer = client.chat.completions.create(
            model="policy",
            messages=[{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}],
            seed=number,
            temperature=1,
            top_p=1,
            max_tokens=3,
            extra_headers={"X-Ale-Session": f"s{number}"},
        )
        said = answer.choices[0].message.content or ""
        score = {"score": float(any(each in "aeiou" for each in said))}
        asked = urllib.request.Request(
            f"{url}/sessions/s{number}/feedback",
            data=json.dumps(score).encode(),
            headers={
                "Authorization": f"Bearer {KEYS['FEEDBACK_KEY']}",
                "Content-Type": "application/json",
            },
        )
        urllib.request.urlopen(asked, timeout=PATIENCE_S).read()


def use(running: Service, *, kill: bool = False) -> None:
    """What the how-to does, from the first start to the end."""
    running.compose("up", "--detach", "--no-build", "--scale", "worker=2")
    running.wait_for(lambda: running.state("proxy", "Health.Status") == "healthy")
    assert running.served() == 0
    work(f"http://{running.compose('port', 'proxy', '8800').strip()}/v1")
    running.wait_for(lambda: "version 1 deployed" in running.compose("logs", "loop"))
    running.wait_for(lambda: running.served() == 1)
    if kill:
        started = running.state("model", "StartedAt")
        running.compose("exec", "-T", "model", "python3", "-c", "import os; os.kill(-1, 9)")
        # It is started again, with the weights of the beginning, and given those deployed.
        running.wait_for(lambda: running.state("model", "StartedAt") != started)
        running.wait_for(lambda: running.served() == 1)
    in_worker = ("exec", "-T", "worker")
    sample = ("ale", "run", "config/sample.yaml", "--directory", "runs/sampled")
    assert "completed: 32 episodes" in running.compose(*in_worker, *sample)
    lines = running.compose(*in_worker, "cat", "runs/sampled/episodes.jsonl").splitlines()
    made = [json.loads(line) for line in lines]
    names = {each["metadata"]["worker"].partition("-")[0] for each in made}
    assert names == set(running.containers("worker")), "each of the workers has taken some"
    with_keys = [option for key in KEYS.values() for option in ("-e", key)]
    assert found(running, "-e", "Say something to Ann") != []
    assert found(running, *with_keys) == []


def found(running: Service, *patterns: str) -> list[str]:
    """The files of the volume with one of these texts."""
    command = 'grep --recursive --files-with-matches --no-messages -F "$@" runs || true'
    return running.compose("exec", "-T", "worker", "sh", "-c", command, "-", *patterns).split()


def test_an_agent_the_loop_and_workers_work_together(newest: Service) -> None:
    use(newest)


@pytest.mark.long
def test_so_they_do_with_the_oldest_docker_compose_and_a_killed_server(oldest: Service) -> None:
    use(oldest, kill=True)


@pytest.mark.long
def test_so_they_do_in_the_image_of_the_dockerfile(of_the_dockerfile: Service) -> None:
    use(of_the_dockerfile)


@pytest.mark.parametrize("variable", KEYS)
def test_without_a_secret_nothing_is_started(newest: Service, variable: str) -> None:
    del newest.workshop.environ[variable]
    refused = newest.tried("up", "--detach", "--no-build")
    assert refused.returncode != 0
    assert variable in refused.stderr
    assert "see .env.example" in refused.stderr
    newest.workshop.environ[variable] = KEYS[variable]
    assert newest.left() == []
