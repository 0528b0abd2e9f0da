"""Hours of the day."""

import re
from datetime import datetime, time
from zoneinfo import ZoneInfo

from attrs import frozen


@frozen
class Window:
    """From one time of day up to another, which may be on the next day.

    Times are those of a clock on the wall: in the night in which clocks change, the window is an hour
    longer or shorter where the change lies in it.
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
        times = re.fullmatch(r"(\d\d:\d\d)-(\d\d:\d\d)", text.strip())
        try:
            if times is None:
                raise ValueError
            begin, end = map(time.fromisoformat, times.groups())
        except ValueError:
            raise ValueError(f"expected hours such as 22:30-06:00, found '{text}'") from None
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
