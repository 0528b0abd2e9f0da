"""A single problem with a training, as an `InputError`."""

from ale.errors import InputError, Problem


def input_error(
    message: str,
    *,
    path: str | None = None,
    file: str | None = None,
    line: int | None = None,
    expected: str | None = None,
    hint: str | None = None,
) -> InputError:
    """The error for one problem; the arguments are those of `Problem`."""
    problem = Problem(
        message=message, file=file, line=line, path=path, expected=expected, hint=hint
    )
    return InputError([problem])
