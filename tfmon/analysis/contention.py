"""What other programs and the hypervisor took from the lanes in their slices: reported, never corrected for. Pure.

A lane that waits for a core trains fewer examples a second, whichever lane it is. What it computes for an example
hardly changes, so the ratio of CPU time per example is shown beside that of wall time where both lanes are bound
by the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.analysis.means import trimmed
from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.readings import Missing, Reading, SliceLoad

NO_DELAYS = Missing("this system does not report how long threads wait for a core")
NO_SLICES = Missing("no slice was measured")
NO_STOLEN = Missing("this system does not report stolen time")
TOLD = 0.05
"""Share of contended slices, and of stolen time, from which on the verdict says so."""
BUSY_CORES = 0.8
"""A lane that keeps so many cores busy, or waits for them, is bound by the CPU."""


@dataclass(frozen=True, slots=True)
class Contention:
    """What took CPU time from some lanes that take turns."""

    slices_share: Reading
    """Share of the slices in which other programs took CPU time, see `SliceLoad.contended`."""
    stolen_share: Reading
    """Share of one core's time in the slices that the hypervisor gave to other machines."""
    cpu_ratio: float | None = None
    """CPU time per example of the second lane over that of the first; None where that says nothing."""
    others_cores: Reading = NO_SLICES
    """How many cores all other programs kept busy in the slices, on average; tfmon itself is one of them."""

    def text(self, *, undecided: bool = False, own: bool = True) -> str:
        """Return one line, or "" while others take too little to be mentioned.

        Args:
            undecided: Whether there is no verdict.
            own: Whether all the lanes trained on the monitor's own machine.
        """
        told = []
        if not isinstance(self.slices_share, Missing) and self.slices_share > TOLD:
            told.append(f"other programs took CPU time during {100 * self.slices_share:.0f} % of the slices")
        if not isinstance(self.stolen_share, Missing) and self.stolen_share > TOLD:
            which = "this virtual machine loses" if own else "the virtual machines lose"
            lost = f"{which} {100 * self.stolen_share:.0f} % of a core to others"
            told.append(f"{lost}; the figures include that")
        if told and self.cpu_ratio is not None:
            told.append(f"counting only CPU time: {units.ratio(self.cpu_ratio)}")
        busy = f"{'the machine is' if own else 'the machines are'} too busy for a quick answer: "
        return (busy if told and undecided else "") + "; ".join(told)


def contention(lanes: Iterable[Sequence[SliceSpeed]]) -> Contention:
    """Return the contention of lanes for CPU time; the ratio is of the first lane's speed over the last one's."""
    slices = list(lanes)
    loads = [one.load for lane in slices for one in lane if one.load is not None]
    ratio = cpu_ratio(slices[0], slices[-1]) if len(slices) > 1 else None
    return Contention(_share_contended(loads), _share_stolen(loads), ratio, _others_cores(loads))


def cpu_ratio(first: Sequence[SliceSpeed], second: Sequence[SliceSpeed]) -> float | None:
    """Return the second lane's CPU time per example over the first's, from the rounds that both ran in.

    None from too few rounds, and unless both lanes are bound by the CPU: a lane that waits for a GPU or for input
    takes as long, however little it computes.
    """
    loads = [{one.round: one.load for one in lane if one.load is not None} for lane in (first, second)]
    if not all(_bound_by_cpu(list(one.values())) for one in loads):
        return None
    costs = [
        {
            number: math.log(load.cpu_ns / load.examples)
            for number, load in one.items()
            if load.examples * load.cpu_ns
        }
        for one in loads
    ]
    found = trimmed([costs[1][number] - cost for number, cost in costs[0].items() if number in costs[1]])
    return None if found is None else math.exp(found.value)


def _bound_by_cpu(loads: Sequence[SliceLoad]) -> bool:
    busy_ns = sum(load.cpu_ns + (load.delay_ns or 0) for load in loads)
    return bool(loads) and busy_ns >= BUSY_CORES * sum(load.span_ns for load in loads)


def _share_contended(loads: Sequence[SliceLoad]) -> Reading:
    known = [load.contended for load in loads if load.contended is not None]
    if known:
        return sum(known) / len(known)
    return NO_DELAYS if loads else NO_SLICES


def _share_stolen(loads: Sequence[SliceLoad]) -> Reading:
    known = [load for load in loads if load.stolen_ns is not None]
    if known:
        return sum(load.stolen_ns or 0 for load in known) / max(1, sum(load.span_ns for load in known))
    return NO_STOLEN if loads else NO_SLICES


def _others_cores(loads: Sequence[SliceLoad]) -> Reading:
    known = [load for load in loads if load.others_ns is not None]
    if known:
        return sum(load.others_ns or 0 for load in known) / max(1, sum(load.span_ns for load in known))
    return NO_DELAYS if loads else NO_SLICES
