"""`ale ablate` as a process, over runs that are processes; and grids that are only on disk."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from attrs import field, frozen

from ale.testing.waiting import wait_for
from ale_ablate.comparing import Comparison, compare
from ale_ablate.grid import Cell, Grid
from ale_ablate.measuring import Measured

PARTS = Path(__file__).parent / "parts"
CONFIG: Mapping[str, Any] = {
    "tasks": {"type": "few"},
    "sandbox": {"type": "folder"},
    "agent": {"type": "lucky"},
    "chunker": {"type": "turns"},
    "credit": {"type": "same"},
    "observers": [],
    "run": {"rollouts": 2, "retries": 0, "concurrency": 2},
}


@frozen
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def grid(self) -> Path:
        """The folder that it named."""
        found = re.search(r"\S*runs/\d{8}-\d{6}-ablate-\S+", self.out)
        assert found is not None, self.out + self.err
        return Path(found[0]).parent if found[0].endswith(".html") else Path(found[0])


@frozen
class Running:
    """A command that runs, leader of a process group as under a terminal."""

    process: "subprocess.Popen[bytes]"
    out: IO[bytes]
    err: IO[bytes]

    def signal(self, number: signal.Signals) -> None:
        """As a terminal does it: to the whole group."""
        os.killpg(self.process.pid, number)

    def wait_for(self, what: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        """Until it holds."""
        return wait_for(what, lambda: _whole(self.out) + _whole(self.err), timeout_s)

    def says(self, text: str) -> None:
        """Wait until its standard error has this."""
        self.wait_for(lambda: text in _whole(self.err))

    def ended(self, timeout_s: float = 120.0) -> Ended:
        """Wait for its end."""
        code = self.process.wait(timeout_s)
        return Ended(code, _whole(self.out), _whole(self.err))


def _whole(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()


@frozen
class Workshop:
    """A folder with a config, in which the real `ale` runs."""

    folder: Path
    environ: Mapping[str, str]
    started: list[Running] = field(factory=list)

    def config(self, **sections: Any) -> Path:
        """A config file with these sections over the usual ones."""
        plain = {**CONFIG, **sections}
        plain["run"] = {**CONFIG["run"], **sections.get("run", {})}
        path = self.folder / "study.yaml"
        path.write_text(json.dumps(plain))
        return path

    def start(self, *arguments: object) -> Running:
        """Start `ale ablate`."""
        out, err = (
            (self.folder / f"{len(self.started)}.{name}").open("w+b") for name in ("out", "err")
        )
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ale", "ablate", *map(str, arguments)],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            process_group=0,
        )
        self.started.append(Running(process, out, err))
        return self.started[-1]

    def ablate(self, *arguments: object) -> Ended:
        """Run it to its end."""
        return self.start(*arguments).ended()

    def grid(self) -> Path | None:
        """The folder of the one grid, once it is there."""
        found = list(self.folder.glob("runs/*-ablate-*/grid.json"))
        return found[0].parent if found else None


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    """Parts of a package that the processes find as they find any other."""
    record = tmp_path / "site" / "ablate_parts-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: ablate-parts\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(
        "[ale]\nparts = ablate_parts\nlearning = ablate_learning\n"
    )
    (tmp_path / "tmp").mkdir()
    path = os.pathsep.join([str(tmp_path / "site"), str(PARTS)])
    environ = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path / "tmp")}
    made = Workshop(tmp_path, environ)
    yield made
    for running in made.started:
        if running.process.poll() is None:
            running.process.terminate()
            running.process.wait(30)
        running.out.close()
        running.err.close()


Curves = Mapping[str, Sequence[Sequence[float]]]
"""By cell, one curve of success per seed."""


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Comparison]:
    """A comparison of runs with these curves: nothing is run."""

    def make(
        cells: Curves,
        *,
        held_out: bool = True,
        greedy: float | None = None,
        every: int = 1,
        graded: int = 100,
        rollouts: Callable[[int], int] = lambda cell: 8,
        **changed: Any,
    ) -> Comparison:
        grid = Grid(
            path=tmp_path,
            name="study",
            created="2026-01-01T00:00:00+00:00",
            source="study.yaml",
            overrides=(),
            cells=tuple(Cell.of(i, [name]) for i, name in enumerate(cells, 1)),
            seeds=tuple(range(max(map(len, cells.values())))),
            versions={"ale-core": "0.1.0"},
        )
        runs = []
        for slot in grid.slots():
            curves = cells[slot.cell.name]
            if slot.seed >= len(curves):
                runs.append(Measured(slot=slot, state="missing"))
                continue
            curve = tuple((every * i, y) for i, y in enumerate(curves[slot.seed]))
            runs.append(
                Measured(
                    slot=slot,
                    state="completed",
                    path=slot.folder / "20260101-000000-0000-run",
                    held_out=curve if held_out else (),
                    greedy=tuple((step, greedy) for step, _ in curve if greedy is not None),
                    train=curve,
                    counts={step: (graded, round(graded * y)) for step, y in curve},
                    rollouts_by_step={step: rollouts(slot.number) for step, _ in curve},
                    seconds=60.0 + slot.seed,
                )
            )
        return compare(grid, runs)

    return make
