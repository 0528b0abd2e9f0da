"""Counts the words anew and compares."""

import re
from collections import Counter
from pathlib import Path

SPEECH_WORDS = 181


def test_the_eight_most_frequent_words_are_ranked() -> None:
    words = re.findall("[a-z]+", Path("speech.txt").read_text().lower())
    assert len(words) == SPEECH_WORDS, "speech.txt was changed"
    ranked = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))[:8]
    expected = [f"{count} {word}" for word, count in ranked]
    assert Path("top.txt").read_text().splitlines() == expected
