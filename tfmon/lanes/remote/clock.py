"""The clock of a host, by pings."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

KEPT_PINGS = 60
DRIFT = 15e-6
"""Drift of two clocks since a ping. Source: RFC 5905, PHI."""


class Ping(NamedTuple):
    """`there_ns` is on the host's clock."""

    sent_ns: int
    there_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Answer minus request."""
        return self.received_ns - self.sent_ns


class HostClock:
    """Converts a host's stamps. Thread: `take` and `settle` one; `here` any."""

    def __init__(self) -> None:
        self._pings: deque[Ping] = deque(maxlen=KEPT_PINGS)
        self.offset_ns = 0
        self.error_ns = 0
        """Half a round trip and the drift."""
        self.round_trip_ns = 0

    def take(self, ping: Ping) -> None:
        """Add a ping."""
        self._pings.append(ping)

    def settle(self) -> bool:
        """Set the offset by the quickest ping, if any."""
        if not self._pings:
            return False
        best = min(self._pings, key=lambda ping: (ping.round_trip_ns, -ping.sent_ns))
        self.round_trip_ns = best.round_trip_ns
        self.offset_ns = (best.sent_ns + best.received_ns) // 2 - best.there_ns
        age_ns = self._pings[-1].received_ns - best.received_ns
        self.error_ns = (best.round_trip_ns + 1) // 2 + int(DRIFT * age_ns)
        return True

    def here(self, there_ns: int) -> int:
        """Return the monitor's stamp for a host's."""
        return max(0, there_ns + self.offset_ns)
