"""One race of the CPU against a GPU with knob changes, and what was seen of it on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tfmon.analysis.analysis import analyse
from tfmon.analysis.attribution import Shares, shares_of
from tfmon.catalog import find_scenario
from tfmon.errors import TfmonError
from tfmon.model.events import Event
from tfmon.model.lane_events import KnobApplied, KnobRefused
from tfmon.model.lane_state import RACING, LaneState
from tfmon.model.readings import GpuSample
from tfmon.model.session import Snapshot
from tfmon.profile.breakdown import read_profile
from tfmon.profile.result import Profile
from tfmon.runner.planner import RaceOptions
from tfmon.runner.program import Program

from .agreement import Row, agree
from .smi import Smi, Told

SCENARIO = "large-dense"
START_S = 120.0
"""Loading TensorFlow and its CUDA libraries takes so long at most."""


@dataclass
class Raced:
    """What a race left."""

    end: Snapshot
    verdict: str
    changes: list[Event]
    """`KnobApplied` or `KnobRefused`."""
    under_load: list[Row] = field(default_factory=list)
    """Readings of the GPU against nvidia-smi while it trained."""
    told: Told | None = None
    """What nvidia-smi said of the GPU then."""
    memory: LaneState | None = None
    """The GPU lane at that moment."""
    shares: Shares | None = None
    """Of the GPU lane, just before it was profiled."""
    profile: Profile | None = None
    profile_error: str = ""


def race(device: str, smi: Smi, uuid: str, recording: Path, folder: Path, seconds: float) -> Raced:
    """Race the CPU against a GPU and change knobs at fixed shares of the time.

    Errors: TfmonError where the race cannot begin.
    """
    recording.unlink(missing_ok=True)
    options = RaceOptions(
        lanes=("cpu", device), seconds=seconds, record=True, record_file=recording, spare=False, watched=False
    )
    program = Program(options)
    changes: list[Event] = []
    raced = Raced(program.session.snapshot(), "", changes)

    def hear(event: Event) -> None:
        if isinstance(event, KnobApplied | KnobRefused):
            changes.append(event)

    program.session.listen(hear)
    try:
        program.begin(program.plan(find_scenario(SCENARIO)))
        cpu, gpu = (lane.spec.name for lane in program.session.snapshot().lanes)
        wait(program, lambda: program.session.snapshot().race.started_ns is not None, START_S)
        steps: list[tuple[float, Callable[[], None]]] = [
            (0.25, lambda: _compare(program, raced, smi, uuid, gpu)),
            (0.45, lambda: _set(program, (cpu, gpu), "batch_size", 512)),
            (0.7, lambda: _profile(program, raced, gpu, folder)),
            (0.8, lambda: _set(program, (cpu, gpu), "prefetch", 1)),
        ]
        for share, act in steps:
            wait(program, lambda share=share: _raced_s(program) >= share * seconds, START_S + seconds)
            act()
        wait(program, lambda: program.lanes.all_over, START_S + seconds)
    finally:
        program.close()
    found = analyse(program.session.snapshot())
    raced.end, raced.verdict = found.snapshot, found.verdict.text
    return raced


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


def _compare(program: Program, raced: Raced, smi: Smi, uuid: str, lane: str) -> None:
    """Compare the readings of the race's own probe with nvidia-smi's while lanes train."""

    def latest() -> GpuSample:
        return next(gpu for gpu in program.session.snapshot().gpus if gpu.key == uuid)

    def next_one() -> None:
        seen = latest().at_ns
        wait(program, lambda: latest().at_ns > seen, 10.0)

    def told() -> Told:
        raced.told = smi.ask()[uuid]
        raced.memory = program.session.snapshot().lane(lane)
        return raced.told

    wait(program, lambda: any(gpu.key == uuid for gpu in program.session.snapshot().gpus), 20.0)
    raced.under_load = agree(latest, told, tries=4, pause=next_one)


def _profile(program: Program, raced: Raced, lane: str, folder: Path) -> None:
    state = program.session.snapshot().lane(lane)
    raced.shares = shares_of(state) if state.phase == RACING or state.steady.steps else None
    try:
        taken = program.profile(lane, folder)
        raced.profile = read_profile(Path(taken.path), on_gpu=True, note=taken.note)
    except TfmonError as error:
        raced.profile_error = str(error)
