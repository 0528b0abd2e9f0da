"""The files of the page, and its modules as one script for a page that is a single file."""

import re
from graphlib import TopologicalSorter
from importlib.resources import files
from pathlib import Path

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}


def static_files() -> dict[str, bytes]:
    """The files of the page by name; those of charts are of `ale_figures`."""
    own = files("ale_look.view") / "static"
    charts = files("ale_figures.charts") / "static"
    found = {each.name: each for each in own.iterdir() if Path(each.name).suffix in KINDS}
    found["preact-htm.js"] = own / "preact-htm" / "standalone.module.js"
    found |= {name: charts / name for name in ("charts.js", "charts.css")}
    found |= {name: charts / "uplot" / name for name in ("uPlot.iife.min.js", "uPlot.min.css")}
    return {name: each.read_bytes() for name, each in found.items()}


_IMPORT = re.compile(r'^import \{ ([^}]*) \} from "\./([\w-]+\.js)";$', re.M)
_EXPORT = re.compile(r"^export (?=(?:const|class|function) (\w+))", re.M)
_EXPORTS = re.compile(r"export\{([^}]*)\};\s*\Z")
"""The form of Preact's own, at its end."""
_OTHER = re.compile(r"^(?:import|export)\b", re.M)


def one_script() -> str:
    """The modules as functions, in an order in which each has what it imports.

    A browser loads no module from a file on disk, so the page of a single file has none.

    Raises:
        AssertionError: a module imports or exports in a way that is not understood.
    """
    modules = {name: data.decode() for name, data in static_files().items()}
    wanted, needs = ["app.js"], dict[str, list[str]]()
    while wanted:
        name = wanted.pop()
        if name not in needs:
            needs[name] = [each[2] for each in _IMPORT.finditer(modules[name])]
            wanted += needs[name]
    parts = (_as_function(name, modules[name]) for name in TopologicalSorter(needs).static_order())
    return "\n".join(["const modules = {};", *parts])


def _as_function(name: str, text: str) -> str:
    names = _EXPORT.findall(text)
    if listed := _EXPORTS.search(text):
        pairs = (each.split(" as ") for each in listed[1].split(","))
        names += [f"{pair[-1]}: {pair[0]}" for pair in pairs]
    text = _EXPORT.sub("", _EXPORTS.sub("", text))
    text = _IMPORT.sub(_as_constants, text)
    assert not _OTHER.search(text), name
    return f'modules["{name}"] = (() => {{ {text}\nreturn {{ {", ".join(names)} }}; }})();'


def _as_constants(found: re.Match[str]) -> str:
    return f'const {{ {found[1].replace(" as ", ": ")} }} = modules["{found[2]}"];'
