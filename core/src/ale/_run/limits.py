"""The limits of this process, compared with the needs of concurrent episodes before a run."""

import os
from collections.abc import Iterator
from typing import Any

from ale.errors import Problem

_OWN = 200
"""Descriptors of the run itself: its files, its connections, the event loop."""
_EACH = 3
"""Descriptors of an episode whose backend says nothing: connections to a service and a model."""


def limit_problems(concurrency: int, sandbox: Any) -> Iterator[Problem]:
    """Why so many episodes can't run at once in this process. Soft limits are raised where needed.

    Args:
        concurrency: number of episodes that run at once.
        sandbox: the backend. Its attributes `descriptors` and `processes` say what one of its
            sandboxes needs at most, where it opens files or starts processes here.
    """
    import resource  # imported here: stored runs are read on systems that lack it

    each = getattr(sandbox, "descriptors", 0) + _EACH
    yield from _problem("open files", "-n", resource.RLIMIT_NOFILE, concurrency, each, _OWN)
    if os.geteuid() != 0:  # the kernel does not count root's processes
        each = getattr(sandbox, "processes", 0)
        yield from _problem("processes", "-u", resource.RLIMIT_NPROC, concurrency, each, 0)


def _problem(
    what: str, flag: str, limit: int, concurrency: int, each: int, own: int
) -> Iterator[Problem]:
    import resource

    needed = concurrency * each + own
    soft, hard = resource.getrlimit(limit)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard == resource.RLIM_INFINITY or hard >= needed:
        resource.setrlimit(limit, (needed, hard))
        return
    most = max(1, (hard - own) // each)
    yield Problem(
        path="run.concurrency",
        message=f"{concurrency} episodes at once may need {needed} {what} ({each} each), and this "
        f"process may have {hard}",
        expected=f"at most {most}",
        hint=f"run.concurrency={most}; or raise the limit: ulimit {flag} {needed}",
    )
