"""The picture of the packages: the stage of a run that each belongs to, and what flows."""

from collections.abc import Iterator, Mapping
from html import escape
from importlib.metadata import entry_points
from pathlib import Path

from attrs import frozen

from ale._cli.main import _BUILT_IN
from ale._registry import KINDS, Registry
from ale_reference.commands import command_names
from ale_reference.markup import table
from ale_reference.packages import folder_of, folders


@frozen
class Stage:
    """One box of the picture.

    Attributes:
        title: what happens here.
        kinds: the kinds of component that do it, as ``ale plugins`` names them.
        gives: what the next box receives.
    """

    title: str
    kinds: tuple[str, ...]
    gives: str


PIPELINE = (
    Stage("Read tasks", ("tasks",), "Task"),
    Stage("Choose where rollouts begin", ("starts",), "Start"),
    Stage("Choose where episodes run", ("executor",), "Jobs"),
    Stage("Open a sandbox", ("sandbox",), "Sandbox"),
    Stage("Let the agent work", ("agent", "llm", "middleware"), "Trajectory"),
    Stage("Grade what it left", ("criterion",), "Episode, stored"),
    Stage("Cut into chunks, score them", ("chunker", "scorer"), "Chunks and scores"),
    Stage("Give credit", ("credit",), "Batch of credited groups"),
    Stage("Train", ("trainer", "objective"), "a new policy version, back to the model"),
)
ASIDE = (
    Stage("Beside it: start the processes", ("launch",), ""),
    Stage("Beside it: watch all of it", ("observer",), ""),
)

_COLUMNS, _WIDTH, _GAP, _LINE = 3, 300, 36, 17
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600}.h{font-family:monospace}"
    ".p{fill:#57606a}.g{font-style:italic;fill:#0550ae}"
    "rect{fill:#fff;stroke:#8c959f;rx:6}.aside{stroke-dasharray:5 4}path{stroke:#57606a;fill:none}"
)


def picture(registry: Registry, root: Path) -> str:
    """The stages as an SVG: rows of boxes, read from left to right."""
    shown = [*PIPELINE, *ASIDE]
    if missing := KINDS.keys() - {kind for stage in shown for kind in stage.kinds}:
        raise RuntimeError(f"no stage of the picture has the kinds {sorted(missing)}")
    texts = [list(_lines(stage, number, registry)) for number, stage in enumerate(shown, 1)]
    boxes, top = [], _GAP // 2
    for first in range(0, len(shown), _COLUMNS):
        row = texts[first : first + _COLUMNS]
        height = _LINE * max(map(len, row)) + 20
        for column, lines in enumerate(row):
            left = _GAP // 2 + column * (_WIDTH + _GAP)
            boxes.append(_box(left, top, height, lines, shown[first + column] in ASIDE))
            if shown[first + column] in PIPELINE[:-1] and column < _COLUMNS - 1:
                boxes.append(_arrow(left + _WIDTH, top + height // 2))
        top += height + _GAP
    width = _COLUMNS * (_WIDTH + _GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top - _GAP // 2}" '
        'role="img" aria-label="The stages of a run, their hooks and packages">\n'
        f"<style>{_STYLE}</style>\n"
        '<rect width="100%" height="100%" style="stroke:none"/>\n' + "".join(boxes) + "</svg>\n"
    )


def _lines(stage: Stage, number: int, registry: Registry) -> Iterator[tuple[str, str]]:
    """The lines of a box, each with the class of its style."""
    yield "t", f"{number}. {stage.title}" if stage in PIPELINE else stage.title
    for kind in stage.kinds:
        yield "h", KINDS[kind]
        for name in _packages(kind, registry):
            yield "p", name
    if stage.gives:
        yield "g", f"\u2192 {stage.gives}"


def _box(left: int, top: int, height: int, lines: list[tuple[str, str]], aside: bool) -> str:
    style = ' class="aside"' if aside else ""
    made = f'<rect{style} x="{left}" y="{top}" width="{_WIDTH}" height="{height}"/>\n'
    for number, (kind, text) in enumerate(lines, 1):
        indent = {"p": 24}.get(kind, 12)
        place = f'x="{left + indent}" y="{top + 6 + number * _LINE}"'
        made += f'<text class="{kind}" {place}>{escape(text)}</text>\n'
    return made


def _arrow(left: int, middle: int) -> str:
    end = left + _GAP - 6
    line = f"M{left + 6} {middle}H{end}m-6 -5l6 5l-6 5"
    return f'<path d="{line}"/>\n'


def parts(registry: Registry, root: Path) -> Mapping[str, str]:
    """``stages``: the picture as a table, with links, and the packages that are not in it."""
    stages = [
        [
            f"{number}. {stage.title}" if stage in PIPELINE else stage.title,
            ", ".join(
                f"[`{KINDS[kind]}`](reference/hooks.md#{KINDS[kind]})" for kind in stage.kinds
            ),
            ", ".join(
                f"[{name}](../{folder_of(name)}/README.md)"
                for name in dict.fromkeys(
                    name for kind in stage.kinds for name in _packages(kind, registry)
                )
            ),
            stage.gives,
        ]
        for number, stage in enumerate([*PIPELINE, *ASIDE], 1)
    ]
    commands = [["[ale-core](../core/README.md)", ", ".join(f"`ale {name}`" for name in _BUILT_IN)]]
    commands += [
        [f"[{name}](../{folder_of(name)}/README.md)", listed]
        for name, listed in _commands(registry).items()
    ]
    return {
        "stages": table(["stage", "hook", "packages", "gives"], stages),
        "package-commands": table(["package", "commands"], commands),
    }


def _packages(kind: str, registry: Registry) -> list[str]:
    return sorted({each.distribution for each in registry.registrations(kind)})


def _commands(registry: Registry) -> Mapping[str, str]:
    """The commands of each package that has some, those that don't begin with ``ale`` too."""
    found = {
        package.distribution: [f"`ale {name}`" for name in command_names(answer)]
        for package, answer in registry.answers("ale_commands")
        if package.distribution in folders()
    }
    for script in entry_points(group="console_scripts"):
        if (
            script.dist is not None
            and script.dist.name in folders()
            and script.dist.name != "ale-core"
        ):
            found.setdefault(script.dist.name, []).append(f"`{script.name}`")
    return {name: ", ".join(found[name]) for name in sorted(found)}
