"""Results of tools, and how long output is cut."""

from attrs import frozen


@frozen(kw_only=True)
class Result:
    """The result of one tool call; becomes an observation."""

    content: str
    error: str | None = None
    exit_code: int | None = None
    timed_out: bool = False
    truncated: bool = False
    finished: bool = False
    """The model has called finish; `content` is its summary."""


def cut_middle(text: str, max_bytes: int, *, more: bool = False) -> tuple[str, bool]:
    """`text` with its middle left out where it has more than `max_bytes` of UTF-8.

    Args:
        more: some of it is missing already, so the number left out is a lower bound.

    Returns:
        the text with a note in place of the middle, and whether something was left out.
    """
    data = text.encode()
    if len(data) <= max_bytes:
        return text, False
    half = max_bytes // 2
    head = data[:half].decode("utf-8", "ignore")
    tail = data[len(data) - (max_bytes - half) :].decode("utf-8", "ignore")
    n = len(data) - len(head.encode()) - len(tail.encode())
    note = f"[{'at least ' if more else ''}{n} bytes left out]"
    return f"{whole_lines(head)}{note}\n{tail}", True


def whole_lines(text: str) -> str:
    """`text` with a newline at its end, unless it is empty."""
    return text if not text or text.endswith("\n") else f"{text}\n"
