"""Snapshots of races whose slices are known, for verdicts."""

from dataclasses import replace

import numpy as np

from support.events import SECOND
from tfmon.model.lane_state import DONE, RACING, LaneState
from tfmon.model.race import TURNS, Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import Measurements, SliceSpeed, WindowSums

LONG_NS = 2_000_000_000_000_000


def lane(name: str, speeds=(), phase: str = RACING, first: int = 1) -> LaneState:
    """Make a lane that had one long slice at each of these speeds."""
    slices = tuple(
        SliceSpeed(number, number, round(speed * LONG_NS / 1e9), LONG_NS)
        for number, speed in enumerate(speeds, first)
    )
    steady = WindowSums(
        windows=len(slices),
        examples=sum(part.examples for part in slices),
        span_ns=sum(part.span_ns for part in slices),
    )
    return LaneState(
        spec=LaneSpec(name, name=name), phase=phase, measurements=Measurements(slices=slices, steady=steady)
    )


def snapshot(*lanes: LaneState, mode: str = TURNS) -> Snapshot:
    return Snapshot(at_ns=0, race=Race(mode=mode), lanes=lanes)


def noisy(middle: float, number: int = 12, scatter: float = 0.02, seed: int = 1) -> list[float]:
    return list(middle * np.exp(np.random.default_rng(seed).normal(0, scatter, number)))


def ended(*lanes: LaneState, **race) -> Snapshot:
    """Return a race whose lanes are done; its slices last a second each, a round two."""
    done = [
        replace(
            one,
            phase=DONE,
            measurements=replace(
                one.measurements,
                slices=tuple(
                    replace(each, at_ns=(2 * each.round + at) * SECOND, span_ns=SECOND) for each in one.slices
                ),
            ),
        )
        for at, one in enumerate(lanes)
    ]
    return Snapshot(at_ns=0, race=Race(mode=TURNS, started_ns=0, **race), lanes=tuple(done))


def snapshot_of(seconds: list[float]) -> Snapshot:
    """Return a race of two lanes whose slices are one step each; one lane's take so long, the other's 5 s."""
    lanes = []
    for place, name in enumerate(("cpu", "gpu:0")):
        at_ns, slices = 0, []
        for number, took in enumerate(seconds, 1):
            span_ns = round((took if place else 5.0) * SECOND)
            at_ns = round((10 * number + 5 * place) * SECOND)
            slices.append(SliceSpeed(number, at_ns, 32, span_ns))
        steady = WindowSums(len(slices), len(slices), 32 * len(slices), sum(part.span_ns for part in slices))
        measured = Measurements(slices=tuple(slices), steady=steady)
        lanes.append(LaneState(LaneSpec(name, name=name), phase=RACING, measurements=measured))
    return replace(snapshot(*lanes), at_ns=round(10 * len(seconds) + 5) * SECOND)
