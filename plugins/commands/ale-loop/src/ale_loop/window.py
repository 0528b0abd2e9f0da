"""Hours of the day."""

import re
from datetime import datetime, time
from zoneinfo import ZoneInfo

from attrs import frozen


@frozen
class Window:
    """From one time of day up to another, which may be on the next day.

    Times are those of a clock on the wall: in the night in which clocks change, a window with the
    change in it is an hour longer or shorter.
    """

    begin: time
    end: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> "Window":
        """Read ``02:00-06:00``, or ``22:30-06:00`` over midnight.

        Raises:
            ValueError: it is something else.
        """
        if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d", text):
            raise ValueError(f"expected hours such as 22:30-06:00, found '{text}'")
        begin, end = map(time.fromisoformat, text.split("-"))
        if begin == end:
            raise ValueError(f"'{text}' has no length; leave it out for the whole day")
        return cls(begin, end, zone)

    def contains(self, at: float) -> bool:
        """Does a moment, in seconds since the epoch, lie in it? Its end does not."""
        now = datetime.fromtimestamp(at, self.zone).time()
        if self.begin < self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end

    def __str__(self) -> str:
        return f"{self.begin:%H:%M}-{self.end:%H:%M} {self.zone}"
