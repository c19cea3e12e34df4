"""`tfmon.race`: a race without a screen, from Python."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tfmon.analysis.analysis import analyse
from tfmon.api.progress import teller
from tfmon.api.result import LaneFailedError, RaceResult, result_of
from tfmon.api.turnstile import alone
from tfmon.catalog import ScenarioInfo, command_scenario, find_scenario
from tfmon.errors import EXIT_FINE, UsageError
from tfmon.model.knobs import KnobValue, show
from tfmon.model.race import MARGIN, MODES, TURNS
from tfmon.model.views import describe
from tfmon.runner.headless import follow_race, pause
from tfmon.runner.planner import LEAST_CI, LEAST_MARGIN, RaceOptions, interpreter, unwatched, with_fresh
from tfmon.runner.program import Program
from tfmon.runner.settings import LONGEST_S, LONGEST_WAIT_MIN, resolve

LEAST_SLICE_S, LONGEST_SLICE_S = 0.2, 60.0


def race(
    scenario: str | os.PathLike[str] | None = None,
    *,
    lanes: Sequence[str] = (),
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
        lanes: Specs of the lanes, such as `["cpu", "gpu:0,batch_size=256"]`; none for the default lanes.
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
    words = tuple(str(word) for word in command)
    info = _info(scenario, words)
    mode = mode or _mode(str(resolve("mode").value))
    options = RaceOptions(
        lanes=tuple(lanes),
        settings=tuple(f"{name}={show(value)}" for name, value in (settings or {}).items()),
        python=interpreter(os.fspath(python) if python is not None else str(resolve("python").value), words),
        seconds=span("seconds", seconds, 0, LONGEST_S),
        steps=steps,
        mode=mode,
        slice_s=span("slice_s", slice_s, LEAST_SLICE_S, LONGEST_SLICE_S) or float(str(resolve("slice").value)),
        until_ci=share("until_ci", until_ci, LEAST_CI),
        margin=share("margin", margin, LEAST_MARGIN) or MARGIN,
        record=record is not False,
        record_file=None if isinstance(record, bool) else Path(record),
        wait_idle_s=None if wait_idle is None else 60 * wait_idle,
        in_place=in_place or None,
    )
    _check(options, words, fresh)
    with teller(progress) as tell, alone(wait, tell):
        return _race(with_fresh(unwatched(options, info), fresh), info, tell, check=check)


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


def _info(scenario: str | os.PathLike[str] | None, command: tuple[str, ...]) -> ScenarioInfo:
    if command and scenario is not None:
        raise UsageError("race a scenario or a command: not both", "leave one of them out")
    if command:
        return command_scenario(command)
    return find_scenario(os.fspath(scenario) if scenario is not None else str(resolve("scenario").value))


def _mode(word: str) -> Literal["turns", "concurrent"]:
    return "turns" if word == TURNS else "concurrent"


def _check(options: RaceOptions, command: tuple[str, ...], fresh: bool | None) -> None:
    """Raise UsageError for options that exclude each other."""
    if options.mode not in MODES:
        raise UsageError(f"mode {options.mode!r} is not possible", f"it is {' or '.join(MODES)}")
    if options.wait_idle_s is not None and not 0 <= options.wait_idle_s <= 60 * LONGEST_WAIT_MIN:
        minutes = options.wait_idle_s / 60
        raise UsageError(f"wait_idle={minutes:g} is not possible", f"it is minutes, from 0 to {LONGEST_WAIT_MIN}")
    if options.steps is not None and options.steps < 1:
        raise UsageError(f"steps={options.steps} is not possible", "it is a whole number from 1")
    if options.steps is not None and (command or options.seconds is not None):
        raise UsageError("steps excludes seconds and command", "leave one of them out")
    if options.mode != TURNS and (fresh or options.until_ci is not None):
        raise UsageError("fresh and until_ci need the mode turns", "a contended ratio is not that of each lane")
    if fresh and command:
        raise UsageError("fresh is for scenarios; a script cannot be restarted while it runs", "leave it out")


def span(name: str, value: float | None, least: float, most: float) -> float | None:
    """Return a time in seconds; raises UsageError for one that is not possible."""
    if value is not None and not (value > 0 and least <= value <= most):
        raise UsageError(f"{name}={value} is not possible", f"it is a time in seconds, up to {most:g}")
    return value


def share(name: str, value: float | None, least: float) -> float | None:
    """Return a share; raises UsageError for one that is not possible."""
    if value is not None and (not math.isfinite(value) or not least <= value < 1):
        raise UsageError(f"{name}={value} is not possible", f"it is a share from {least:g} to 1, such as 0.05")
    return value
