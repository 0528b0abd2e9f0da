"""Options of task sources over rows."""

from pathlib import Path

from attrs import field, frozen

from ale.plugin import doc, ge


# No slots: a class may derive from several such classes.
@frozen(kw_only=True, slots=False)
class Choice:
    """Which tasks of a source are used."""

    ids: tuple[str, ...] = field(
        default=(), metadata=doc("Use only tasks with these ids, or ids that match these globs.")
    )
    held_out: tuple[str, ...] = field(
        default=(), metadata=doc("Leave out tasks with these ids, or ids that match these globs.")
    )
    shuffle: bool = field(default=False, metadata=doc("Shuffle the tasks, by the seed."))
    seed: int = field(default=0, validator=ge(0), metadata=doc("Seed of the shuffle."))
    limit: int = field(
        default=0, validator=ge(0), metadata=doc("Maximum number of tasks, applied last; 0 is all.")
    )


@frozen(kw_only=True, slots=False)
class Origin(Choice):
    """Where the rows of a source come from: exactly one of these."""

    path: Path | None = field(
        default=None, metadata=doc("File or folder in the format in which it is published.")
    )
    dataset: str | None = field(
        default=None,
        metadata=doc("Name of a data set for the library 'datasets' (extra 'datasets')."),
    )
    subset: str | None = field(default=None, metadata=doc("Configuration of the data set."))
    sample: bool = field(
        default=False,
        metadata=doc("Use a few problems of our own, to try the source without a download."),
    )
