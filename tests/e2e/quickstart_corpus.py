"""Write configs/quickstart.corpus.txt: text from which the tiny policy's tokenizer is learned.

    python tests/e2e/quickstart_corpus.py

Goals and commands of the quickstart's own tasks. A test holds that the file is up to date.
"""

import runpy
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TARGET = CONFIGS / "quickstart.corpus.txt"
N_TASKS = 300


def text() -> str:
    """The corpus, every task once."""
    module = runpy.run_path(str(CONFIGS / "quickstart_tasks.py"))
    options = module["FindOptions"](count=N_TASKS, looks=1.0, reads=1.0)
    texts = ("\n".join((t.goal, *t.solution)) + "\n" for t in module["FindTasks"](options).load())
    return "".join(dict.fromkeys(texts))


if __name__ == "__main__":
    TARGET.write_text(text())
