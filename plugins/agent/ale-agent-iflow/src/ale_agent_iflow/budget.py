"""The steps, turns and time that an episode has used."""

from collections.abc import Callable

from ale.types import Limits, Stop


class EndedError(Exception):
    """The episode is over."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        super().__init__(stop.reason)


class Budget:
    """Counts steps and turns, and looks at the clock.

    Args:
        limits: those that bind: `AgentContext.limits`.
        monotonic: seconds from an arbitrary start.
    """

    def __init__(self, limits: Limits, monotonic: Callable[[], float]) -> None:
        self.limits = limits
        self.steps = 0
        self.turns = 0
        self._monotonic = monotonic
        self._start = monotonic()

    def time_left(self) -> float | None:
        """Seconds until the time limit, at least 0; None without one."""
        if self.limits.time_limit_s is None:
            return None
        return max(0.0, self.limits.time_limit_s - (self._monotonic() - self._start))

    def tool_timeout(self) -> float | None:
        """Seconds that the next tool call may take: its own limit or the time left."""
        bounds = [s for s in (self.limits.tool_timeout_s, self.time_left()) if s is not None]
        return min(bounds, default=None)

    def no_more_calls(self) -> Stop | None:
        """Why no further tool call may be run, or None."""
        most = self.limits.max_steps
        if most is not None and self.steps >= most:
            return Stop(reason="max_steps", detail=f"{self.steps} of {most} tool calls used")
        if self.time_left() == 0.0:
            return self.out_of_time()
        return None

    def no_more_turns(self) -> Stop | None:
        """Why no further request may be sent, or None."""
        most = self.limits.max_turns
        if most is not None and self.turns >= most:
            return Stop(reason="max_turns", detail=f"{self.turns} of {most} completions used")
        return self.no_more_calls()

    def out_of_time(self) -> Stop:
        """The end by the clock."""
        return Stop(reason="time_limit", detail=f"{self.limits.time_limit_s:g} s are over")
