"""The agent that does nothing."""

from ale.protocols import AgentContext
from ale.types import Limits, Stop


class NoopAgent:
    """Ends at once, asking no model and touching no file."""

    @property
    def limits(self) -> Limits:
        """None: it uses nothing up."""
        return Limits()

    async def run(self, context: AgentContext) -> Stop:
        """Nothing."""
        return Stop(reason="finished", detail="nothing was to be done")
