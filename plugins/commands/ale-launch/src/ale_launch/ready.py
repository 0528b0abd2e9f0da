"""Becomes a command as soon as every address before it answers.

Run by its path, with only the standard library: SECONDS URL... -- COMMAND...
"""

import http.client
import os
import sys
import time
import urllib.request

_PAUSE_S = 0.2


def answers(url: str) -> bool:
    """Whether a GET is answered with a status below 400."""
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - the config names it
            return True
    except (OSError, http.client.HTTPException):  # the latter: something else listens there
        return False


def main() -> None:
    """Wait, then execute the command."""
    at = sys.argv.index("--")
    deadline = time.monotonic() + float(sys.argv[1])
    for url in sys.argv[2:at]:
        while not answers(url):
            if time.monotonic() > deadline:
                sys.exit(f"{url} has not answered within {sys.argv[1]} s; see its server's log")
            time.sleep(_PAUSE_S)
    command = sys.argv[at + 1 :]
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
