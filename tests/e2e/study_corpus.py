"""Write configs/study/warm.corpus.txt: text from which the study's tokenizer is learned.

    python tests/e2e/study_corpus.py

Goals and reference commands of tasks like the study's. A test holds that the file is up to date.
"""

from pathlib import Path

from ale_tasks_shell import corpus

TARGET = Path(__file__).resolve().parents[2] / "configs" / "study" / "warm.corpus.txt"
KINDS = ("write", "copy", "rename", "delete", "append", "sort", "reverse", "make_folders")
N_TASKS = 1000


def text() -> str:
    """The corpus, every line once a task."""
    return "".join(dict.fromkeys(corpus(0, N_TASKS, length=(1, 1), kinds=KINDS)))


if __name__ == "__main__":
    TARGET.write_text(text())
