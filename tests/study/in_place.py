"""The attacks of `tests/e2e/harbor_attacks.py` where tests run in the agent's own container.

That is what a harness does whose tests share the agent's container: start the image, run the
agent's commands as root, put the tests in place, run them, read the reward. No harness is used, so
that only this construction counts. For the table in docs/verdicts.md:

    python -m tests.study.in_place

prints a line per attack, and how many got the reward 1.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.harbor_attacks import ATTACKS, Attack

from ale_sandboxing.container_testing.images import DEBIAN

LEFT_OUT = ("hook-of-apt", "done-after-the-time-is-up")
"""One needs a network, the other a time limit of the agent."""
_LATER_S = 1
_LIMIT_S = 60


def docker(*arguments: str, text: str = "") -> str:
    """What a command of docker prints; empty where it fails or takes too long."""
    try:
        done = subprocess.run(
            ["docker", *arguments],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def reward(attack: Attack) -> float:
    """The reward that the tests leave, 0 for none."""
    box = docker("run", "-d", "--network=none", "-w", "/app", DEBIAN, "sleep", "600")
    try:
        docker("exec", "-i", box, "bash", "-s", text=attack.solve)
        place = "mkdir -p /tests /logs/verifier; cat >/tests/test.sh"
        docker("exec", "-i", box, "sh", "-c", place, text=attack.test)
        docker("exec", box, "bash", "/tests/test.sh")
        wait = f"sleep {_LATER_S}; cat /logs/verifier/reward."
        found = docker("exec", box, "sh", "-c", f"{wait}json 2>/dev/null || {wait}txt")
        return _value(found)
    finally:
        docker("rm", "-f", box)


def _value(text: str) -> float:
    try:
        read = json.loads(text)
        return float(next(iter(read.values())) if isinstance(read, dict) else read)
    except (ValueError, TypeError, StopIteration):
        return 0.0


def main() -> None:
    """Try every attack."""
    chosen = {name: each for name, each in ATTACKS.items() if name not in LEFT_OUT}
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(chosen, pool.map(reward, chosen.values()), strict=True))
    for name, value in found.items():
        sys.stdout.write(f"{value:g}  {name}\n")
    forged = sum(value == 1 for value in found.values())
    sys.stdout.write(f"{forged} of {len(found)} got the reward 1\n")


if __name__ == "__main__":
    main()
