"""The text from which the vocabulary of ``configs/code_rewards.yaml`` is learned."""

import json
import runpy
from pathlib import Path

CONFIGS = Path(__file__).parents[2] / "configs"
TARGET = CONFIGS / "code_rewards.corpus.txt"
FEEDBACK = "failed: assert f(2, 5) == 7\n    the left side is 10\n0 of 1 tests passed\nno code\n"
"""What the model is shown after an attempt."""


def text() -> str:
    """The goals of all problems, and feedback."""
    lines = runpy.run_path(str(CONFIGS / "code_problems.py"))["text"]().splitlines()
    return "".join(json.loads(line)["text"] + "\n" for line in lines) + FEEDBACK * 50


if __name__ == "__main__":
    TARGET.write_text(text())
