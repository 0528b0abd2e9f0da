"""What a path leads to."""

import errno
import os
import stat


def must_be_file(mode: int, path: str) -> None:
    """Check that it is a regular file, by its `os.stat_result.st_mode`.

    Raises:
        IsADirectoryError: it is a folder.
        PermissionError: it is something else, such as a named pipe.
    """
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise PermissionError(errno.EACCES, "not a regular file", path)
