"""Errors of torch where memory is lacking, with what a user can change."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ale.errors import AleError


def lacks_memory(error: BaseException) -> bool:
    """Did torch fail because a GPU or the machine has too little memory?"""
    # On a CPU, and where not even a GPU's context can be made, it is a plain RuntimeError.
    said = ("out of memory", "can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in said)
    )


@contextmanager
def naming_lack_of_memory(doing: str, hint: str) -> Iterator[None]:
    """Say what lacks memory and what a user can change, in place of a traceback.

    Args:
        doing: what is done, such as "a training step".
        hint: what needs less memory.

    Raises:
        AleError: torch lacked memory.
    """
    try:
        yield
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
        raise AleError(f"{doing} needs more memory than there is: {error}\n{hint}") from error
