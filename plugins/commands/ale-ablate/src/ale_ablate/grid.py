"""A grid: which configs are compared, over which seeds, and where its files are.

``grid.json`` describes the grid; ``cells/<cell>/config.yaml`` is a cell's whole config, so that
later edits of its sources have no effect; ``cells/<cell>/seed-<n>/`` holds the run of one seed and
its output, ``output.log``.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from attrs import asdict, field, frozen

from ale.errors import InputError, Problem, StoreError
from ale.files import restrict, write_whole

SCHEMA = 1
FILE = "grid.json"
_SLUG = 60
"""Characters of a cell's name in a folder's name."""
_OPENING, _CLOSING, _QUOTES = "[{(", "]})", "'\""
_OWN = ("run.seed", "run.name", "run.directory")
"""Every run of a grid has its own."""


@frozen(kw_only=True)
class Cell:
    """One config of those that are compared."""

    name: str
    overrides: tuple[str, ...]
    """Config overrides of this cell: ``credit.type=grpo``."""
    folder: str
    control: str = ""
    """Which control it is; empty for an arm."""

    @classmethod
    def of(cls, number: int, overrides: Sequence[str], control: str = "") -> "Cell":
        """The cell with that number, from 1."""
        name = control or ", ".join(overrides) or "as written"
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:_SLUG]
        folder = f"{number:02d}-{slug}"
        return cls(name=name, overrides=tuple(overrides), folder=folder, control=control)


@frozen(kw_only=True)
class Grid:
    """Cells times seeds, in a folder."""

    path: Path
    name: str
    created: str
    source: str
    """The config as it was named on the command line."""
    overrides: tuple[str, ...]
    """Overrides of every cell."""
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    versions: Mapping[str, str]
    branches: bool = False
    """Every other cell begins where the demonstrations of the first one ended, seed by seed."""
    notes: tuple[str, ...] = ()
    """What the reader should know about the choice of cells."""
    sweep: tuple[str, ...] = ()
    """Overrides of which each cell still has to be given one: see `ale_ablate.sweeping`."""

    def config(self, cell: Cell) -> Path:
        """The file with a cell's whole config."""
        return self.path / "cells" / cell.folder / "config.yaml"

    def folder(self, cell: Cell, seed: int) -> Path:
        """Folder of the run of one seed."""
        return self.path / "cells" / cell.folder / f"seed-{seed}"

    def slots(self) -> "Iterator[Slot]":
        """Every run, seed by seed, so that early comparisons are paired."""
        for seed, (number, cell) in itertools.product(self.seeds, enumerate(self.cells, 1)):
            yield Slot(grid=self, cell=cell, number=number, seed=seed)


@frozen(kw_only=True)
class Slot:
    """The place of one run in a grid."""

    grid: Grid = field(repr=False)
    cell: Cell
    number: int
    """The cell's, from 1."""
    seed: int

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.grid.folder(self.cell, self.seed)

    @property
    def log(self) -> Path:
        """The output of its process."""
        return self.folder / "output.log"

    @property
    def name(self) -> str:
        """Of its run."""
        return f"{self.grid.name}-{self.number:02d}-seed{self.seed}"

    @property
    def origin(self) -> "Slot | None":
        """The slot from whose run this one branches; None if it begins by itself."""
        if not self.grid.branches or self.number == 1:
            return None
        return Slot(grid=self.grid, cell=self.grid.cells[0], number=1, seed=self.seed)

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.cell.name}, seed {self.seed}"

    def run(self) -> Path | None:
        """The run's directory, once it has been started."""
        found = self._runs()
        return found[-1] if found else None

    def unclear(self) -> str | None:
        """Why it is for the user to say which run counts: it is archived, or there are several."""
        found, archives = self._runs(), sorted(self.folder.glob("*.tar.gz"))
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            return f"{self.folder} holds {len(found)} runs, of which one can count: {names}"
        if archives and not found:
            again = "move the archive away to run it again"
            return f"its run is archived: ale runs restore {archives[-1]}, or {again}"
        return None

    def _runs(self) -> list[Path]:
        # A run that was killed before its manifest was written can't be resumed.
        return [each.parent for each in sorted(self.folder.glob("*/manifest.json"))]


