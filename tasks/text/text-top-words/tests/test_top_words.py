"""Counts the words anew and compares."""

import hashlib
import re
from collections import Counter
from pathlib import Path

INPUT = "578b5423d0799c31ae27c658aea841f0f3585aaddcd85318e2e3f8f9b73dcdea"


def test_the_eight_most_frequent_words_are_ranked() -> None:
    speech = Path("speech.txt").read_bytes()
    assert hashlib.sha256(speech).hexdigest() == INPUT, "speech.txt was changed"
    words = re.findall("[a-z]+", speech.decode().lower())
    ranked = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))[:8]
    expected = [f"{count} {word}" for word, count in ranked]
    assert Path("top.txt").read_text().splitlines() == expected
