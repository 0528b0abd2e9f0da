"""The effect of each kind of step on the scene.

An effect applies one step, sets `Scene.here` to the input of the next one, and returns the names
for the placeholders of the kind's goal and commands. Its last argument is the type (`contents`) of
its output, used where a file is added to the start. The split applies to the pair of words that
`Scene.partner` makes.
"""

from collections.abc import Callable, Mapping, Sequence

from ale_tasks_shell import contents
from ale_tasks_shell.contents import FOLDER
from ale_tasks_shell.scene import ARCHIVE, Scene, base

Lines = tuple[str, ...]
Change = Callable[[Scene, Lines], tuple[Lines, Mapping[str, object]]]


def write(scene: Scene, _: str) -> Mapping[str, object]:
    """A word goes into a new file."""
    word = scene.any_word()
    scene.here = new = scene.partner(word)
    scene.files[new] = (word,)
    return {"w": word, "b": new}


def write_inside(scene: Scene, _: str) -> Mapping[str, object]:
    """A word goes into a new file of the current folder."""
    folder, word = scene.here, scene.any_word()
    scene.here = new = f"{folder}/{scene.partner(folder)}"
    scene.files[new] = (word,)
    return {"w": word, "b": new}


def folders(scene: Scene, _: str) -> Mapping[str, object]:
    """Two new folders."""
    one = scene.any_word()
    scene.here = other = scene.partner(one)
    scene.folders += (one, other)
    return {"a": one, "b": other}


def folder_inside(scene: Scene, _: str) -> Mapping[str, object]:
    """A new folder in the current one."""
    scene.here = new = f"{scene.here}/{scene.partner(scene.here)}"
    scene.folders.append(new)
    return {"b": new}


def rename(scene: Scene, type_: str) -> Mapping[str, object]:
    """The current file or folder gets another name."""
    old = scene.here
    scene.here = new = scene.partner(old)
    if type_ == FOLDER:
        scene.folders = [path for path in scene.folders if path != old] + [new]
        scene.gone.append(old)
    else:
        scene.move(old, new)
    return {"a": old, "b": new}


def append(scene: Scene, _: str) -> Mapping[str, object]:
    """A file gets one line more."""
    word = scene.partner(scene.here)
    scene.files[scene.here] += (word,)
    return {"a": scene.here, "w": word}


def replace(scene: Scene, _: str) -> Mapping[str, object]:
    """A word of a file becomes another, on every line."""
    lines = scene.files[scene.here]
    old, new = scene.pick(lines).split()[0], scene.partner(scene.here)
    scene.files[scene.here] = tuple(line.replace(old, new) for line in lines)
    return {"a": scene.here, "w": old, "v": new}


def _file_and_folder(scene: Scene, type_: str) -> tuple[str, str]:
    """A file and a folder for it: one is the current path, the other is added to the start."""
    added = scene.partner(scene.here)
    if scene.here in scene.files or scene.here in scene.links:
        scene.give_folder(added)
        return scene.here, added
    scene.give(added, contents.make(scene, type_))
    return added, scene.here


def copy_inside(scene: Scene, type_: str) -> Mapping[str, object]:
    """A copy of a file in a folder."""
    file, folder = _file_and_folder(scene, type_)
    scene.here = new = f"{folder}/{base(file)}"
    scene.files[new] = scene.lines(file)
    return {"a": file, "b": folder}


def move_inside(scene: Scene, type_: str) -> Mapping[str, object]:
    """A file goes into a folder."""
    file, folder = _file_and_folder(scene, type_)
    scene.here = new = f"{folder}/{base(file)}"
    scene.move(file, new)
    return {"a": file, "b": folder}


def make_executable(scene: Scene, _: str) -> Mapping[str, object]:
    """The current file and one of the start become executable."""
    other = scene.partner(scene.here)
    scene.give_unnoticed(other)
    scene.executable |= {scene.here, other}
    return {"a": scene.here, "b": other}


def link(scene: Scene, _: str) -> Mapping[str, object]:
    """A symbolic link to the current file; the next step reads through it."""
    target = scene.here
    scene.here = new = scene.partner(target)
    scene.links[new] = target
    return {"a": target, "b": new}


def delete(scene: Scene, _: str) -> Mapping[str, object]:
    """Deletes the file that the first step has read, and one of the start."""
    source = scene.source
    if source:
        del scene.files[source]
    else:
        source = scene.any_word()
        scene.give_unnoticed(source)
    other = scene.partner(source)
    scene.give_unnoticed(other)
    scene.gone += (source, other)
    return {"a": source, "b": other}


