"""The clock of a host, by pings."""

from __future__ import annotations

from collections import deque

KEPT_PINGS = 60
DRIFT = 15e-6
"""Drift of two clocks since a ping. Source: RFC 5905, PHI."""


class HostClock:
    """Converts a host's stamps. Thread: `take` and `settle` one; `to_monitor` any."""

    def __init__(self) -> None:
        self._pings: deque[tuple[int, int, int]] = deque(maxlen=KEPT_PINGS)
        """Round trip, time of the answer (negative, so that the newest comes first) and offset of each."""
        self.offset_ns = 0
        self.error_ns = 0
        """Half a round trip and the drift."""
        self.round_trip_ns = 0

    def take(self, sent_ns: int, there_ns: int, received_ns: int) -> None:
        """Add a ping, which was answered at `there_ns` of the host's clock."""
        offset_ns = (sent_ns + received_ns) // 2 - there_ns
        self._pings.append((received_ns - sent_ns, -received_ns, offset_ns))

    def settle(self) -> bool:
        """Set the offset by the quickest ping, if any."""
        if not self._pings:
            return False
        self.round_trip_ns, minus_received_ns, self.offset_ns = min(self._pings)
        age_ns = minus_received_ns - self._pings[-1][1]
        self.error_ns = (self.round_trip_ns + 1) // 2 + int(DRIFT * age_ns)
        return True

    def to_monitor(self, there_ns: int) -> int:
        """Convert a host's stamp to the monitor's clock."""
        return max(0, there_ns + self.offset_ns)
