"""`ale workers bridge` as a process: killed and started again, and used by OpenClaw's agents."""

import json
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from .test_proxy import PATIENCE_S, post, started, stop

KEYS = {"MANAGER_KEY": "key-of-the-managers", "WORKER_KEY": "key-of-the-workers"}
BRIDGE = ("workers", "bridge", "--port", "0", "--run", "runs/team")
LOCKED = (*BRIDGE, "--key-env", "MANAGER_KEY", "--worker-key-env", "WORKER_KEY")


def run_skill(path: Path, url: str, key: str, id: str = "") -> Any:
    """What the command of a skill answers."""
    (command,) = re.findall(r"```bash\n(.*?)```", path.read_text(), re.S)
    done = subprocess.run(
        ["bash", "-c", re.sub(r"\bID\b", id, command)],
        env={"PATH": "/usr/bin:/bin", "BRIDGE_URL": url, "BRIDGE_KEY": key, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_agents_of_openclaw_reach_the_bridge_with_their_skills(workshop: Any) -> None:
    workshop.succeeds("new", "openclaw", "team")
    manager, worker = (workshop.folder / "team" / role / "skills" for role in ("manager", "worker"))
    bridge, url = started(workshop, *LOCKED, **KEYS)
    assigned = run_skill(manager / "assign-task/SKILL.md", url, KEYS["MANAGER_KEY"])
    taken = run_skill(worker / "take-task/SKILL.md", url, KEYS["WORKER_KEY"])
    assert taken["id"] == assigned["id"]
    refused = run_skill(manager / "assign-task/SKILL.md", url, KEYS["WORKER_KEY"])
    assert "key of a manager" in refused["error"]["message"]
    id = assigned["id"]
    run_skill(worker / "submit-result/SKILL.md", url, KEYS["WORKER_KEY"], id)
    read = run_skill(manager / "read-result/SKILL.md", url, KEYS["MANAGER_KEY"], id)
    assert (read["state"], read["result"]) == ("answered", "Lima")
    run_skill(manager / "submit-feedback/SKILL.md", url, KEYS["MANAGER_KEY"], id)
    stop(bridge)
    (episode,) = workshop.episodes(workshop.folder / "runs" / "team").values()
    assert episode["reward"] == 0.5
    assert episode["metadata"]["feedback"][0]["author"] == "manager-01"
    files = [path for path in (workshop.folder / "runs").rglob("*") if path.is_file()]
    assert not [
        path for path in files for key in KEYS.values() if key.encode() in path.read_bytes()
    ]


def test_what_was_answered_before_a_kill_is_there_after_it(workshop: Any) -> None:
    """Killed after each answer, at every stage of an assignment."""
    steps = (
        ("tasks/assign", {"id": "a", "prompt": "Well?"}, "assigned"),
        ("tasks/take", {"worker": "ada"}, "taken"),
        ("tasks/result", {"id": "a", "worker": "ada", "result": "Yes."}, "answered"),
        ("feedback", {"id": "a", "text": "Why?"}, "answered"),
        ("feedback", {"id": "a", "score": 0.25}, "graded"),
    )
    for path, form, _ in steps:
        bridge, url = started(workshop, *BRIDGE)
        post(url, path, form)
        bridge.signal(signal.SIGKILL)
        bridge.ended(PATIENCE_S)
        bridge, url = started(workshop, *BRIDGE)
        states = json.loads(urllib.request.urlopen(f"{url}/tasks/a", timeout=PATIENCE_S).read())
        assert states["state"] == next(state for p, f, state in steps if (p, f) == (path, form))
        bridge.signal(signal.SIGKILL)
        bridge.ended(PATIENCE_S)
    (episode,) = workshop.episodes(workshop.folder / "runs" / "team").values()
    assert (episode["reward"], episode["metadata"]["feedback"][0]["text"]) == (0.25, "Why?")


def test_mistakes_are_reported_before_anything_is_started(workshop: Any) -> None:
    for arguments, message in (
        (["workers", "bridge", "--key-env", "NOT_SET"], "NOT_SET is not set"),
        (["workers", "bridge", "--worker-key-env", "X"], "needs one for managers"),
        (["workers", "bridge", "--upstream", "localhost"], "expected a URL"),
        (["workers", "manage", "absent.yaml"], "absent.yaml"),
    ):
        done = workshop.ale(*arguments, timeout_s=PATIENCE_S)
        assert done.code == 2, done.text
        assert message in done.err
    assert not (workshop.folder / "runs").exists()
