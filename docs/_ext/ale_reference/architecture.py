"""The picture of the packages: the stage of a run that each belongs to, and what flows."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from attrs import frozen
from jinja2 import Template

from ale._cli.main import _BUILT_IN
from ale._registry import KINDS, Registry


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
    Stage("Cut into chunks", ("chunker",), "Chunks"),
    Stage("Give credit", ("credit",), "Batch of credited groups"),
    Stage("Train", ("trainer",), "a new policy version, back to the model"),
)
ASIDE = (
    Stage("Beside it: start the processes", ("launch",), ""),
    Stage("Beside it: watch all of it", ("observer",), ""),
)

_PICTURE = Template(
    """\
```{raw} html
<figure class="architecture">
<ol>
{%- for stage in stages %}
<li><b>{{ stage.title }}</b>
{%- for part in stage.parts %}
<code>{{ part.hook }}</code><span>plugins/{{ part.groups }}/</span>
<ul>
{%- for name in part.packages %}<li><a href="{{ link(name) }}">{{ name }}</a></li>{% endfor %}
</ul>
{%- endfor %}
{%- if stage.gives %}<em>&rarr; {{ stage.gives }}</em>{% endif %}</li>
{%- endfor %}
</ol>
<div>
{%- for title, names in rows %}
<p><b>{{ title }}</b>
{%- for name, commands in names.items() %} <a href="{{ link(name) }}">{{ name }}</a>
{%- if commands %} ({{ commands }}){% endif %}{% if not loop.last %},{% endif %}
{%- endfor %}</p>
{%- endfor %}
</div>
</figure>
```
""",
    trim_blocks=True,
)


def pages(registry: Registry, root: Path) -> Mapping[str, str]:
    """``parts/architecture.md``."""
    groups = {path.parent.name: path.parents[1].name for path in _projects(root)}
    shown = [*PIPELINE, *ASIDE]
    if missing := KINDS.keys() - {kind for stage in shown for kind in stage.kinds}:
        raise RuntimeError(f"no stage of the picture has the kinds {sorted(missing)}")
    stages = [
        {
            "title": f"{number}. {stage.title}" if stage in PIPELINE else stage.title,
            "gives": stage.gives,
            "parts": [_part(kind, registry, groups) for kind in stage.kinds],
        }
        for number, stage in enumerate(shown, 1)
    ]
    commands = {name: each for name, each in _commands(registry).items() if name in groups}
    libraries = {name: "" for name, group in groups.items() if group == "libraries"}
    rows = [
        ("The core, in core/:", {"ale-core": ", ".join(f"ale {name}" for name in _BUILT_IN)}),
        ("Commands, most of them in plugins/commands/:", commands),
        ("Libraries, in plugins/libraries/:", libraries),
    ]
    named = {each.distribution for kind in KINDS for each in registry.registrations(kind)}
    if missing := groups.keys() - named - commands.keys() - libraries.keys():
        raise RuntimeError(f"the picture has no place for {sorted(missing)}")
    text = _PICTURE.render(
        stages=stages, rows=rows, link=lambda name: f"reference/generated/packages/{name}.html"
    )
    return {"parts/architecture.md": text}


def _projects(root: Path) -> list[Path]:
    return sorted(root.glob("plugins/*/*/pyproject.toml"))


def _commands(registry: Registry) -> Mapping[str, str]:
    """The commands of each package that has some, those that don't begin with ``ale`` too."""
    found = {
        package.distribution: [f"ale {command.name}" for command in commands]
        for package, commands in registry.answers("ale_commands")
    }
    for script in entry_points(group="console_scripts"):
        if script.dist is not None and script.dist.name.startswith("ale-"):
            found.setdefault(script.dist.name, []).append(script.name)
    return {name: ", ".join(found[name]) for name in sorted(found)}


def _part(kind: str, registry: Registry, groups: Mapping[str, str]) -> Mapping[str, object]:
    """The hook of a kind, its packages, and the folder that most of them are in."""
    packages = sorted({each.distribution for each in registry.registrations(kind)})
    folders = [groups[name] for name in packages if name in groups]
    return {
        "hook": KINDS[kind],
        "packages": packages,
        "groups": max(sorted(set(folders)), key=folders.count),
    }
