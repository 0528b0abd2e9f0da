"""ale-starter: one name for what a first run needs. The session `build` installs it and runs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTER = ROOT / "plugins" / "ale-starter"
PROJECT = tomllib.loads((STARTER / "pyproject.toml").read_text())["project"]


def test_it_is_whole_and_fits_the_core() -> None:
    core = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]
    for field in ("version", "license", "license-files", "authors", "classifiers"):
        assert PROJECT[field] == core[field]
    assert (STARTER / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    folders = {path.parent.name for path in ROOT.glob("plugins/*/*/pyproject.toml")}
    for line in PROJECT["dependencies"]:
        found = re.fullmatch(r"([a-z-]+)>=0\.1,<0\.2", line)
        assert found, line
        assert found[1] in folders | {"ale-core"}, line


def test_the_pages_name_it() -> None:
    for page in ("README.md", "docs/packages.md", "plugins/ale-starter/README.md"):
        assert "ale-starter" in (ROOT / page).read_text(), page
