"""No secret of the environment gets into a run, a terminal or a sandbox."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

SECRETS = {
    "OPENAI_API_KEY": 'sk-unique-4f1c"quoted\\9d',
    "PLAIN_NAME": "named-in-the-config-77aa",
    "HF_TOKEN": "hf_0123456789abcdef",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfi",
    "DB_PASSWORD": "grüße-aus-dem-schloß",
}
BY_NAME = [name for name in SECRETS if name != "PLAIN_NAME"]
OWN, PARENTS = "env; cat /proc/$$/environ", "tr '\\0' '\\n' < /proc/$PPID/environ"
SPY = [OWN, PARENTS]


def answer(body: dict[str, Any], key: str) -> tuple[int, dict[str, Any]]:
    """The server gives the key away, in an error and in a message."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    goal = next(m["content"] for m in body["messages"] if m["role"] == "user")
    if "refuse" in goal:
        return 401, {"error": {"message": f"Incorrect API key provided: {key}", "code": None}}
    name, arguments = "finish", {"summary": key}
    if turn < len(SPY):
        name, arguments = "shell", {"command": SPY[turn]}
    call = {"name": name, "arguments": json.dumps(arguments)}
    message = {
        "role": "assistant",
        "content": f"You sent {key}, as JSON {json.dumps(key)}.",
        "tool_calls": [{"id": f"c{turn}", "type": "function", "function": call}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return 200, {"id": "x", "object": "chat.completion", "model": key, "choices": [choice]}


class Echo(BaseHTTPRequestHandler):
    """Answers with the key it was sent."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        status, response = answer(body, self.headers["Authorization"].removeprefix("Bearer "))
        data = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """A server that gives secrets away."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def found(folder: Path, output: str) -> list[str]:
    """Where a secret stands, whole or as JSON writes it."""
    texts = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    texts["the terminal"] = output.encode()
    forms = [
        (name, form)
        for name, value in SECRETS.items()
        for form in (
            value.encode(),
            json.dumps(value)[1:-1].encode(),
            json.dumps(value, ensure_ascii=False)[1:-1].encode(),
            json.dumps(json.dumps(value)[1:-1])[1:-1].encode(),
        )
    ]
    return [f"{name} in {place}" for place, text in texts.items() for name, f in forms if f in text]


@pytest.mark.own_process  # whose variables a sandbox may read
@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "PLAIN_NAME"])
def test_no_secret_gets_into_a_run_a_terminal_or_a_sandbox(
    workshop: Any, url: str, variable: str
) -> None:
    workshop.task("spy")
    workshop.task("refuse")
    workshop.config(
        llm={"type": "openai", "base_url": url, "model": "m", "api_key_env": variable},
        run={"retries": 0},
    )
    # PLAIN_NAME is secret only where the config says so.
    environ = {name: value for name, value in SECRETS.items() if name in (variable, *BY_NAME)}
    done = workshop.ale("run", "run.yaml", **environ)
    assert done.code == 3, done.text
    spy, refused = workshop.episodes()["0-spy-0"], workshop.episodes()["0-refuse-0"]
    assert refused["failure"]["kind"] == "LLMError"
    seen, stolen = (spy["trajectory"]["turns"][i]["observations"][0]["content"] for i in (0, 1))
    assert "ALE_SANDBOX=" in seen
    # The local sandbox does not hide the host's processes; what is read there is masked.
    assert "OPENAI_API_KEY=***" in stolen
    assert "You sent ***" in spy["trajectory"]["turns"][0]["completion"]["message"]["content"]
    shown = workshop.ale("show", str(workshop.run), "0-spy-0", "--full", **environ)
    again = workshop.ale("show", str(workshop.run), **environ)
    assert found(workshop.run, done.text + shown.text + again.text) == []
    for name in SECRETS:
        assert f"{name}=" not in seen, "the sandbox has the variable"
