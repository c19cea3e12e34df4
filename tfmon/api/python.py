"""The names that `import tfmon` offers."""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from tfmon.analysis.analysis import analyse
from tfmon.analysis.compare import compare_all
from tfmon.analysis.gate import MORE_MEMORY, SLOWER, Gate, judge
from tfmon.analysis.health import Concern
from tfmon.analysis.result import LaneResult, RaceResult
from tfmon.analysis.summarise import summarise
from tfmon.api.options import SHARE, Purpose, RaceOptions, SweepOptions
from tfmon.api.program import Program
from tfmon.api.run_base import Tell, alone, follow, teller
from tfmon.api.settings import settled
from tfmon.api.sweep_program import SweepProgram
from tfmon.api.sweep_result import CombinationResult, LaneFailedError, SweepResult, sweep_result_of
from tfmon.api.value_rules import PROGRESS, YES_OR_NO, Option, Options
from tfmon.api.watch import Watch, watch
from tfmon.catalog import ScenarioInfo
from tfmon.errors import EXIT_FINE, DeviceAbsentError, GpusBusyError, TfmonError, UsageError
from tfmon.model.folder_views import describe
from tfmon.recordings.library import find
from tfmon.recordings.results import read_race, read_races
from tfmon.reports.race_report import to_text

__all__ = [
    "CombinationResult", "Concern", "DeviceAbsentError", "Gate", "GpusBusyError", "LaneFailedError",
    "LaneResult", "RaceResult", "SweepResult", "TfmonError", "UsageError", "Watch", "diff", "race", "sweep",
    "watch",
]  # fmt: skip

ENDED = "ended by the program that began it"


WAIT = "Wait while another race or sweep that Python began is under way; False raises TfmonError."
SHOWN = "Whether to show the progress in a notebook or on a terminal, or a function that gets each line."


Chosen = TypeVar("Chosen", bound=Options)
Result = TypeVar("Result")
P = ParamSpec("P")


def with_arguments(
    options: Callable[P, Chosen], command: str
) -> Callable[[Callable[[Chosen], Result]], Callable[P, Result]]:
    """Return a decorator that gives a function the options as arguments."""

    def decorate(function: Callable[[Chosen], Result]) -> Callable[P, Result]:
        made = inspect.signature(options)
        known = {option.name: option for option in cast("type[Options]", options).declared()}

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            made.bind(*args, **kwargs)
            try:
                return function(settled(options(*args, **kwargs), command))
            except TfmonError as error:
                error.use_arguments()
                raise

        plain = [
            parameter.replace(annotation=parameter.empty, default=known[parameter.name].default)
            for parameter in made.parameters.values()
        ]
        vars(call)["__signature__"] = made.replace(parameters=plain, return_annotation=made.empty)
        doc = inspect.cleandoc(function.__doc__ or "")
        call.__doc__ = doc.replace(
            "Raises:", f"Args:\n{_describe([known[name] for name in made.parameters])}\n\nRaises:"
        )
        return call

    return decorate


