"""Durations as people write them."""

import re

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse(text):
    """Seconds in a text such as '2d4h', '1h30m' or '45s'.

    Each unit (d, h, m, s) stands at most once, the larger before the smaller. White space
    around the text is allowed, inside it is not. Anything else is a ValueError.
    """
    total = 0
    for count, unit in re.findall(r"(\d)([dhms])", text):
        total += int(count) * UNITS[unit]
    return total


def render(seconds):
    """The shortest text that `parse` reads as `seconds`, a whole number; 0 is '0s'.

    Below 0 is a ValueError.
    """
    text = ""
    for unit in UNITS:
        count = seconds // UNITS[unit]
        text += f"{count}{unit}"
        seconds = seconds % UNITS[unit]
    return text
