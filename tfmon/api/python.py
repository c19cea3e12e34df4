"""What `import tfmon` offers to Python: races, sweeps, their results, the gate and `watch`, without a screen."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from tfmon.analysis.analysis import analyse
from tfmon.analysis.health import Concern
from tfmon.api import rules
from tfmon.api.options import RaceOptions, race_options, raced, sweep_options, unwatched
from tfmon.api.program import Program
from tfmon.api.result import (
    CombinationResult,
    LaneFailedError,
    LaneResult,
    RaceResult,
    SweepResult,
    result_of,
    sweep_result_of,
)
from tfmon.api.run import follow, teller
from tfmon.api.runs import RaceRun, SweepRun
from tfmon.api.state import alone
from tfmon.api.sweep import SweepProgram
from tfmon.api.watch import Watch, watch
from tfmon.catalog import ScenarioInfo
from tfmon.errors import EXIT_FINE, DeviceAbsentError, GpusBusyError, TfmonError, UsageError
from tfmon.model.knobs import KnobValue
from tfmon.model.race import MARGIN
from tfmon.model.views import describe
from tfmon.recordings.compare import compare_all
from tfmon.recordings.figures import RaceFigures, read_json, read_race, read_races
from tfmon.recordings.gate import MORE_MEMORY, Gate, judge
from tfmon.recordings.library import find

__all__ = [
    "CombinationResult", "Concern", "DeviceAbsentError", "Gate", "GpusBusyError", "LaneFailedError",
    "LaneResult", "RaceResult", "SweepResult", "TfmonError", "UsageError", "Watch", "diff", "race", "sweep",
    "watch",
]  # fmt: skip

ENDED = "ended by the program that began it"


def never() -> bool:
    """Return False: nothing but an exception stops what Python began."""
    return False


@rules.named_as_arguments()
def race(
    scenario: str | os.PathLike[str] | None = None,
    *,
    lanes: Sequence[str] | None = None,
    settings: Mapping[str, KnobValue] | None = None,
    seconds: float | None = None,
    steps: int | None = None,
    command: Sequence[str] = (),
    mode: Literal["turns", "concurrent"] | None = None,
    slice_s: float | None = None,
    until_ci: float | None = None,
    margin: float = MARGIN,
    fail_on: Sequence[str] | None = None,
    fresh: bool | None = None,
    wait_idle: float | None = None,
    in_place: bool = False,
    python: str | os.PathLike[str] | None = None,
    record: bool | str | os.PathLike[str] = True,
    progress: bool | Callable[[str], None] = True,
    check: bool = True,
    wait: bool = True,
) -> RaceResult:
    """Race a scenario without a screen, as `tfmon race --headless` does, and return the result.

    The call returns when the race is over; a race for which no end is given lasts 30 s. No signal handler is set,
    so that it may run in any thread, and beside a running event loop: `await asyncio.to_thread(tfmon.race, …)`.
    At an exception, such as KeyboardInterrupt, the lanes are ended before it goes on.

    Args:
        scenario: A name from `tfmon list`, or the file of a scenario; None for `small-dense`, or what is set.
        lanes: Specs of the lanes, such as `["cpu", "gpu:0,batch_size=256"]`; None for the default lanes.
        settings: Knobs of every lane.
        seconds: Length of the race.
        steps: Length in measured steps of each lane, instead.
        command: A training script of your own to race instead of a scenario, as a list of words.
        mode: Lanes train one at a time in short slices (`turns`), or all at once; None for what is set.
        slice_s: Length of a slice in seconds; None for what is set.
        until_ci: End when every ratio is known to within ± this share, such as 0.05.
        margin: Lanes that differ by less than this share are called the same.
        fail_on: End as soon as a lane has one of these concerns, such as `["nan", "stall"]`; None for none.
        fresh: Whether fresh processes replace those of the lanes every 20 s; None for in races of 60 s and more.
        wait_idle: How long to wait, in minutes, until nobody uses a GPU of the lanes; None for not at all.
        in_place: Whether all lanes of a `command` write to the working folder itself; by default each has a
            copy-on-write view of it.
        python: The interpreter that trains; None for what is set, or else this one.
        record: Whether to record the race, or the new file to record it into.
        progress: Whether to show how it goes in a notebook or on a terminal, or what to call with each line.
        check: Raise LaneFailedError where a lane fails, or has a concern of `fail_on`.
        wait: Wait while another race that Python began is under way; False raises TfmonError.

    Raises:
        UsageError: what was requested is not possible.
        DeviceAbsentError: a lane names a GPU that is not there.
        GpusBusyError: others use every GPU that the lanes could have, for longer than `wait_idle`.
        LaneFailedError: a lane failed, or has a concern of `fail_on`; its `result` has what was measured.
    """
    given = rules.read(rules.RULES, **locals())
    info = raced(given["scenario"], given["command"])
    options = unwatched(race_options(given, info), info)
    with teller(progress) as tell, alone(wait, tell):
        return _race(options, info, tell, check=check)


def _race(
    options: RaceOptions, info: ScenarioInfo, tell: Callable[[str], None] | None, *, check: bool
) -> RaceResult:
    program = Program(options)
    reason = ENDED
    try:
        plan = program.plan(info)
        if tell is not None and plan.race.views:
            tell("; ".join(describe(plan.race.views)))
        follow(RaceRun(program, plan), never, tell)
        reason = ""
    finally:
        program.close(reason if program.header is not None else "")
    result = result_of(analyse(program.session.snapshot()), program.header)
    if check and (program.ending.unhealthy or program.ending.exit_code() != EXIT_FINE):
        raise LaneFailedError(result, program.ending.unhealthy)
    return result


@rules.named_as_arguments()
def sweep(
    scenario: str | os.PathLike[str] | None = None,
    over: Mapping[str, Sequence[KnobValue] | str] | None = None,
    *,
    on: str | Sequence[str] | None = None,
    settings: Mapping[str, KnobValue] | None = None,
    until_ci: float | None = None,
    limit_s: float | None = None,
    everything: bool = False,
    slice_s: float | None = None,
    command: Sequence[str] = (),
    in_place: bool = False,
    python: str | os.PathLike[str] | None = None,
    record: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    ray: str | None = None,
    ray_python: str | os.PathLike[str] | None = None,
    ray_cpus: float = 1.0,
    progress: bool | Callable[[str], None] = True,
    wait: bool = True,
) -> SweepResult:
    """Measure all combinations of the values of some knobs, as `tfmon sweep --headless` does.

    Each is raced in turns against the baseline on the same device. No signal handler is set; at an exception, such
    as KeyboardInterrupt, the lanes are ended before it goes on, and what was measured is in the file.

    Args:
        scenario: A name from `tfmon list`, or the file of a scenario; None for a command or with `resume`.
        over: The values of each knob, such as `{"batch_size": [32, 128], "prefetch": ["off", "auto"]}`, or a range
            as the command takes it, `{"batch_size": "16..4096"}`.
        on: Where to measure, such as `"gpu"` or `["gpu:0", "gpu2/gpu"]`; None for the CPU, or where it began with
            `resume`.
        settings: Knobs of the baseline.
        until_ci: Measure each until its ratio is known to within ± this share; None for 0.03.
        limit_s: Longest time that one is raced for; None for 60 s.
        everything: Whether those that cannot win any more are measured all the same.
        slice_s: Length of a slice in seconds; None for what is set.
        command: A training script of your own instead of a scenario, as a list of words.
        in_place: Whether all lanes of a `command` write to the working folder itself; by default each has a
            copy-on-write view of it.
        python: The interpreter that trains; None for what is set, or else this one.
        record: The new file to keep it in; None for one among your sweeps.
        resume: The file of a sweep to go on with, or `"last"`, as it began; nothing is measured twice.
        ray: The Ray cluster of places such as `"ray/gpu"`: HOST:PORT of its head; None for RAY_ADDRESS, or
            else the one that runs here.
        ray_python: The Python that has Ray; None for this one.
        ray_cpus: How many CPUs are reserved for each place on Ray.
        progress: Whether to show how it goes in a notebook or on a terminal, or what to call with each line.
        wait: Wait while a race or sweep that Python began is under way; False raises TfmonError.

    Raises:
        TfmonError: what was requested is not possible.
    """
    given = rules.read(rules.SWEEP_RULES, **locals())
    options = sweep_options(given, given["scenario"], given["command"])
    with teller(progress) as tell, alone(wait, tell):
        program = SweepProgram(options)
        try:
            follow(SweepRun(program), never, tell)
        finally:
            program.close(ENDED)
    return sweep_result_of(program.sweep.ranking, program.file.path if program.file else None)


Race: TypeAlias = "RaceResult | str | os.PathLike[str]"
"""A result, the file of a recording or of a JSON result, an id, `last`; or a folder of such files."""


@rules.named_as_arguments()
def diff(
    baseline: Race | Sequence[Race],
    run: Race | Sequence[Race],
    *,
    slower_than: float = 0.05,
    more_memory_than: float | None = None,
) -> Gate:
    """Return whether any lane of a run is slower than in the baseline, or that this cannot be told.

    Args:
        baseline: The race to compare with, or several, each of which was raced beside one run.
        run: The race that is judged, or as many.
        slower_than: A lane is slower when its throughput fell by more than this share.
        more_memory_than: Judge the memory of the lanes instead: it may grow by this share.

    Raises:
        TfmonError: one of them cannot be read, or is of another scenario.
    """
    limits = rules.read(rules.RULES, slower_than=slower_than, more_memory_than=more_memory_than)
    races = compare_all(_figures(baseline, "baseline"), _figures(run, "run"))
    if more_memory_than is not None:
        return judge(races, limits["more_memory_than"], MORE_MEMORY)
    return judge(races, limits["slower_than"])


def _figures(races: Race | Sequence[Race], name: str) -> list[RaceFigures]:
    if isinstance(races, RaceResult):
        return [read_json(races.to_json(), name, f"the {name}")]
    if isinstance(races, str | os.PathLike):
        path = Path(os.fspath(races))
        if path.is_dir():
            return [figures for figures, _ in read_races(path)]
        return [read_race(path if path.is_file() else find(str(path)))[0]]
    if isinstance(races, Mapping) or not isinstance(races, Sequence) or not races:
        rules.refuse(name, races, "it is a result, a file, an id, a folder, or a list of these")
    return [figures for race in races for figures in _figures(race, name)]
