"""The clock of another machine: how far its stamps are from the monitor's, by the quickest pings."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

KEPT_PINGS = 60
QUICKEST = 0.1
"""Share of the pings that counts: the others waited somewhere on their way, and not for equally long both ways."""
DRIFT = 15e-6
"""How much two clocks may drift apart in the time since a ping. Source: RFC 5905, PHI."""


@dataclass(frozen=True, slots=True)
class Ping:
    """One ping: when it was sent and answered here, and the clock there in between."""

    sent_ns: int
    there_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """How long the answer took."""
        return self.received_ns - self.sent_ns

    @property
    def offset_ns(self) -> int:
        """What must be added to a stamp from there, if both ways took equally long."""
        return (self.sent_ns + self.received_ns) // 2 - self.there_ns


class HostClock:
    """Turns stamps of a host into the monitor's. Thread: `take` and `settle` one; `here` any."""

    def __init__(self) -> None:
        self._pings: deque[Ping] = deque(maxlen=KEPT_PINGS)
        self.offset_ns = 0
        self.error_ns = 0
        """How wrong the offset is at most: half a round trip, what the pings disagree by, and the drift since."""
        self.round_trip_ns = 0
        """Median of the quickest pings."""

    def take(self, ping: Ping) -> None:
        """Take a ping; the offset changes at the next `settle`."""
        self._pings.append(ping)

    def settle(self) -> bool:
        """Take the offset from the quickest pings; return False where there is none yet."""
        if not self._pings:
            return False
        # Of equally quick ones, the latest: clocks drift.
        pings = sorted(self._pings, key=lambda ping: (ping.round_trip_ns, -ping.sent_ns))
        quickest = pings[: max(1, int(len(pings) * QUICKEST))]
        offset_ns = int(statistics.median(ping.offset_ns for ping in quickest))
        disagree_ns = max(abs(ping.offset_ns - offset_ns) for ping in quickest)
        age_ns = self._pings[-1].received_ns - max(ping.received_ns for ping in quickest)
        self.error_ns = (quickest[0].round_trip_ns + 1) // 2 + disagree_ns + int(DRIFT * age_ns)
        self.round_trip_ns = int(statistics.median(ping.round_trip_ns for ping in quickest))
        self.offset_ns = offset_ns
        return True

    def here(self, there_ns: int) -> int:
        """Return the monitor's stamp for one from there."""
        return max(0, there_ns + self.offset_ns)
