"""Snapshots of races whose slices are known, for verdicts."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from support.events import SECOND
from tfmon.model.lane_events import RACING
from tfmon.model.lane_state import DONE, LaneState
from tfmon.model.race import TURNS, Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import Measurements, SliceSpeed, WindowSums

LONG_NS = 2_000_000_000_000_000


def lane(name: str, speeds=(), phase: str = RACING, first: int = 1) -> LaneState:
    slices = tuple(
        SliceSpeed(number, number, round(speed * LONG_NS / 1e9), LONG_NS)
        for number, speed in enumerate(speeds, first)
    )
    steady = WindowSums(
        windows=len(slices),
        examples=sum(part.examples for part in slices),
        span_ns=sum(part.span_ns for part in slices),
    )
    measured = Measurements(slices=slices, steady=steady)
    return LaneState(spec=LaneSpec(name, id=name, name=name), phase=phase, measurements=measured)


def snapshot(*lanes: LaneState, mode: str = TURNS) -> Snapshot:
    return Snapshot(at_ns=0, race=Race(mode=mode), lanes=lanes)


def noisy(middle: float, number: int = 12, scatter: float = 0.02, seed: int = 1) -> list[float]:
    return list(middle * np.exp(np.random.default_rng(seed).normal(0, scatter, number)))


def with_slices(lane: LaneState, change: Callable[[SliceSpeed], SliceSpeed]) -> LaneState:
    slices = tuple(change(part) for part in lane.slices)
    return replace(lane, measurements=replace(lane.measurements, slices=slices))


def ended(*lanes: LaneState, round_s: int = 2, **race) -> Snapshot:
    """Return a race whose lanes are done; its slices last half a round each."""
    span_ns = round_s * SECOND // 2
    timed = [
        with_slices(one, lambda part, at=at: replace(part, at_ns=(2 * part.round + at) * span_ns, span_ns=span_ns))
        for at, one in enumerate(lanes)
    ]
    done = tuple(replace(one, phase=DONE) for one in timed)
    return Snapshot(at_ns=0, race=Race(mode=TURNS, started_ns=0, **race), lanes=done)
