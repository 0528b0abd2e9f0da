"""The agent that does nothing."""

from ale.protocols import AgentContext
from ale.types import Limits, Stop


class NoopAgent:
    """Ends immediately; uses no model and changes no file."""

    @property
    def limits(self) -> Limits:
        """No limits, as it uses nothing up."""
        return Limits()

    async def run(self, context: AgentContext) -> Stop:
        """Nothing."""
        return Stop(reason="finished", detail="nothing was to be done")
