"""Write configs/quickstart.corpus.txt: text from which the tiny policy's tokenizer is learned.

    python tests/e2e/quickstart_corpus.py

Goals and reference commands of the quickstart's own family of tasks. A test holds that the file is
up to date.
"""

from pathlib import Path
from typing import Any

import yaml

from ale_tasks_shell import corpus

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "quickstart.yaml"
TARGET = ROOT / "configs" / "quickstart.corpus.txt"
N_TASKS = 1000


def text() -> str:
    """The corpus, every line once a task."""
    tasks: dict[str, Any] = yaml.safe_load(CONFIG.read_text())["tasks"]
    length, kinds = tasks["length"], tuple(tasks["kinds"])
    return "".join(dict.fromkeys(corpus(0, N_TASKS, length=(length, length), kinds=kinds)))


if __name__ == "__main__":
    TARGET.write_text(text())
