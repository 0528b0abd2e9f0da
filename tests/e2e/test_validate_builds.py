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
