"""`ale validate` on tasks whose images are built: what a build needs is measured."""

import json
from typing import Any

from ale_sandboxing.container_testing.images import DEBIAN

from .harbor_tasks import add, skip_without


def test_a_build_that_needs_a_network_without_saying_so_is_noted(workshop: Any) -> None:
    skip_without("docker")
    for name, command in (("still", "true"), ("needs", "test $(ls /sys/class/net | wc -l) -gt 1")):
        dockerfile = f"FROM {DEBIAN}\nWORKDIR /app\nRUN {command}\n"
        toml = "[environment]\nworkdir = '/app'\n"
        files = {"environment/Dockerfile": dockerfile, "task.toml": toml}
        add(workshop, name, solve="touch done", files={**files, "instruction.md": f"Do {name}.\n"})
    done = workshop.ale(
        *("validate", "tasks", "--sandbox", "docker", "--no-attacks", "-k", "1", "--json")
    )
    assert done.code == 0, done.text
    found = json.loads(done.out)["tasks"]
    said = {name: " ".join(found[name]["notes"]) for name in found}
    assert "its image can't be built without a network" in said["needs"], done.text
    assert "without a network" not in said["still"]


def test_a_task_folder_that_is_left_out_is_said_once_and_is_not_valid(workshop: Any) -> None:
    skip_without("docker")
    add(workshop, "sound", solve="touch done")
    add(workshop, "torn", solve="touch done", files={"task.toml": "[agent"})
    command = ("validate", "tasks", "--sandbox", "docker", "--no-attacks", "-k", "1")
    done = workshop.ale(*command)
    assert done.code == 1, done.text
    assert "1 of 1 task valid" in done.out
    assert "1 problem of tasks that are left out:\n" in done.out
    assert "tasks/torn/task.toml: not TOML" in done.out
    assert done.err.count("1 task folder left out") == 1, done.err
    found = json.loads(workshop.ale(*command, "--json").out)
    assert not found["valid"]
    assert "torn" in found["left_out"][0]
    assert workshop.ale(*command, "--set", "tasks.exclude=[torn]").code == 0
