"""Folders and files of a sandbox that tests, and their preparation, know by name."""

from attrs import frozen


@frozen(kw_only=True)
class SandboxPaths:
    """Absolute, or relative to the workspace."""

    tests: str = "/tests"
    logs: str = "/logs"
    records: tuple[str, ...] = ("/var/lib/ale-before", "/tmp/.ale-before")  # noqa: S108
    """Where the record of what was there before may be: the first that can be written to. It is
    signed, so that nobody can plant one."""


DEFAULT_PATHS = SandboxPaths()
