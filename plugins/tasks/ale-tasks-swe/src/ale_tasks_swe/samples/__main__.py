"""Writes the samples: ``python -m ale_tasks_swe.samples FOLDER [SEED]``."""

import sys
from pathlib import Path

from ale_tasks_swe.git import GitError
from ale_tasks_swe.samples import write_samples

if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or (len(sys.argv) == 3 and not sys.argv[2].isdigit()):
        sys.exit("usage: python -m ale_tasks_swe.samples FOLDER [SEED]")
    target = Path(sys.argv[1])
    if target.exists():
        sys.exit(f"{target} is there already: name a new folder")
    try:
        write_samples(target, int(sys.argv[2]) if len(sys.argv) == 3 else 0)
    except (GitError, OSError) as error:
        sys.exit(str(error))
    tasks, mirrors = target / "tasks.jsonl", target / "repositories"
    sys.stdout.write(f"tasks: {{type: swe, path: {tasks}, mirrors: {mirrors}}}\n")
