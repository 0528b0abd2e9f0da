"""Shell commands of a task: its setup and its check."""

from collections.abc import Mapping

from ale_tasks_shell.scene import Scene


def setup(scene: Scene) -> tuple[str, ...]:
    """One command that creates the files of the start, or none if there are none.

    It starts no program but for folders and archives.
    """
    parts = []
    if scene.given_folders:
        parts.append(f"mkdir {' '.join(scene.given_folders)}")
    parts += [_printed(path, lines) for path, lines in scene.given_files.items()]
    for archive, (member, lines) in scene.given_archives.items():
        parts += [_printed(member, lines), f"tar -cf {archive} {member}", f"rm {member}"]
    return (" && ".join(parts),) if parts else ()


def _printed(path: str, lines: tuple[str, ...]) -> str:
    quoted = " ".join(f"'{line}'" if " " in line else line for line in lines)
    return rf"printf '%s\n' {quoted} > {path}"


def check(scene: Scene) -> str:
    """A line for sh that exits with 0 if the goal is reached.

    It checks every path in the goal and no other. One program is started for all
    files together, and one for each archive.
    """
    parts = [f"[ -d {path} ]" for path in scene.folders]
    parts += [f"[ ! -e {path} ]" for path in scene.gone]
    parts += [f"[ -L {path} ] && [ {path} -ef {to} ]" for path, to in scene.links.items()]
    parts += [f"[ -x {path} ]" for path in sorted(scene.executable)]
    # A link to the source is no copy.
    parts += [f"[ ! -L {path} ]" for path in scene.files]
    if scene.files:
        parts.append(_files_hold(scene.files))
    for path, (_, lines) in scene.archives.items():
        parts.append(f'[ "$(tar -xOf {path})" = {_quoted(lines)} ]')
    return " && ".join(parts)


def _files_hold(files: Mapping[str, tuple[str, ...]]) -> str:
    """Every file has its lines; a newline after the last one is optional."""
    expected = [f"{path}:{line}" for path, lines in files.items() for line in lines]
    return f"[ \"$(grep -H '' {' '.join(files)})\" = {_quoted(tuple(expected))} ]"


def _quoted(lines: tuple[str, ...]) -> str:
    """Names, words and numbers hold no quotes."""
    return "'" + "\n".join(lines) + "'"
