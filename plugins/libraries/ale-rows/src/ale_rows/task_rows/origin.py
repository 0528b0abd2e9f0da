"""Where rows are read from: a file, a folder, or a data set."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ale.errors import InputError, nearest
from ale_rows.task_rows.options import Origin
from ale_rows.task_rows.rows import ENDINGS, Row, rows_of, rows_of_dataset, unusable


def rows_from(
    options: Origin,
    read: Callable[[Path], Iterator[Row]],
    sample: Path,
    split: str,
    expected: str,
) -> Callable[[], Iterator[Row]]:
    """Where the options say that the rows are.

    Args:
        read: reads the rows at a path.
        sample: where the package's own problems are.
        split: of a data set.
        expected: what is expected there and where to get it, for errors.

    Raises:
        InputError: the options name no origin, or several, or a path that does not exist.
    """
    named = [
        name
        for name in ("path", "dataset", "sample")
        if getattr(options, name) not in (None, False)
    ]
    if len(named) != 1:
        found = " and ".join(named) or "none"
        message = f"give one of path, dataset and sample, found {found}"
        raise InputError.of(message, path="tasks", expected=expected)
    if options.dataset is not None:
        return partial(rows_of_dataset, options.dataset, options.subset, split, expected)
    path = options.path.absolute() if options.path is not None else sample
    check_exists(path, expected)
    return partial(read, path)


def check_exists(path: Path, expected: str) -> None:
    """Raise an `InputError` that says what belongs there, unless there is something."""
    if not path.exists():
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = nearest(path.name, beside)
        raise unusable(path, "there is no such file or folder", expected, hint=hint)


def files_of(folder: Path, endings: Sequence[str], expected: str) -> Iterator[Path]:
    """The files below a folder with one of these endings, by name; or the path, if it is a file.

    Raises:
        InputError: there are none, or one is a pipe.
    """
    if folder.is_file():
        yield folder
        return
    found = sorted(path for path in folder.rglob("*") if path.name.endswith(tuple(endings)))
    if not found:
        wanted = " or ".join(endings)
        raise unusable(folder, f"no file that ends with {wanted} in here", expected)
    for path in found:
        if path.is_fifo():  # reading it could wait for ever
            raise unusable(path, "is a pipe, not a file", expected)
        yield path


def rows_below(path: Path, expected: str) -> Iterator[Row]:
    """The rows of a file, or of every JSON file of a folder. Raises `InputError`."""
    for file in files_of(path, ENDINGS, expected):
        yield from rows_of(file, expected)
