"""Write the pictures of `ale view` into the documentation: `python docs/_ext/pictures.py`.

It runs the example tasks, writes the run's page as one file, and has Chromium draw some of its
views. A view that has not changed looks the same, but for times.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "how-to" / "view"
EPISODE = "0-text-top-words-2"
VIEWS = {
    "run": ("/run/{run}", "1180,760", False),
    "timeline": ("/run/{run}/timeline", "1180,620", False),
    "task": ("/run/{run}/task/basics-count", "1180,960", False),
    "episode": ("/run/{run}/e/{offset}/" + EPISODE, "1180,760", True),
    "replay": ("/run/{run}/e/{offset}/" + EPISODE + "?replay=3", "1180,600", True),
}
"""By the picture's name: the address of the view, the window's size, and whether it is dark."""
DARK = {True: "0", False: "1"}
WAIT_MS = 5000


def main() -> None:
    """Write all pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed; .ci/engines installs it on Debian")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = _report(Path(folder))
        for name, (path, size, dark) in VIEWS.items():
            address = path.format(run=quote(run.name), offset=_offset(run))
            page = f"{(run / 'report.html').as_uri()}#{address}"
            _draw(chromium, page, size, PICTURES / f"{name}.png", dark=dark)
            print(PICTURES / f"{name}.png")


def _report(folder: Path) -> Path:
    """A run of the examples, with its page."""
    config = ROOT / "configs" / "examples.yaml"
    for command in (
        ["run", str(config), "--set", "run.name=examples"],
        ["report", "--episodes", "300"],
    ):
        subprocess.run([sys.executable, "-m", "ale", *command], cwd=folder, check=True)
    (run,) = (folder / "runs").glob("*-examples")
    return run


def _offset(run: Path) -> int:
    """Where the line of the episode begins."""
    at = 0
    for line in (run / "episodes.jsonl").read_bytes().splitlines(keepends=True):
        if f'"id":"{EPISODE}"'.encode() in line:
            return at
        at += len(line)
    raise LookupError(EPISODE)


def _draw(chromium: str, page: str, size: str, target: Path, *, dark: bool) -> None:
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={size}",
        f"--virtual-time-budget={WAIT_MS}",
        f"--blink-settings=preferredColorScheme={DARK[dark]}",
        f"--screenshot={target}",
    ]
    subprocess.run([chromium, *options, page], check=True, capture_output=True)


if __name__ == "__main__":
    main()
