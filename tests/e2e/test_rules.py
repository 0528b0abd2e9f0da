"""`run.stop_if` and `run.alert_if`: rules over the metrics of steps."""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ale.runs import RunReader
from ale_look.inspect.report.gathering import gather
from ale_look.inspect.report.page import header

TRAINER = """
from ale.plugin import Component, hookimpl
from ale.testing.fakes import FakeTrainer
from ale.types import StepReport

ENTROPY = (1.0, 0.05, 0.9, 0.05, 0.04, 0.03, 0.02)


class Silent(FakeTrainer):
    async def step(self, batch):
        await super().step(batch)
        metrics = {"entropy": ENTROPY[batch.step]}
        return StepReport(step=batch.step, policy_version=batch.step + 1, metrics=metrics)


class Falling(Silent):
    metric_names = ("entropy",)


def component(name, made):
    return Component(name, None, lambda options, context: made(), summary="Its entropy falls.")


@hookimpl
def ale_trainers():
    return [component("falling", Falling), component("silent", Silent)]
"""
DONE = [
    {"shell": "touch done"},
    {"calls": [{"name": "finish", "arguments": {"summary": "ok"}}]},
]


class Told(BaseHTTPRequestHandler):
    """Keeps what it is told; refuses everything at /refused."""

    told: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.told.append(json.loads(body))
        self.send_response(503 if self.path == "/refused" else 204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    Told.told = []
    with HTTPServer(("127.0.0.1", 0), Told) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def prepared(workshop: Any, trainer: str = "falling", **run: Any) -> None:
    workshop.task("t")
    workshop.write("trainer.py", TRAINER)
    workshop.scripted(
        {"default": DONE},
        plugins=["trainer.py"],
        trainer={"type": trainer},
        run={"rollouts": 2, "steps": 6, **run},
    )


def events(workshop: Any, name: str) -> list[dict[str, Any]]:
    return [each for each in workshop.lines("events.jsonl") if each["event"] == name]


def test_a_run_ends_when_a_rule_holds_and_a_resume_continues_it(workshop: Any) -> None:
    prepared(workshop, stop_if=["entropy < 0.1 for 2 steps"])
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 5, ended.text
    said = "step 4: entropy is 0.04 (run.stop_if: entropy < 0.1 for 2 steps)"
    assert f"  stopped      {said}" in ended.out
    assert ended.out.startswith("halted: 10 episodes on disk")
    [alert] = events(workshop, "alert")
    assert (alert["step"], alert["value"], alert["stops"]) == (4, 0.04, True)
    assert events(workshop, "run_finished")[-1]["cause"] == said
    assert (
        json.loads((workshop.run / "manifest.json").read_text())["outcome"]["outcome"] == "halted"
    )
    shown = workshop.succeeds("show", str(workshop.run)).out
    assert re.search(rf": halted after .*: {re.escape(said)}$", shown, re.M), shown
    assert f"Halted: {said}" in header(gather(RunReader(workshop.run)))["warnings"]
    rest = workshop.ale("run", "--resume", str(workshop.run))
    assert rest.code == 0, rest.text
    assert len(workshop.lines()) == 12
    assert said not in workshop.succeeds("show", str(workshop.run)).out
    assert header(gather(RunReader(workshop.run)))["warnings"] == []


@pytest.mark.parametrize("schedule", ["steps", "stream"])
def test_alerts_are_said_once_each_time_and_stop_nothing(
    workshop: Any, address: str, schedule: str
) -> None:
    extra: dict[str, Any] = {} if schedule == "steps" else {"schedule": "stream", "staleness": 1}
    rules = ["entropy < 0.1", "disk_free_gb < 1e9", "success < 0.5"]
    prepared(workshop, alert_if=rules, webhook_env="ALERTS", **extra)
    ended = workshop.ale("run", "run.yaml", ALERTS=address)
    assert ended.code == 0, ended.text
    made = [(each["rule"], each["step"]) for each in events(workshop, "alert")]
    assert made == [("disk_free_gb < 1e9", 0), ("entropy < 0.1", 1), ("entropy < 0.1", 3)]
    assert ended.err.count("step 1: entropy is 0.05 (run.alert_if: entropy < 0.1)") == 1
    assert {(each["rule"], each["step"]) for each in Told.told} == {*made}
    shown = workshop.succeeds("show", str(workshop.run)).out
    assert "alerts       step 0: disk_free_gb < 1e9 (it is " in shown
    assert "\n             step 3: entropy < 0.1 (it is 0.05)\n" in shown
    warnings = header(gather(RunReader(workshop.run)))["warnings"]
    assert "Alert in step 3: entropy < 0.1 (it is 0.05)" in warnings
    assert {each["run"] for each in Told.told} == {workshop.run.name}
    everything = "".join(path.read_text() for path in workshop.run.glob("*.json*"))
    assert address not in everything


def test_an_alert_that_is_not_taken_is_reported_without_its_address(
    workshop: Any, address: str
) -> None:
    prepared(workshop, alert_if=["entropy < 0.1 for 4 steps"], webhook_env="ALERTS", steps=7)
    ended = workshop.ale("run", "run.yaml", ALERTS=f"{address}/refused")
    assert ended.code == 0, ended.text
    assert "an alert did not reach the address in ALERTS: HTTP Error 503" in ended.err
    assert len(Told.told) == 1
    assert address not in ended.text


@pytest.fixture
def hollow() -> Iterator[str]:
    """The address of a server that talks without end, or, at /garbage, not HTTP."""
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if b"/garbage" in connection.recv(1 << 16):
                connection.sendall(b"garbage\r\n\r\n")
                return
            connection.sendall(b"HTTP/1.1 200 OK\r\nA: ")
            while not ended.wait(0.1):
                connection.sendall(b"a")

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                threading.Thread(target=answer, args=(connection,)).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/garbage", "no web address, or no web server there (BadStatusLine)"),
        ("/endless", "no answer in 10 s"),
        (":hunter2", "no web address, or no web server there (InvalidURL)"),
    ],
)
def test_whatever_is_at_the_address_the_run_goes_on_and_ends(
    workshop: Any, hollow: str, path: str, said: str
) -> None:
    prepared(workshop, alert_if=["entropy < 0.1"], webhook_env="ALERTS", steps=2)
    address = "http://localhost:hunter2" if path == ":hunter2" else f"{hollow}{path}"
    ended = workshop.ale("run", "run.yaml", ALERTS=address)
    assert ended.code == 0, ended.text
    assert f"an alert did not reach the address in ALERTS: {said}" in ended.err
    assert "hunter2" not in ended.text