def split(text: str, separator: str = ",") -> list[str]:
    """Split at separators outside brackets and quotes: ``a,{type: b, c: 1}`` has two parts."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        elif letter == separator and depth == 0:
            parts.append("")
            continue
        depth += 0 if quote else (letter in _OPENING) - (letter in _CLOSING)
        parts[-1] += letter
    return [part.strip() for part in parts]


Takes = Callable[[str, str, str], bool | None]
"""Whether the component of a section and type has an option; None where there is none."""


def _unknown(section: str, type_: str, option: str) -> None:
    return None


def cells_of(
    vary: Sequence[str], cells: Sequence[str], takes: Takes = _unknown
) -> tuple[Cell, ...]:
    """Every combination of the varied values, then the explicit cells.

    Args:
        vary: ``credit.type=ipa,grpo``, each with values.
        cells: ``credit.type=grpo; trainer.objective=grpo``, each one cell.
        takes: whether a component of a section has an option, as `(section, type, option)`.
            Where both ``section.type`` and ``section.option`` vary, a type without the option
            has one cell for all its values.

    Raises:
        InputError: with every problem.
    """
    problems: list[Problem] = []
    axes = [list(_axis(text, problems)) for text in vary]
    problems += _repeated([text.partition("=")[0] for text in vary], "--vary", "key")
    made = _combinations(axes, takes) if vary or not cells else []
    for text in cells:
        overrides = split(text, ";")
        problems += [
            Problem(message=f"expected KEY=VALUE, found '{each}'", file="--cell")
            for each in overrides
            if "=" not in each
        ]
        problems += own([each.partition("=")[0] for each in overrides], "--cell")
        made.append(overrides)
    problems += _repeated([", ".join(each) for each in made], "--vary, --cell", "cell")
    if problems:
        raise InputError(problems)
    return tuple(Cell.of(number, overrides) for number, overrides in enumerate(made, 1))


def _combinations(axes: Sequence[Sequence[str]], takes: Takes) -> list[list[str]]:
    """Every combination of values, each without the options that its types do not have."""
    types = {axis[0].partition("=")[0]: [_value(each) for each in axis] for axis in axes}
    made: dict[tuple[str, ...], None] = {}
    for combination in itertools.product(*axes):
        chosen = {each.partition("=")[0]: _value(each) for each in combination}
        applied = (each for each in combination if _applies(each, chosen, types, takes))
        made[tuple(applied)] = None
    return [list(each) for each in made]


def _value(override: str) -> str:
    return override.partition("=")[2].strip(_QUOTES)


def _applies(
    override: str, chosen: Mapping[str, str], types: Mapping[str, Sequence[str]], takes: Takes
) -> bool:
    """False for an option that the chosen type lacks and another one of the types has."""
    section, _, rest = override.partition("=")[0].partition(".")
    option, key = rest.partition(".")[0], f"{section}.type"
    if key not in chosen or takes(section, chosen[key], option) is not False:
        return True
    return not any(takes(section, type_, option) for type_ in types[key])


def _axis(text: str, problems: list[Problem]) -> Iterator[str]:
    key, _, rest = text.partition("=")
    values = split(rest)
    if not key or not all(values):
        hint = "for example --vary credit.type=ipa,grpo"
        message = f"expected KEY=VALUE,VALUE,..., found '{text}'"
        problems.append(Problem(message=message, file="--vary", hint=hint))
    problems += own([key], "--vary")
    problems += _repeated([f"{key}={value}" for value in values], "--vary", "value")
    for value in values:
        yield f"{key}={value}"


def own(keys: Sequence[str], file: str) -> list[Problem]:
    """A problem for each key that every run of a grid sets itself."""
    return [
        Problem(
            message=f"{key} can't be varied",
            file=file,
            path=key,
            hint="set the number of seeds with --seeds" if key == "run.seed" else None,
        )
        for key in keys
        if key in _OWN
    ]


def _repeated(names: Sequence[str], file: str, what: str) -> list[Problem]:
    twice = sorted({name for name in names if names.count(name) > 1})
    return [Problem(message=f"the {what} '{name}' is given twice", file=file) for name in twice]


def create(grid: Grid, configs: Sequence[Mapping[str, Any]]) -> None:
    """Make the grid's folder.

    Args:
        configs: the whole config of each cell.

    Raises:
        StoreError: it exists, or can't be made.
    """
    try:
        grid.path.mkdir(parents=True)
        restrict(grid.path)  # logs and reports quote what broke
        for cell, config in zip(grid.cells, configs, strict=True):
            target = grid.config(cell)
            target.parent.mkdir(parents=True)
            text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
            target.write_text(
                f"# {' '.join(cell.name.split())}: the whole config\n{text}", encoding="utf-8"
            )
        # Last: a folder is a grid only with this file in it.
        save(grid)
    except OSError as error:
        raise StoreError(f"{grid.path} can't be made: {error.strerror}") from error


def save(grid: Grid) -> None:
    """Write ``grid.json``.

    Raises:
        StoreError: it can't be written.
    """
    write_whole(grid.path / FILE, json.dumps(_plain(grid), indent=2, ensure_ascii=False))


def _plain(grid: Grid) -> dict[str, Any]:
    made = asdict(grid, filter=lambda field, value: field.name != "control" or value)
    del made["path"]
    return {"schema": SCHEMA, "config": made.pop("source"), **made}


def read(path: Path) -> Grid:
    """The grid in a folder.

    Raises:
        InputError: there is none, or of a schema this version can't read.
    """
    file = path / FILE
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            message = f"schema {plain['schema']}; this version of ale-ablate reads {SCHEMA}"
            raise InputError.of(message, file=str(file), path="schema")
        return Grid(
            path=path.resolve(),
            name=plain["name"],
            created=plain["created"],
            source=plain["config"],
            overrides=tuple(plain["overrides"]),
            cells=tuple(
                Cell(**{**cell, "overrides": tuple(cell["overrides"])}) for cell in plain["cells"]
            ),
            seeds=tuple(plain["seeds"]),
            versions=plain["versions"],
            branches=plain.get("branches", False),
            notes=tuple(plain.get("notes", ())),
            sweep=tuple(plain.get("sweep", ())),
        )
    except (FileNotFoundError, NotADirectoryError):
        hint = None
        if (path / "manifest.json").exists():
            hint = f"it is a single run: ale run --resume {path}"
        message = f"not a grid's folder (no {FILE})" if path.is_dir() else "no such directory"
        raise InputError.of(message, file=str(path), hint=hint) from None
    except (ValueError, KeyError, TypeError) as error:
        message = f"can't be read: {type(error).__name__}: {error}"
        raise InputError.of(message, file=str(file)) from None
