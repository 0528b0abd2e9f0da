"""Build backend of the repository's root: one editable install of the core and every plugin.

`pip install -e .` can't install local packages as editable dependencies, and building two dozen
of them one after another takes pip most of a minute. So the root's wheel has one ``.pth`` file that
adds every package's ``src`` to `sys.path`, and the dependencies of all packages. Each package's
metadata (name, version, entry points) is written next to its code, where `importlib.metadata` finds
it as if the package were installed separately. What only the root's extras bring is behind the
extra ``needs`` there, so that `pip check` does not report it as missing from the default install.

Only the standard library is used, so that the build needs no downloads.
"""

import base64
import hashlib
import os
import re
import shutil
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TAG = "py3-none-any"


def _project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


def members() -> list[Path]:
    """Folders of the packages: the core, then the plugins by name."""
    plugins = sorted(path.parent for path in (ROOT / "plugins").glob("*/*/pyproject.toml"))
    return [ROOT / "core", *plugins]


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _extras(requirement: str) -> list[str]:
    """The extras that are asked for, as ``container`` in ``ale-sandboxing[container]>=0.1``."""
    found = re.match(r"[A-Za-z0-9._-]+\[([^\]]*)\]", requirement)
    return [name.strip() for name in found[1].split(",")] if found else []


def _optional() -> list[str]:
    """Names of the packages whose external dependencies are extras of the root."""
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names: list[str] = root["tool"]["ale"]["workspace"]["optional"]
    return names


def requirements() -> list[str]:
    """External dependencies of the default packages.

    Packages in ``[tool.ale.workspace] optional`` are on the path too, but their dependencies are
    extras of the root; without them, they report what is missing.
    """
    projects = {project["name"]: project for project in map(_project, members())}
    wanted = [
        line
        for name, project in projects.items()
        if name not in _optional()
        for line in project.get("dependencies", [])
    ]
    for line in wanted:  # grows: an extra may name further packages of ours
        for extra in _extras(line) if _name(line) in projects else ():
            wanted += projects[_name(line)]["optional-dependencies"][extra]
    return sorted({line for line in wanted if _name(line) not in projects})


def _metadata(project: dict[str, Any], requires: list[str]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Summary: {project['description']}"] if "description" in project else []
    lines += [f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    for extra, wanted in project.get("optional-dependencies", {}).items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f'Requires-Dist: {line} ; extra == "{extra}"' for line in wanted]
    return "\n".join(lines) + "\n"


def _entry_points(project: dict[str, Any]) -> str:
    groups = dict(project.get("entry-points", {}))
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items()) + "\n"
        for group, entries in groups.items()
    )


def _dist_info(project: dict[str, Any]) -> str:
    return f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"


def _member_metadata(project: dict[str, Any]) -> str:
    """As declared, with what the default install does not bring behind the extra ``needs``."""
    wanted = project.get("dependencies", [])
    extras = project.get("optional-dependencies", {})
    missing: list[str] = []
    if project["name"] in _optional():
        installed = {_name(line) for line in requirements()}
        installed |= {_project(folder)["name"] for folder in members()}
        missing = [line for line in wanted if _name(line) not in installed]
        extras = {**extras, "needs": missing}
    declared = [line for line in wanted if line not in missing]
    return _metadata({**project, "optional-dependencies": extras}, declared)


def _source(folder: Path) -> Path:
    """Where its code is; that of ale-testing, which has no folder of its own, is the core's."""
    return folder / "src" if (folder / "src").is_dir() else ROOT / "core" / "src"


def write_member_metadata() -> None:
    """Write each package's ``.dist-info`` next to its code (ignored by git).

    What is up to date is left alone: another environment may be using it at this moment.
    """
    projects = {folder: _project(folder) for folder in members()}
    targets = {_source(folder) / _dist_info(each): each for folder, each in projects.items()}
    for old in {old for target in targets for old in target.parent.glob("*.dist-info")}:
        if old not in targets:
            shutil.rmtree(old)
    for target, project in targets.items():
        target.mkdir(exist_ok=True)
        _write(target / "METADATA", _member_metadata(project))
        _write(target / "entry_points.txt", _entry_points(project))
        _write(target / "INSTALLER", "ale-workspace\n")


def _write(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    # Renamed into place, so that no reader finds half of it.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def _root_metadata() -> str:
    return _metadata(_project(ROOT), requirements())


def _scripts() -> dict[str, str]:
    """Console scripts of every package; pip creates only those of the root's wheel."""
    found: dict[str, str] = {}
    for folder in members():
        found |= _project(folder).get("scripts", {})
    return found


def _write_wheel(directory: str, files: dict[str, str]) -> str:
    project = _project(ROOT)
    info = _dist_info(project)
    files = {
        **files,
        f"{info}/METADATA": _root_metadata(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {TAG}\n",
        f"{info}/entry_points.txt": _entry_points({"scripts": _scripts()}),
    }
    wheel = f"{project['name'].replace('-', '_')}-{project['version']}-{TAG}.whl"
    with zipfile.ZipFile(Path(directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        lines = []
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            lines.append(f"{path},sha256={digest.decode()},{len(text.encode())}\n")
        archive.writestr(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")
    return wheel


# The functions below are what PEP 517 and PEP 660 require; without the optional ones, installers
# take the metadata from the wheel, which is made in no time.


def build_editable(
    wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None
) -> str:
    write_member_metadata()
    paths = "".join(f"{path}\n" for path in dict.fromkeys(map(_source, members())))
    return _write_wheel(wheel_directory, {"ale_workspace.pth": paths})


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None
) -> str:
    """Not supported: the root is not published."""
    raise SystemExit(
        "The root is a workspace for developers: use `pip install -e .`, or install single "
        "packages, as in `pip install ./core ./plugins/sandbox/ale-sandbox-local`."
    )