def test_a_rule_that_stands_twice_counts_a_step_once(workshop: Any) -> None:
    rule = "entropy < 0.1 for 2 steps"
    prepared(workshop, alert_if=[rule, f" {rule}"], steps=5)
    workshop.succeeds("run", "run.yaml")
    assert [each["step"] for each in events(workshop, "alert")] == [4]


def test_a_metric_that_is_no_number_is_said(workshop: Any) -> None:
    prepared(workshop, alert_if=["entropy < 0.1"], steps=3)
    workshop.write("trainer.py", TRAINER.replace("0.05, 0.9", "float('nan'), float('nan')"))
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 0, ended.text
    assert ended.err.count("the rule 'entropy < 0.1' can't hold: entropy is NaN in this step") == 1


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"stop_if": ["entropi < 0.1"]}, "run.stop_if: no step has a metric 'entropi'"),
        ({"alert_if": ["sucess < 0.1"]}, "did you mean 'success'?"),
        ({"stop_if": ["entropy below 0.1"]}, "found 'entropy below 0.1'"),
        ({"stop_if": ["entropy < 0.1 for 0 steps"]}, "found 'entropy < 0.1 for 0 steps'"),
        ({"webhook_env": "NONE"}, "the variable NONE is not set"),
        ({"webhook_env": "PATH"}, "the variable PATH is no web address"),
        ({"webhook_env": "ALERTS"}, "there are no alerts without rules"),
    ],
)
def test_what_can_never_hold_is_refused_at_the_start(
    workshop: Any, run: dict[str, Any], said: str
) -> None:
    prepared(workshop, **run)
    ended = workshop.ale("run", "run.yaml", ALERTS="http://127.0.0.1:9")
    assert ended.code == 2, ended.text
    assert "run.yaml:" in ended.err
    assert said in ended.err
    assert not workshop.runs


def test_a_run_without_a_trainer_has_no_steps_to_watch(workshop: Any) -> None:
    workshop.task("t")
    workshop.scripted({"default": DONE}, run={"stop_if": ["success < 0.1"]})
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 2
    assert "run.stop_if: without a trainer there are no steps to watch" in ended.err


def test_a_metric_that_no_step_has_is_said_where_the_trainer_names_none(workshop: Any) -> None:
    prepared(workshop, "silent", stop_if=["entropi < 0.1"], steps=3)
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 0, ended.text
    said = (
        "the rule 'entropi < 0.1' waits for a metric that this step lacks; did you mean 'entropy'?"
    )
    assert ended.err.count(said) == 1


def test_every_metric_of_the_run_itself_is_known(workshop: Any) -> None:
    from ale._run.watching import OWN

    prepared(workshop, steps=2, schedule="stream", staleness=1)
    workshop.succeeds("run", "run.yaml")
    found = {name for each in events(workshop, "step_finished") for name in each["metrics"]}
    assert found - {"entropy"} <= {*OWN}
