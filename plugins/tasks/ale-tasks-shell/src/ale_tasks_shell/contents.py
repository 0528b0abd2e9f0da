"""Content of the files that exist at the start, by type.

The types are the inputs and outputs of kinds of steps (`kind.Kind.becomes`):

``words``    lines of one word each, not sorted, one word on two lines
``table``    lines of a word and a number, words as above
``numbers``  lines of one number each, the largest of which does not sort last as text
``word``     one line of one word, which can be read as the name of a file
``tidy``     three or more lines of words, sorted or thinned out by a step
``few``      one or more lines of any text
``number``   one line of one number
``folder``   an empty folder
``T.tar``    an archive of one file, whose content is of type T
"""

from ale_tasks_shell.scene import ARCHIVE, Scene

LINES = ("words", "table", "numbers")
GIVEN = (*LINES, "word")
"""Types that files can have at the start; the others are outputs of steps."""
FILES = (*GIVEN, "tidy", "few", "number")
FOLDER = "folder"


def give(scene: Scene, type_: str) -> str:
    """Add something of this type to the start, under a new name; returns its path."""
    path = scene.any_word()
    if type_ == FOLDER:
        scene.give_folder(path)
    elif type_.endswith(ARCHIVE):
        member, path = path, scene.any_word() + ARCHIVE
        made = (member, make(scene, type_.removesuffix(ARCHIVE)))
        scene.given_archives[path] = scene.packed[path] = made
    else:
        scene.give(path, make(scene, type_))
    return path


def make(scene: Scene, type_: str) -> tuple[str, ...]:
    """Lines of a type in `GIVEN`."""
    if type_ == "word":
        return (scene.any_word(),)
    count = scene.number(4, 5)
    if type_ == "numbers":
        return _numbers(scene, count)
    words = _words(scene, count)
    if type_ == "words":
        return words
    return tuple(
        f"{word} {number}" for word, number in zip(words, _numbers(scene, len(words)), strict=True)
    )


def _words(scene: Scene, count: int) -> tuple[str, ...]:
    """`count` words and a duplicate of one of them, not sorted."""
    words = [scene.any_word() for _ in range(count)]
    words.insert(scene.number(0, count), scene.pick(words))
    if words == sorted(words):
        words.reverse()
    return tuple(words)


def _numbers(scene: Scene, count: int) -> tuple[str, ...]:
    """Different numbers; as text the one of a single digit would be the largest."""
    numbers: list[str] = []
    while len(numbers) < count - 1:
        number = str(scene.number(10, 79))
        if number not in numbers:
            numbers.append(number)
    numbers.insert(scene.number(0, count - 1), str(scene.number(8, 9)))
    return tuple(numbers)
