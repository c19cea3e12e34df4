"""The names that `import tfmon` offers."""

from __future__ import annotations

import functools
import html
import inspect
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast

from tfmon import errors
from tfmon.analysis.analysis import analyse
from tfmon.analysis.compare import compare_all
from tfmon.analysis.gate import MORE_MEMORY, SLOWER, Gate, judge
from tfmon.analysis.health import Concern
from tfmon.analysis.result import Interval, LaneResult, RaceResult, pandas
from tfmon.analysis.summarise import summarise
from tfmon.analysis.sweep_ranking import Ranking
from tfmon.api.options import SHARE, Purpose, RaceOptions, SweepOptions
from tfmon.api.program import Program
from tfmon.api.run_base import Tell, alone, follow, teller
from tfmon.api.settings import settled
from tfmon.api.sweep_program import SweepProgram
from tfmon.api.value_rules import PROGRESS, YES_OR_NO, Option, Options
from tfmon.api.watch import Watch, watch
from tfmon.errors import DeviceAbsentError, GpusBusyError, TfmonError, UsageError
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.folder_views import describe
from tfmon.model.knobs import KnobValue
from tfmon.model.race import ScenarioInfo
from tfmon.recordings.library import find
from tfmon.recordings.results import read_race, read_races
from tfmon.reports import series_report
from tfmon.reports.race_report import to_text

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "CombinationResult", "Concern", "DeviceAbsentError", "Gate", "GpusBusyError", "LaneFailedError",
    "LaneResult", "RaceResult", "SweepResult", "TfmonError", "UsageError", "Watch", "diff", "race", "sweep",
    "watch",
]  # fmt: skip


class LaneFailedError(TfmonError):
    """A lane failed, is unhealthy, or has no device. `result` has the measurements."""

    def __init__(self, result: RaceResult, unhealthy: str = "") -> None:
        failed = [lane for lane in result.lanes if lane.state != "finished"]
        reasons = (f"{lane.name} {lane.state}: {lane.error or 'no reason is known'}" for lane in failed)
        super().__init__(unhealthy or "; ".join(reasons), "check=False returns the result all the same")
        self.result, self.unhealthy = result, unhealthy
        self.exit_code = errors.EXIT_UNHEALTHY if unhealthy else errors.EXIT_LANE_FAILED

    def __reduce__(self) -> tuple[type[LaneFailedError], tuple[RaceResult, str]]:
        return type(self), (self.result, self.unhealthy)


@dataclass(frozen=True, slots=True)
class CombinationResult:
    """One combination of a sweep. Unknown values are `None`."""

    settings: Mapping[str, KnobValue] = field(hash=False)
    """The swept knobs."""
    device: str
    """The kind of device: `cpu`, `gpu`."""
    ratio: float | None
    """Throughput divided by the baseline's on the same device."""
    ratio_ci95: Interval | None
    examples_per_s: float | None
    memory_bytes: float | None
    bottleneck: str | None
    place: str | None
    """The last place of the measurement."""
    state: str
    """`measured`, `stopped early`, `time limit`, `refused`, `failed`, `baseline`, or `not settled`."""
    reason: str | None
    """Why the combination was refused or failed."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """The combination in the JSON object."""


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult:
    """The result of a sweep. `print` shows the table."""

    scenario: str
    combinations: tuple[CombinationResult, ...]
    text: str
    """A text about the best combination."""
    file: Path | None
    """The file, which `resume` continues."""
    interrupted: str | None
    """Why the sweep is incomplete."""
    table: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """The JSON object that the command prints."""

    def best(self, device: str | None = None) -> CombinationResult:
        """Return the best combination of a device, which several kinds require; raises TfmonError."""
        measured = [combination for combination in self.combinations if combination.ratio is not None]
        known = [combination for combination in measured if device in (None, combination.device)]
        kinds = sorted({result.device for result in known})
        if not known:
            raise TfmonError("nothing was measured" + (f" on {device}" if device else ""))
        if len(kinds) > 1:
            raise TfmonError("each kind of device has a best one", f"name one: {', '.join(kinds)}")
        return known[0]

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame with a row for each combination, the best first.

        Raises: TfmonError without pandas.
        """
        rows = []
        for combination in self.combinations:
            ends = combination.ratio_ci95 or (None, None)
            figures = {name: value for name, value in combination.data.items() if name not in NO_COLUMN}
            rows.append({**combination.settings, **figures, "ratio_low": ends[0], "ratio_high": ends[1]})
        return pandas().DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        return dict(self.data)

    def __str__(self) -> str:
        return self.table

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table)}</pre>"

    def __repr__(self) -> str:
        return f"<SweepResult {self.scenario}: {self.text.splitlines()[0] if self.text else 'nothing is known'}>"


ENDED = "ended by the program that began it"
NO_COLUMN = ("settings", "ratio_ci95", "deaths", "missing", "learns_differently_by", "number")


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


def _race(options: RaceOptions, info: ScenarioInfo, tell: Tell | None, *, check: bool) -> RaceResult:
    program = Program(options, Purpose(watched=False))
    reason = ENDED
    try:
        plan = program.plan(info)
        if tell is not None and plan.race.views:
            tell("; ".join(describe(plan.race.views)))
        program.begin()
        follow(program, lambda: False, tell)  # only an exception stops it
        reason = ""
    finally:
        program.close(reason if program.header is not None else "")
    analysis = analyse(program.session.snapshot())
    result = summarise(analysis, program.header)
    result = replace(result, table=to_text(analysis, result))
    if check and (program.unhealthy or program.exit_code() != errors.EXIT_FINE):
        raise LaneFailedError(result, program.unhealthy)
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
            program.begin()
            follow(program, lambda: False, tell)
        finally:
            program.close(ENDED)
    return _sweep_result(program.ranking, program.file.path)


def _sweep_result(ranking: Ranking, file: Path | None) -> SweepResult:
    """Return the result of a sweep."""
    data = series_report.sweep_to_json(ranking, str(file or ""))
    same = [column.name for column in fields(CombinationResult) if column.name not in ("ratio_ci95", "data")]
    return SweepResult(
        scenario=data["scenario"],
        combinations=tuple(
            CombinationResult(
                **{name: row[name] for name in same},
                ratio_ci95=tuple(row["ratio_ci95"]) if row["ratio_ci95"] else None,
                data=row,
            )
            for row in data["combinations"]
        ),
        text="\n".join(data["text"]),
        file=file,
        interrupted=data["interrupted"],
        table=series_report.to_text(ranking, str(file or "")),
        data=data,
    )


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
