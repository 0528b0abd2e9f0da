"""Format numbers and tables for the terminal, in the same style for every command."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from ale.intervals import success_interval


def rate_line(attempts: Iterable[tuple[int, int]]) -> str:
    """``61 of 96  63.5%  (95% interval 49.9 to 75.2)``; see `ale.intervals.success_interval`.

    Args:
        attempts: of each task, how many were graded and how many of them succeeded.
    """
    counts = list(attempts)
    n, succeeded = (sum(each[i] for each in counts) for i in (0, 1))
    if n == 0:
        return "none graded"
    low, high = success_interval(counts)
    share = 100 * succeeded / n
    return f"{succeeded} of {n}  {share:.1f}%  (95% interval {100 * low:.1f} to {100 * high:.1f})"


def number(value: float, digits: int = 3, *, sign: bool = False) -> str:
    """``0.925``; from ten digits before the point on in powers of ten, ``1.5e+308``.

    Args:
        digits: after the point.
        sign: ``+`` in front of what is not negative. 0 never has a ``-``.
    """
    return f"{value:{'+z' if sign else 'z'}{f'.{digits}f' if abs(value) < 1e9 else '.4g'}}"


def counted(n: int, noun: str) -> str:
    """``1 episode``, ``1,200 episodes``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def sampling_name(temperature: float | None) -> str:
    """How an evaluation sampled: ``greedy``, ``T=0.5``, or ``sampled`` at the model's own."""
    if temperature is None:
        return "sampled"
    return "greedy" if temperature == 0 else f"T={temperature:g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns padded to their widest cell; those in `right` are right-aligned."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def cell(text: str, i: int) -> str:
        return text.rjust(widths[i]) if i in right else text.ljust(widths[i])

    return "\n".join("  ".join(cell(c, i) for i, c in enumerate(line)).rstrip() for line in lines)


_VISIBLE: Mapping[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)},
    127: "\u2421",
    **{
        code: f"\u27e8U+{code:04X}\u27e9"
        for code in (
            *range(0x80, 0xA0),
            0x200E,
            0x200F,
            *range(0x202A, 0x202F),
            *range(0x2066, 0x206A),
        )
    },
}


def visible(text: str) -> str:
    """The text with control characters, and those that reverse text, made visible.

    What a model or a command wrote could otherwise clear the terminal that it is shown in, change
    its title, or write to the clipboard. Tabs and newlines stay.
    """
    return text.translate(_VISIBLE)


def on_a_terminal(text: str) -> str:
    """The text as a terminal shows it in the end: a progress bar is its last state, not each.

    What follows a carriage return overwrites the line from its start; with escape sequences in it,
    it replaces the line. Carriage returns before a newline stay.
    """
    if "\r" not in text:
        return text
    return "\n".join(map(_overwritten, text.split("\n")))


def _overwritten(line: str) -> str:
    """One line, without its newline."""
    shown = line.rstrip("\r")
    seen = ""
    # The last state first: of an earlier one there is what stands behind the end of that.
    for state in reversed(shown.split("\r")):
        if "\x1b" in state:
            seen = seen or state
            break
        seen += state[len(seen) :]
    return seen + line[len(shown) :]


def shorten(text: str, width: int) -> str:
    """One line of at most `width` characters, with control characters made visible."""
    flat = visible(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: max(0, width - 1)] + "…"


def shorten_middle(text: str, width: int) -> str:
    """As `shorten`, with the gap in the middle: a reason often ends what begins with a command."""
    flat = visible(" ".join(text.split()))
    tail = 2 * width // 3
    return flat if len(flat) <= width else f"{flat[: width - tail - 1]}…{flat[-tail:]}"


def tell(note: str) -> None:
    """Write a note for the user to stderr; on a terminal, a single line is wrapped at words."""
    if sys.stderr.isatty() and "\n" not in note:
        columns = shutil.get_terminal_size().columns
        note = textwrap.fill(note, columns, break_long_words=False, break_on_hyphens=False)
    print(note, file=sys.stderr, flush=True)


def size(n_bytes: int) -> str:
    """``812 B``, ``34.5 kB``, ``1.2 MB``: units of 1000."""
    value, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def seconds(value: float) -> str:
    """``850 ms``, ``12.3 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
