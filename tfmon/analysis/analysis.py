"""What a snapshot means, computed once for all who show it: screen, reports, JSON, tuner. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tfmon.analysis import tuning
from tfmon.analysis.bottleneck import Bottleneck
from tfmon.analysis.crossover import Curve, curve_of
from tfmon.analysis.statistics import Throughput
from tfmon.analysis.verdict import Verdict, find_verdict
from tfmon.model.lane_state import LaneState
from tfmon.model.race import CrossoverState
from tfmon.model.readings import Estimate
from tfmon.model.session import Snapshot


@dataclass(frozen=True, slots=True)
class LaneAnalysis:
    """What the figures of one lane mean."""

    lane: LaneState
    bottleneck: Bottleneck | None
    """What limits it, with the advice that was not tried yet; None before enough is measured."""
    speed: Estimate | None
    """Throughput over its slices in examples/s, with its interval; None from too few slices."""

    @property
    def discarded(self) -> Mapping[str, int]:
        """Windows that do not count, by reason."""
        return self.lane.discarded

    @property
    def discarded_windows(self) -> int:
        """How many windows do not count; one with two reasons counts for each of them."""
        return sum(self.lane.discarded.values())


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that follows from one snapshot. Immutable; drawing it computes nothing."""

    snapshot: Snapshot
    verdict: Verdict
    lanes: tuple[LaneAnalysis, ...]
    """In the order of the snapshot's lanes."""
    discarded: Mapping[str, int]
    """Windows of all lanes that do not count, by reason, in the order of the reasons."""
    news: str
    """What is tried on a lane, or what came of the last change while it is in effect; empty if there is nothing."""
    curve: Curve | None
    """The crossover that runs or ran last; None if the last experiment is none."""

    def lane(self, name: str) -> LaneAnalysis:
        """Return the analysis of the lane of that name; KeyError if there is none."""
        for one in self.lanes:
            if one.lane.spec.name == name:
                return one
        raise KeyError(name)


def analyse(snapshot: Snapshot) -> Analysis:
    """Return what follows from a snapshot. Call it once for a snapshot and pass the result on."""
    throughputs = {lane.spec.name: Throughput.of(lane.slices) for lane in snapshot.lanes}
    discarded: Counter[str] = Counter()
    for lane in snapshot.lanes:
        discarded.update(lane.discarded)
    experiment = snapshot.experiment
    return Analysis(
        snapshot=snapshot,
        verdict=find_verdict(snapshot, throughputs),
        lanes=tuple(
            LaneAnalysis(lane, tuning.advised(snapshot, lane), throughputs[lane.spec.name].speed)
            for lane in snapshot.lanes
        ),
        discarded=dict(sorted(discarded.items())),
        news=tuning.news(snapshot),
        curve=curve_of(snapshot, experiment) if isinstance(experiment, CrossoverState) else None,
    )
