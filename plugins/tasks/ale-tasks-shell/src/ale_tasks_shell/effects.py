"""What each kind of step does to the scene.

An effect plays one step, leaves in `Scene.here` what the next one works on, and gives the names for
the places of the kind's goal and commands. Its last argument is the type (`contents`) that it ends
with, which matters where something is given only now. Of the names of a step, the split decides
about the pair that `Scene.partner` makes.
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
    """A word goes into a new file of the folder at hand."""
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
    """A new folder in the one at hand."""
    scene.here = new = f"{scene.here}/{scene.partner(scene.here)}"
    scene.folders.append(new)
    return {"b": new}


def rename(scene: Scene, type_: str) -> Mapping[str, object]:
    """The file or folder at hand gets another name."""
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


def _meet(scene: Scene, type_: str) -> tuple[str, str]:
    """A file and a folder to put it into: one is at hand, the other is given."""
    beside = scene.partner(scene.here)
    if scene.here in scene.files or scene.here in scene.links:
        scene.give_folder(beside)
        return scene.here, beside
    scene.give(beside, contents.make(scene, type_))
    return beside, scene.here


def copy_inside(scene: Scene, type_: str) -> Mapping[str, object]:
    """A copy of a file in a folder."""
    file, folder = _meet(scene, type_)
    scene.here = new = f"{folder}/{base(file)}"
    scene.files[new] = scene.lines(file)
    return {"a": file, "b": folder}


def move_inside(scene: Scene, type_: str) -> Mapping[str, object]:
    """A file goes into a folder."""
    file, folder = _meet(scene, type_)
    scene.here = new = f"{folder}/{base(file)}"
    scene.move(file, new)
    return {"a": file, "b": folder}


def make_executable(scene: Scene, _: str) -> Mapping[str, object]:
    """The file at hand and a given one become executable."""
    other = scene.partner(scene.here)
    scene.give_unnoticed(other)
    scene.executable |= {scene.here, other}
    return {"a": scene.here, "b": other}


def link(scene: Scene, _: str) -> Mapping[str, object]:
    """A symbolic link to the file at hand; what follows reads through it."""
    target = scene.here
    scene.here = new = scene.partner(target)
    scene.links[new] = target
    return {"a": target, "b": new}


def delete(scene: Scene, _: str) -> Mapping[str, object]:
    """What the first step has read and a given file go."""
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
    """An archive of the file at hand."""
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
    """The file that `pointer` names, given from the start, and beside it one to tell it from."""
    (word,) = scene.lines(pointer)
    scene.give(word, contents.make(scene, type_))
    scene.give_unnoticed(scene.any_word())
    return word


def copy_named(scene: Scene, type_: str) -> Mapping[str, object]:
    """A copy of the file whose name the file at hand holds."""
    pointer = scene.here
    word = _named(scene, pointer, type_)
    scene.here = new = scene.partner(pointer)
    scene.files[new] = scene.files[word]
    return {"a": pointer, "w": word, "b": new}


def rename_named(scene: Scene, type_: str) -> Mapping[str, object]:
    """The file whose name the file at hand holds gets another."""
    pointer = scene.here
    word = _named(scene, pointer, type_)
    scene.here = new = scene.partner(pointer)
    scene.move(word, new)
    return {"a": pointer, "w": word, "b": new}


def write_named(scene: Scene, _: str) -> Mapping[str, object]:
    """A word goes into the file whose name the file at hand holds.

    No step follows, since to speak of the file its goal would have to give the name away.
    """
    pointer = scene.here
    (word,) = scene.lines(pointer)
    new = scene.partner(pointer)
    scene.files[word] = (new,)
    return {"a": pointer, "w": word, "b": new}


def copy_named_twice(scene: Scene, type_: str) -> Mapping[str, object]:
    """A copy of the file whose name is in the file whose name is at hand."""
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
