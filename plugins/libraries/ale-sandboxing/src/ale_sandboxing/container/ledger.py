"""Rows of what a container's proxy passed on and refused, which no agent can forge or flood.

An agent chooses the names that are refused, and how many. So these have rows of their own, and the
rows of what passed stay; what has no row is counted.
"""

from typing import Literal

from attrs import define, field

from ale.types import Egress, EgressLedger

MOST = 200
"""Rows of what passed, and as many of what did not."""
_NAME, _WHY = 253, 200
"""Characters of a host's name, the longest that there is, and of a reason."""
Outcome = Literal["passed", "refused", "unreached"]


@define
class Row:
    """Connections between a container and one host so far."""

    host: str
    port: int
    address: str
    outcome: Outcome
    why: str
    connections: int = 0
    sent: int = 0
    received: int = 0

    def done(self) -> Egress:
        """The row as it is stored."""
        return Egress(
            host=self.host,
            port=self.port,
            address=self.address,
            outcome=self.outcome,
            why=self.why,
            connections=self.connections,
            sent=self.sent,
            received=self.received,
        )


@define
class Ledger:
    """The rows of one container."""

    _rows: dict[tuple[str, int, str, str, str], Row] = field(factory=dict)
    _further: dict[bool, Row] = field(factory=dict)
    """Rows for what has none: of what passed, and of what did not."""

    def add(
        self, host: str, port: int, outcome: Outcome, *, address: str = "", why: str = ""
    ) -> Row:
        """Count a connection; its bytes are added to the row that this returns."""
        host, why = host[:_NAME], why[:_WHY]
        key = (host, port, address, outcome, why)
        row = self._rows.get(key)
        if row is None:
            row = self._new(Row(host, port, address, outcome, why), key)
        row.connections += 1
        return row

    def _new(self, row: Row, key: tuple[str, int, str, str, str]) -> Row:
        passed = row.outcome == "passed"
        if sum((each.outcome == "passed") == passed for each in self._rows.values()) < MOST:
            self._rows[key] = row
            return row
        return self._further.setdefault(passed, Row("", 0, "", row.outcome, "further hosts"))

    def so_far(self, unrecorded: str = "") -> EgressLedger:
        """The rows as they are stored.

        Args:
            unrecorded: what went another way, in words.
        """
        rows = (*self._rows.values(), *self._further.values())
        return EgressLedger(rows=tuple(row.done() for row in rows), unrecorded=unrecorded)