def join(scene: Scene, _: str) -> Mapping[str, object]:
    """A new file of the lines of two."""
    old, other = scene.here, scene.any_word()
    scene.here = new = scene.partner(old)
    scene.give(other, (scene.any_word(), scene.any_word()))
    scene.files[new] = scene.lines(old) + scene.files[other]
    return {"a": old, "c": other, "b": new}


def pack(scene: Scene, _: str) -> Mapping[str, object]:
    """An archive of the current file."""
    old = scene.here
    scene.here = new = scene.partner(old) + ARCHIVE
    scene.archives[new] = scene.packed[new] = (old, scene.files[old])
    return {"a": old, "b": new}


def unpack(scene: Scene, _: str) -> Mapping[str, object]:
    """The member of an archive in a new folder."""
    archive = scene.here
    folder = scene.partner(archive)
    member, lines = scene.packed[archive]
    scene.here = new = f"{folder}/{member}"
    scene.files[new] = lines
    return {"a": archive, "b": folder}


def _named(scene: Scene, pointer: str, type_: str) -> str:
    """Add the file whose name is in `pointer` to the start, and a distractor."""
    (word,) = scene.lines(pointer)
    scene.give(word, contents.make(scene, type_))
    scene.give_unnoticed(scene.any_word())
    return word


def copy_named(scene: Scene, type_: str) -> Mapping[str, object]:
    """A copy of the file whose name is in the current file."""
    pointer = scene.here
    word = _named(scene, pointer, type_)
    scene.here = new = scene.partner(pointer)
    scene.files[new] = scene.files[word]
    return {"a": pointer, "w": word, "b": new}


def rename_named(scene: Scene, type_: str) -> Mapping[str, object]:
    """The file whose name is in the current file gets another name."""
    pointer = scene.here
    word = _named(scene, pointer, type_)
    scene.here = new = scene.partner(pointer)
    scene.move(word, new)
    return {"a": pointer, "w": word, "b": new}


def write_named(scene: Scene, _: str) -> Mapping[str, object]:
    """A word goes into the file whose name is in the current file.

    It is the last step, since the goal of a next one would contain the name.
    """
    pointer = scene.here
    (word,) = scene.lines(pointer)
    new = scene.partner(pointer)
    scene.files[word] = (new,)
    return {"a": pointer, "w": word, "b": new}


def copy_named_twice(scene: Scene, type_: str) -> Mapping[str, object]:
    """A copy of the file that is named by the file that the current file names."""
    pointer = scene.here
    first = _named(scene, pointer, "word")
    second = _named(scene, first, type_)
    scene.here = new = scene.partner(pointer)
    scene.files[new] = scene.files[second]
    return {"a": pointer, "w": first, "v": second, "b": new}


def written(change: Change) -> Callable[[Scene, str], Mapping[str, object]]:
    """A step that writes what `change` makes of a file to a new one."""

    def effect(scene: Scene, _: str) -> Mapping[str, object]:
        old = scene.here
        made, names = change(scene, scene.lines(old))
        scene.here = new = scene.partner(old)
        scene.files[new] = made
        return {"a": old, "b": new, **names}

    return effect


def plain(change: Callable[[Lines], Sequence[str]]) -> Change:
    """A change that needs no names."""
    return lambda _, lines: (tuple(change(lines)), {})


def with_word(scene: Scene, lines: Lines) -> tuple[Lines, Mapping[str, object]]:
    """The lines that hold a word."""
    word = scene.pick(lines).split()[0]
    return tuple(line for line in lines if word in line), {"w": word}


def without_word(scene: Scene, lines: Lines) -> tuple[Lines, Mapping[str, object]]:
    """The lines that do not hold a word."""
    word = scene.pick(lines).split()[0]
    return tuple(line for line in lines if word not in line), {"w": word}


def nth(scene: Scene, lines: Lines) -> tuple[Lines, Mapping[str, object]]:
    """One line."""
    n = scene.number(1, len(lines))
    return (lines[n - 1],), {"n": n}


def first(scene: Scene, lines: Lines) -> tuple[Lines, Mapping[str, object]]:
    """Two lines or more, but not all, from the start."""
    n = scene.number(2, len(lines) - 1)
    return lines[:n], {"n": n}


def last(scene: Scene, lines: Lines) -> tuple[Lines, Mapping[str, object]]:
    """Two lines or more, but not all, to the end."""
    n = scene.number(2, len(lines) - 1)
    return lines[-n:], {"n": n}


def column(place: int) -> Change:
    """A word of every line."""
    return plain(lambda lines: [line.split()[place] for line in lines])
