"""Options common to sandboxes on the host's kernel."""

from pathlib import Path

from attrs import field, frozen

from ale.plugin import doc, ge, optional


@frozen(kw_only=True)
class HostOptions:
    """Where sandboxes are kept, and what each process in one may use. null: no limit."""

    root: Path | None = field(
        default=None,
        metadata=doc("Folder for the files of sandboxes. Default: TMPDIR or /tmp."),
    )
    cpu_s: int | None = field(
        default=3600,
        validator=optional(ge(1)),
        metadata=doc("CPU time of each process, seconds. null: no limit."),
    )
    file_size_mb: int | None = field(
        default=4096,
        validator=optional(ge(1)),
        metadata=doc("Size of each file that is written, MiB."),
    )
    open_files: int | None = field(
        default=4096,
        validator=optional(ge(32)),
        metadata=doc("Open files of each process."),
    )
    ignore_image: bool = field(
        default=False,
        metadata=doc("Run tasks that name an image anyway, with the host's programs."),
    )
