"""Start-up: `ale --help` and `ale plugins` against importing what they can't do without.

CPU seconds of child processes, user and system together; the least of several runs, since whatever
else runs on the machine only adds.
"""

import resource
import subprocess
import sys
from pathlib import Path

RUNS = 15
AIM = 2.0
ALE = str(Path(sys.executable).parent / "ale")


def cpu_seconds(command: list[str]) -> float:
    """The least CPU time of several runs of a command."""
    least = float("inf")
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        least = min(least, spent)
    return least


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    bare = cpu_seconds([sys.executable, "-c", "import click, yaml, attrs"])
    print(f"{'command':<12} {'cpu ms':>8} {'bare ms':>8} {'ratio':>6} {'aim':>5}")
    missed = False
    for name in ("--help", "plugins"):
        spent = cpu_seconds([ALE, name])
        ratio = spent / bare
        missed |= ratio > AIM
        verdict = "ok" if ratio <= AIM else "MISSED"
        print(
            f"{'ale ' + name:<12} {1000 * spent:8.1f} {1000 * bare:8.1f} {ratio:6.2f} {AIM:5.1f}"
            f"  {verdict}"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
