"""One race of the CPU against a GPU with knob changes, and the readings during the race."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tfmon.analysis.analysis import analyse
from tfmon.analysis.bottleneck_rules import Shares
from tfmon.analysis.shares import shares_of
from tfmon.api.options import RaceOptions
from tfmon.api.program import Program
from tfmon.catalog import find_scenario
from tfmon.errors import TfmonError
from tfmon.model.event_base import Event
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.lane_events import RACING, KnobApplied, KnobRefused
from tfmon.model.lane_state import LaneState
from tfmon.model.profile import Profile
from tfmon.model.readings import Missing
from tfmon.model.session import Snapshot

from .agreement import Row, agree
from .smi import Smi, Told

SCENARIO = "large-dense"
START_S = 90.0
"""Loading TensorFlow and its CUDA libraries takes so long at most."""
GIVEN_BACK_S = 15.0
"""A killed lane's memory is free after so long."""
ROOM_BYTES = 64 * 2**20
"""Differences of memory that may have other reasons."""


@dataclass
class Raced:
    """The files and readings of the race of the CPU against the GPU."""

    end: Snapshot
    verdict: str
    changes: list[Event]
    """`KnobApplied` or `KnobRefused`."""
    shares: Shares | None = None
    """Of the GPU lane, just before it was profiled."""
    profile: Profile | None = None
    profile_error: str = ""


def race(device: str, recording: Path, folder: Path, seconds: float) -> Raced:
    """Race the CPU against a GPU, and change knobs and take a profile at fixed shares of the time.

    Errors: TfmonError where the race cannot begin.
    """
    recording.unlink(missing_ok=True)
    options = RaceOptions(
        lanes=("cpu", device), seconds=seconds, record=True, record_file=recording, watched=False
    )
    program = Program(options)
    raced = Raced(program.session.snapshot(), "", [])

    def hear(event: Event) -> None:
        if isinstance(event, KnobApplied | KnobRefused):
            raced.changes.append(event)

    program.session.listen(hear)
    try:
        program.begin(program.plan(find_scenario(SCENARIO)))
        cpu, gpu = (lane.spec.name for lane in program.session.snapshot().lanes)
        wait(program, lambda: program.session.snapshot().race.started_ns is not None, START_S)
        steps: list[tuple[float, Callable[[], None]]] = [
            (0.25, lambda: _set(program, (cpu, gpu), "prefetch", 1)),
            (0.4, lambda: _set(program, (cpu, gpu), "batch_size", 512)),
            (0.7, lambda: _profile(program, raced, gpu, folder)),
        ]
        for share, act in steps:
            wait(program, lambda share=share: _raced_s(program) >= share * seconds, START_S + seconds)
            act()
        wait(program, lambda: program.lanes.all_over, START_S + seconds)
    finally:
        program.close()
    found = analyse(program.session.snapshot())
    raced.end, raced.verdict = found.snapshot, found.verdict.answer
    return raced


def points_apart(shares: Shares, profile: Profile) -> dict[str, tuple[float | Missing, float, float]]:
    """Return each share of step time in percent, the profiler's share, and the difference in points.

    The share of copying is an upper bound, because a sampled step overlaps none of it: a smaller share is no
    difference.
    """
    device = profile.devices[0]
    theirs = {"compute": device.kernels_ns, "input": device.idle_input_ns, "copy": device.h2d_exposed_ns}
    ours = {"compute": shares.device_pct, "input": shares.input_pct, "copy": shares.copy_pct}
    found = {}
    for name, share in ours.items():
        other = 100 * theirs[name] / profile.step_ns
        apart = 0.0 if isinstance(share, Missing) else abs(share - other)
        if name == "copy" and not isinstance(share, Missing) and other < share:
            apart = 0.0
        found[name] = share, other, apart
    return found


@dataclass
class Alone:
    """The readings of a lane that has the GPU for itself, and the result of killing it."""

    before_bytes: float
    """Used memory according to nvidia-smi before the start."""
    rows: list[Row] = field(default_factory=list)
    """Readings of the GPU against nvidia-smi while it trained."""
    told: Told | None = None
    """Readings of nvidia-smi during the training."""
    lane: LaneState | None = None
    """The lane at that moment."""
    killed: LaneState | None = None
    """The lane after it was killed."""
    given_back_s: float | None = None
    """Time until its memory was free again; `None` if it was not freed."""
    left_bytes: float = 0.0
    """Additional used memory at the end."""


def train_alone(device: str, smi: Smi, uuid: str) -> Alone:
    """Train one lane on a GPU, compare the readings, kill it, and wait for its memory.

    Errors: TfmonError where it cannot begin.
    """
    alone = Alone(smi.ask()[uuid].numbers["memory.used_bytes"])
    program = Program(RaceOptions(lanes=(device,), record=False))

    def lane() -> LaneState:
        return program.session.snapshot().lanes[0]

    def latest() -> GpuSample:
        return next(gpu for gpu in program.session.snapshot().gpus if gpu.key == uuid)

    def next_one() -> None:
        seen = latest().at_ns
        wait(program, lambda: latest().at_ns > seen, 10.0)

    def told() -> Told:
        alone.told, alone.lane = smi.ask()[uuid], lane()
        return alone.told

    try:
        program.begin(program.plan(find_scenario(SCENARIO)))
        wait(program, lambda: lane().phase == RACING and lane().steady.windows > 3, START_S)
        wait(program, lambda: any(gpu.key == uuid for gpu in program.session.snapshot().gpus), 20.0)
        next_one()
        alone.rows = agree(latest, told, tries=5, pause=next_one)
        pid = lane().process.pid
        if pid is None or lane().over:
            alone.killed = lane()
            return alone
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        while alone.given_back_s is None and time.monotonic() - began < GIVEN_BACK_S:
            alone.left_bytes = smi.ask()[uuid].numbers["memory.used_bytes"] - alone.before_bytes
            if alone.left_bytes <= ROOM_BYTES:
                alone.given_back_s = time.monotonic() - began
        wait(program, lambda: lane().over, 20.0)
        alone.killed = lane()
    finally:
        program.close()
    return alone


def wait(program: Program, reached: Callable[[], bool], seconds: float) -> None:
    """Return once something is reached, or every lane has ended.

    Errors: AssertionError when neither happens in time.
    """
    until = time.monotonic() + seconds
    while not reached() and not program.lanes.all_over:
        assert time.monotonic() < until, f"not within {seconds:g} s"
        time.sleep(0.05)


def _raced_s(program: Program) -> float:
    started_ns = program.session.snapshot().race.started_ns
    return 0.0 if started_ns is None else (time.monotonic_ns() - started_ns) / 1e9


def _set(program: Program, lanes: tuple[str, ...], knob: str, value: int | str) -> None:
    for lane in lanes:
        program.lanes.set_knob(lane, knob, value)


def _profile(program: Program, raced: Raced, lane: str, folder: Path) -> None:
    state = program.session.snapshot().lane(lane)
    raced.shares = shares_of(state) if state.phase == RACING or state.steady.steps else None
    try:
        raced.profile = program.profiles.take(lane, folder)
    except TfmonError as error:
        raced.profile_error = str(error)
