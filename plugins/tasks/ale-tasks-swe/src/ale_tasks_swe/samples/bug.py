"""What one sample is made of."""

from collections.abc import Mapping

from attrs import field, frozen

Files = Mapping[str, str]
Changes = Mapping[str, tuple[tuple[str, str], ...]]
"""Of each file: old texts, each of which stands in it once, and new ones."""


@frozen(kw_only=True)
class Bug:
    """A small package with a bug, its fix, and the tests of both."""

    name: str
    issue: str
    files: Files
    """The package, with the bug."""
    tests: Files
    """As they are before the fix."""
    fix: Changes
    fixed_tests: Changes
    new_tests: Files = field(factory=dict)
    """Files that come with the fix."""
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]


def changed(files: Files, changes: Changes) -> dict[str, str]:
    """Files with the changes made.

    Raises:
        ValueError: an old text does not stand in its file exactly once.
    """
    made = dict(files)
    for path, pairs in changes.items():
        for old, new in pairs:
            if made[path].count(old) != 1:
                raise ValueError(f"{path}: {old!r} stands there {made[path].count(old)} times")
            made[path] = made[path].replace(old, new)
    return made
