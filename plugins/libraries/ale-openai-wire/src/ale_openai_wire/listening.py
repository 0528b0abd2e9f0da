"""A server that can't listen at its address."""

import errno
import os
import socket

from ale.errors import AleError


def cannot_listen(host: str, port: int, error: OSError) -> AleError:
    """Why, and which of the options ``--host`` and ``--port`` helps."""
    unknown = isinstance(error, socket.gaierror)  # whose errno is not one of the system
    reason = os.strerror(error.errno) if error.errno and not unknown else str(error)
    other = unknown or error.errno == errno.EADDRNOTAVAIL
    remedy = "--host is an address of this machine" if other else "--port 0 takes a free port"
    return AleError(f"can't listen at {host}:{port}: {reason}; {remedy}")
