"""An `InputError` with one problem."""

from ale.errors import InputError


def input_error(
    message: str, *, path: str, expected: str | None = None, hint: str | None = None
) -> InputError:
    """The error for one problem.

    Args:
        message: what is wrong.
        path: the option's path, such as ``llm.model``.
        expected: what would be right.
        hint: what to do.
    """
    return InputError.of(message, path=path, expected=expected, hint=hint)