def _describe(options: list[Option[Any, Any]]) -> str:
    names = {option.flag.partition("/")[0]: option.name for option in options}
    lines = []
    for option in options:
        help = " ".join(names.get(word, word) for word in option.help.split())
        unclear = option.default not in ((), "", None) and "Default:" not in help
        default = f" Default: {option.default!r}." if unclear else ""
        allowed = f" Takes {option.rule.allowed()}." if option.rule.name != "boolean" else ""
        text = f"{option.name}: {help}{allowed}{default}"
        lines.append(
            textwrap.fill(text, 110, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
        )
    return "\n".join(lines)


@dataclass(kw_only=True)
class RaceArguments(RaceOptions):
    """The arguments of `race`."""

    progress: Option[bool | Tell | None, bool | Tell] = Option(PROGRESS, True, SHOWN)
    check: Option[bool | None, bool] = Option(
        YES_OR_NO, True, "Raise LaneFailedError if a lane fails, or has a concern of fail_on."
    )
    wait: Option[bool | None, bool] = Option(YES_OR_NO, True, WAIT)


@dataclass(kw_only=True)
class SweepArguments(SweepOptions):
    """The arguments of `sweep`."""

    progress: Option[bool | Tell | None, bool | Tell] = Option(PROGRESS, True, SHOWN)
    wait: Option[bool | None, bool] = Option(YES_OR_NO, True, WAIT)


@with_arguments(RaceArguments, "race")
def race(arguments: RaceArguments) -> RaceResult:
    """Race a scenario without a screen, as `tfmon race --headless` does, and return the result.

    A race without an end lasts 30 s. No signal handler is set, so the call may run in any thread, and beside an
    event loop: `await asyncio.to_thread(tfmon.race, …)`. An exception, such as KeyboardInterrupt, first ends the
    lanes.

    Raises:
        UsageError: An argument is not possible.
        DeviceAbsentError: The GPU of a lane does not exist.
        GpusBusyError: Others use all suitable GPUs for longer than `wait_idle`.
        LaneFailedError: A lane failed, or has a concern of `fail_on`. `result` has the measurements.
    """
    with teller(arguments.progress) as tell, alone(arguments.wait, tell):
        return _race(arguments.unwatched(), arguments.info, tell, check=arguments.check)


def _race(
    options: RaceOptions, info: ScenarioInfo, tell: Callable[[str], None] | None, *, check: bool
) -> RaceResult:
    program = Program(options, Purpose(watched=False))
    reason = ENDED
    try:
        plan = program.plan(info)
        if tell is not None and plan.race.views:
            tell("; ".join(describe(plan.race.views)))
        follow(program, lambda: False, tell)  # only an exception stops it
        reason = ""
    finally:
        program.close(reason if program.header is not None else "")
    analysis = analyse(program.session.snapshot())
    result = summarise(analysis, program.header)
    result = replace(result, table=to_text(analysis, result))
    if check and (program.ending.unhealthy or program.ending.exit_code() != EXIT_FINE):
        raise LaneFailedError(result, program.ending.unhealthy)
    return result


@with_arguments(SweepArguments, "sweep")
def sweep(arguments: SweepArguments) -> SweepResult:
    """Measure all combinations of the values of some knobs, as `tfmon sweep --headless` does.

    Each combination is raced in turns against the baseline on the same device. No signal handler is set. An
    exception, such as KeyboardInterrupt, first ends the lanes. The file has the measurements.

    Raises:
        TfmonError: An argument is not possible.
    """
    with teller(arguments.progress) as tell, alone(arguments.wait, tell):
        program = SweepProgram(arguments)
        try:
            follow(program, lambda: False, tell)
        finally:
            program.close(ENDED)
    return sweep_result_of(program.ranking, program.file.path)


Race: TypeAlias = "RaceResult | str | os.PathLike[str]"
"""A result, a file, an id, `last`, or a folder."""


def diff(
    baseline: Race | Sequence[Race],
    run: Race | Sequence[Race],
    *,
    slower_than: float = 0.05,
    more_memory_than: float | None = None,
) -> Gate:
    """Return whether any lane of a run is slower than in the baseline, if that is known.

    Args:
        baseline: One or more races to compare with.
        run: The judged races, each raced beside one baseline.
        slower_than: A lane is slower if the throughput fell by more than this share.
        more_memory_than: Judge the memory instead, which may grow by this share.

    Raises:
        TfmonError: A race cannot be read, or is of another scenario.
    """
    limit, name = SHARE.argument("slower_than", slower_than), SLOWER
    if more_memory_than is not None:
        limit, name = SHARE.argument("more_memory_than", more_memory_than), MORE_MEMORY
    return judge(compare_all(_results(baseline, "baseline"), _results(run, "run")), limit, name)


def _results(races: Race | Sequence[Race], name: str) -> list[RaceResult]:
    if isinstance(races, RaceResult):
        return [replace(races, id=name)]
    if isinstance(races, str | os.PathLike):
        path = Path(os.fspath(races))
        if path.is_dir():
            return [result for result, _ in read_races(path)]
        return [read_race(path if path.is_file() else find(str(path)))[0]]
    if isinstance(races, Mapping) or not isinstance(races, Sequence) or not races:
        problem = f"{name}={races!r:.80} is not possible"
        raise UsageError(problem, "it is a result, a file, an id, a folder, or a list of these")
    return [result for race in races for result in _results(race, name)]
