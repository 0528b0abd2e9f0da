"""The reference that stands in the pages is that of the code, in what a code host can show."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if not {"_build", "generated"} & {*path.parts}
]


def test_the_generated_parts_of_pages_are_those_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "docs/_ext/ale_reference"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not checked.stderr, checked.stderr
    assert not checked.returncode, (
        f"`nox -s reference` (or `python docs/_ext/ale_reference`) writes\n{checked.stdout}"
    )


def test_a_page_has_nothing_that_sphinx_alone_can_show() -> None:
    """A code block is one everywhere; what these would include is missing on a code host."""
    alone = re.compile(r"\{(?:include|eval-rst|toctree|raw|literalinclude|download|py:\w+)\}")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in PAGES
        for match in alone.finditer(path.read_text())
    ]
    assert not found, "write Markdown, or <!-- generated: NAME --> and <!-- end -->"
    assert len(PAGES) > 90
