"""`tfmon.race`: a race without a screen, from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tfmon.analysis.analysis import analyse
from tfmon.api import arguments
from tfmon.api.arguments import named_as_arguments
from tfmon.api.headless import follow_race, pause
from tfmon.api.planner import LEAST_CI, LEAST_MARGIN, RaceOptions, interpreter, raced, unwatched, with_fresh
from tfmon.api.planner import check as check_options
from tfmon.api.program import Program
from tfmon.api.progress import alone, teller
from tfmon.api.result import LaneFailedError, RaceResult, result_of
from tfmon.api.settings import LONGEST_S, LONGEST_WAIT_MIN, resolve
from tfmon.catalog import ScenarioInfo
from tfmon.errors import EXIT_FINE
from tfmon.model.knobs import KnobValue
from tfmon.model.race import MARGIN, MODES
from tfmon.model.views import describe

LEAST_SLICE_S, LONGEST_SLICE_S = 0.2, 60.0


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
        fresh: Whether fresh processes replace those of the lanes every 20 s; None for in races of 60 s and more.
        wait_idle: How long to wait, in minutes, until nobody uses a GPU of the lanes; None for not at all.
        in_place: Whether all lanes of a `command` write to the working folder itself; by default each has a
            copy-on-write view of it.
        python: The interpreter that trains; None for what is set, or else this one.
        record: Whether to record the race, or the new file to record it into.
        progress: Whether to show how it goes in a notebook or on a terminal, or what to call with each line.
        check: Raise LaneFailedError where a lane fails.
        wait: Wait while another race that Python began is under way; False raises TfmonError.

    Raises:
        UsageError: what was requested is not possible.
        DeviceAbsentError: a lane names a GPU that is not there.
        GpusBusyError: others use every GPU that the lanes could have, for longer than `wait_idle`.
        LaneFailedError: a lane failed; its `result` has what was measured.
    """
    with named_as_arguments():
        words = arguments.words("command", command, '["python", "train.py"]')
        info = raced(arguments.path("scenario", scenario), words)
        flags = {"in_place": in_place, "check": check, "wait": wait}
        arguments.yes_or_no(**(flags if fresh is None else {**flags, "fresh": fresh}))
        if mode not in (None, *MODES):
            arguments.refuse("mode", mode, f"it is {' or '.join(MODES)}")
        interpreter_named = arguments.path("python", python) or str(resolve("python").value)
        minutes = arguments.number(
            "wait_idle", wait_idle, f"it is minutes, from 0 to {LONGEST_WAIT_MIN}", 0, LONGEST_WAIT_MIN
        )
        options = RaceOptions(
            lanes=lane_specs(lanes),
            settings=arguments.settings("settings", settings),
            python=interpreter(interpreter_named, words),
            seconds=arguments.seconds("seconds", seconds, 0, LONGEST_S),
            steps=arguments.count("steps", steps),
            mode=str(resolve("mode").value) if mode is None else mode,
            slice_s=slice_of(slice_s),
            until_ci=arguments.share("until_ci", until_ci, LEAST_CI),
            margin=arguments.share("margin", margin, LEAST_MARGIN) or MARGIN,
            record=record is not False,
            record_file=arguments.file_or_bool("record", record),
            wait_idle_s=None if minutes is None else 60 * minutes,
            in_place=in_place or None,
        )
        check_options(options, info, fresh)
        with teller(progress) as tell, alone(wait, tell):
            return _race(with_fresh(unwatched(options, info), fresh), info, tell, check=check)


def lane_specs(lanes: object) -> tuple[str, ...]:
    """Return the specs of lanes; none for None, the default lanes."""
    if lanes is None:
        return ()
    found = arguments.words("lanes", lanes, '["cpu", "gpu:0,batch_size=256"]')
    return found or arguments.refuse("lanes", lanes, "None stands for the default lanes")


def slice_of(slice_s: object) -> float:
    """Return the length of a slice; the one that is set for None."""
    given = arguments.seconds("slice_s", slice_s, LEAST_SLICE_S, LONGEST_SLICE_S)
    return float(str(resolve("slice").value)) if given is None else given


def _race(
    options: RaceOptions, info: ScenarioInfo, tell: Callable[[str], None] | None, *, check: bool
) -> RaceResult:
    program = Program(options)
    reason = "ended by the program that began it"
    try:
        plan = program.plan(info)
        if tell is not None and plan.race.views:
            tell("; ".join(describe(plan.race.views)))
        follow_race(program, plan, pause, tell)
        reason = ""
    finally:
        program.close(reason if program.header is not None else "")
    result = result_of(analyse(program.session.snapshot()), program.header)
    if check and program.exit_code() != EXIT_FINE:
        raise LaneFailedError(result)
    return result
