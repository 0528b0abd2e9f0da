"""Names and sentences use the terms of the field: docs/glossary.md has them."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]
PRIVATE = {
    r"doors?": "hook, extension point",
    r"fall(s|en)? silent|speaks? (first|next)": "the expert's turns end",
    r"faults?": "error, problem, failure",
    r"fleets?": "worker group",
    r"nudges?d?": "compact, reminder",
    r"go(es|ing)? on\b(?! (GitHub|a|the)\b)": "continue, resume",
    r"hushed": "suppressed output",
    r"keepers?|zygotes?": "supervisor, fork server",
    r"(laid|lay|lays|laying) over": "override, merge",
    r"lanes?": "worker shell",
    r"lessons?": "training target",
    r"let(s|ting)? go": "close, release",
    r"quarantined?": "failed to load",
    r"rooms": "modules",
    r"rungs?": "isolation level, priority",
    r"sets? aside": "failed to load",
    r"slabs?": "KV cache",
    r"tally|tallies": "metrics accumulator",
    r"trunks?": "snapshot",
}
"""Words that had a meaning of their own here once, and what to write in their place."""

FILES = [
    path
    for path in tracked(
        "*.md",
        "configs/*.yaml",
        "core/*.md",
        "core/src/**/*.py",
        "docs/**/*.md",
        "noxfile.py",
        "plugins/*/*/*.md",
        "plugins/*/*/src/**/*.py",
    )
    # A word list that tasks are made of, and files that scripted models write.
    if path.name != "words.py" and not path.name.endswith(".script.yaml")
]


@pytest.mark.parametrize("word", PRIVATE)
def test_no_word_has_a_private_meaning(word: str) -> None:
    # In names too: `lay_over`, `_fault`.
    found = re.compile(rf"(?<![A-Za-z])({word})(?![A-Za-z])".replace(" ", r"[\s_]+"), re.I)
    places = []
    for path in FILES:
        # A fault that a test injects is one: fault injection.
        if word == r"faults?" and ("testing" in path.parts or path.suffix == ".md"):
            continue
        # A former option is named as stored runs name it.
        text = re.sub(r'"\w+": Former\(', "Former(", path.read_text())
        for match in found.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            places.append(f"{path.relative_to(ROOT)}:{line}: {match[0]!r}")
    assert not places, f"write {PRIVATE[word]} instead:\n" + "\n".join(places)


def test_the_files_that_people_read_are_checked() -> None:
    names = {str(path.relative_to(ROOT)) for path in FILES}
    assert {"README.md", "docs/index.md", "core/src/ale/hookspecs.py"} <= names
    assert len(names) > 500
