"""The result of a race or sweep as typed values, each one of the JSON object that the command prints."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.causes import Cause
from tfmon.analysis.health import Concern
from tfmon.api import rules
from tfmon.errors import EXIT_LANE_FAILED, EXIT_UNHEALTHY, TfmonError
from tfmon.model.knobs import KnobValue
from tfmon.recordings.header import Header
from tfmon.reports.race import to_text
from tfmon.reports.race_json import to_json

if TYPE_CHECKING:
    from pandas import DataFrame

    from tfmon.analysis.sweep import Ranking

Interval: TypeAlias = tuple[float, float]
"""The ends of a 95 % interval."""
State: TypeAlias = Literal["finished", "failed", "absent"]


@dataclass(frozen=True, slots=True)
class LaneResult:
    """One lane of a race. What is not known is None, and named in `missing` with the reason."""

    id: str
    """One letter, which never changes."""
    name: str
    """Its device, and every setting in which the lanes differed at the end."""
    device: str
    """`cpu`, `gpu:N`, or for several such as `gpu:0+1` or `2xcpu`."""
    state: State
    error: str | None
    """Why it failed."""
    knobs: Mapping[str, KnobValue] = field(hash=False)
    """Every knob with its value at the end."""
    steps: int
    examples_per_s: float | None
    examples_per_s_ci95: Interval | None
    step_ms: Mapping[str, float | None] = field(hash=False)
    """Time of a step: `p50`, `p95`, `p99`."""
    last_loss: float | None
    bottleneck: str | None
    """What limits it, such as `input-bound`."""
    bottleneck_text: str | None
    concerns: tuple[Concern, ...]
    """What is wrong with its training, the worst first."""
    causes: tuple[Cause, ...]
    """Why a script is slow, as it was observed, with the line and the code that mends it; the costliest first."""
    missing: Mapping[str, str] = field(hash=False)
    """Which figures are not known, by their name in `data`, and why."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """All that the JSON object has of this lane."""


class _Printed:
    """What results have in common: the table and the JSON object that the command prints."""

    __slots__ = ()
    table: str
    data: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dict(self.data)

    def __str__(self) -> str:
        return self.table

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table)}</pre>"


@dataclass(frozen=True, slots=True, repr=False)
class RaceResult(_Printed):
    """The result of a race. `print` shows the table of the command."""

    scenario: str
    mode: str
    seconds: float | None
    """How long the lanes raced."""
    lanes: tuple[LaneResult, ...]
    winner: LaneResult | None
    """The faster lane; None where the race does not tell."""
    verdict: str
    """Who is faster, in words."""
    ratio: float | None
    """Throughput of the first in the ranking over that of the last."""
    ratio_ci95: Interval | None
    recording: Path | None
    """The file of the recording; `tfmon replay` shows it."""
    table: str = field(repr=False)
    """The table that the command prints."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """The JSON object that the command prints."""

    def lane(self, word: str) -> LaneResult:
        """Return the one lane with this id, name or device; raises TfmonError for none, or more than one."""
        for part in ("id", "name", "device"):
            result = [lane for lane in self.lanes if getattr(lane, part) == word]
            if len(result) == 1:
                return result[0]
        known = ", ".join(f"{lane.id} ({lane.name})" for lane in self.lanes)
        raise TfmonError(f"{word!r} is not one lane of this race", f"its lanes are {known}")

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the JSON object into a new file, which `tfmon diff` reads; return its path.

        Raises:
            UsageError: it is not a path.
            TfmonError: the file is there and not to be replaced (`force`), or it cannot be written.
        """
        target = Path(rules.read(rules.RULES, path=path, force=force)["path"])
        try:
            with target.open("w" if force else "x", encoding="utf-8") as file:
                json.dump(self.data, file, indent=2, allow_nan=False)
                file.write("\n")
        except FileExistsError:
            raise TfmonError(f"{target} is there already", "name another file, or pass force=True") from None
        except OSError as error:
            raise TfmonError(f"{target} cannot be written: {error.strerror or error}") from None
        return target

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame: a row for each lane by its id, a column for each figure.

        Columns of nested figures are joined by dots, such as `step_ms.p50`.

        Raises: TfmonError where pandas is not installed.
        """
        pandas = _pandas()
        rows = [
            {name: value for name, value in lane.data.items() if name not in ("missing", "discarded")}
            for lane in self.lanes
        ]
        return pandas.json_normalize(rows).set_index("id")

    def __repr__(self) -> str:
        return f"<RaceResult {self.scenario}: {self.verdict}>"


class LaneFailedError(TfmonError):
    """A lane failed, is not healthy, or its device is not there; `result` has what was measured all the same."""

    def __init__(self, result: RaceResult, unhealthy: str = "") -> None:
        failed = [lane for lane in result.lanes if lane.state != "finished"]
        reasons = (f"{lane.name} {lane.state}: {lane.error or 'no reason is known'}" for lane in failed)
        super().__init__(unhealthy or "; ".join(reasons), "check=False returns the result all the same")
        self.result, self.unhealthy = result, unhealthy
        self.exit_code = EXIT_UNHEALTHY if unhealthy else EXIT_LANE_FAILED

    def __reduce__(self) -> tuple[type[LaneFailedError], tuple[RaceResult, str]]:
        return type(self), (self.result, self.unhealthy)


def _pandas() -> Any:  # noqa: ANN401 - a module
    try:
        import pandas
    except ImportError:
        raise TfmonError("to_frame needs pandas, which is not installed", "pip install pandas") from None
    return pandas


def result_of(analysis: Analysis, header: Header | None = None) -> RaceResult:
    """Return the result of a race that is over."""
    data = to_json(analysis, header)
    lanes = tuple(_lane(lane) for lane in data["lanes"])
    verdict = data["verdict"]
    return RaceResult(
        scenario=data["scenario"],
        mode=data["mode"],
        seconds=data["seconds"],
        lanes=lanes,
        winner=next((lane for lane in lanes if lane.id == verdict["winner_id"]), None),
        verdict=verdict["text"],
        ratio=verdict["ratio"],
        ratio_ci95=_interval(verdict["ratio_ci95"]),
        recording=Path(data["recording"]) if data["recording"] else None,
        table=to_text(analysis),
        data=data,
    )


def _lane(data: Mapping[str, Any]) -> LaneResult:
    same = ("id", "name", "device", "state", "error", "knobs", "steps", "examples_per_s", "step_ms", "bottleneck")
    return LaneResult(
        **{name: data[name] for name in (*same, "bottleneck_text", "missing")},
        examples_per_s_ci95=_interval(data["examples_per_s_ci95"]),
        last_loss=data["loss"]["last"],
        concerns=tuple(Concern(**one) for one in data["concerns"]),
        causes=tuple(Cause(**{**one, "code": tuple(one["code"])}) for one in data["causes"]),
        data=data,
    )


def _interval(ends: list[float] | None) -> Interval | None:
    return None if ends is None else (ends[0], ends[1])


@dataclass(frozen=True, slots=True)
class CombinationResult:
    """One combination of a sweep. What is not known is None."""

    settings: Mapping[str, KnobValue] = field(hash=False)
    """The knobs that were swept."""
    device: str
    """The kind of device: `cpu`, `gpu`."""
    ratio: float | None
    """Its throughput over that of the baseline on the same device."""
    ratio_ci95: Interval | None
    examples_per_s: float | None
    memory_bytes: float | None
    bottleneck: str | None
    place: str | None
    """Where it was measured last."""
    state: str
    """`measured`, `stopped early`, `time limit`, `refused`, `failed`, `baseline`, or `not settled`."""
    reason: str | None
    """Why it was refused, or failed."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """All that the JSON object has of it."""


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult(_Printed):
    """The result of a sweep. `print` shows the table of the command."""

    scenario: str
    combinations: tuple[CombinationResult, ...]
    """The best first."""
    text: str
    """Which is the best, in words."""
    file: Path | None
    """Where it is kept; `resume` goes on with it."""
    interrupted: str | None
    """Why it ended before all was measured."""
    table: str = field(repr=False)
    """The table that the command prints."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """The JSON object that the command prints."""

    def best(self, device: str | None = None) -> CombinationResult:
        """Return the best combination, on a kind of device if there are several; raises TfmonError for none."""
        known = [one for one in self.combinations if one.ratio is not None and device in (None, one.device)]
        kinds = sorted({one.device for one in known})
        if not known:
            raise TfmonError("nothing was measured" + (f" on {device}" if device else ""))
        if len(kinds) > 1:
            raise TfmonError("each kind of device has a best one", f"name one: {', '.join(kinds)}")
        return known[0]

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame: a row for each combination, the best first, and a column for each knob.

        Raises: TfmonError where pandas is not installed.
        """
        pandas = _pandas()
        rows = []
        for one in self.combinations:
            ends = one.ratio_ci95 or (None, None)
            figures = {
                name: value
                for name, value in one.data.items()
                if name not in ("settings", "ratio_ci95", "deaths", "missing", "learns_differently_by", "number")
            }
            rows.append({**one.settings, **figures, "ratio_low": ends[0], "ratio_high": ends[1]})
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        return f"<SweepResult {self.scenario}: {self.text.splitlines()[0] if self.text else 'nothing is known'}>"


def sweep_result_of(ranking: Ranking, file: Path | None) -> SweepResult:
    """Return the result of a sweep, which is kept in a file."""
    from tfmon.reports.series import to_text as sweep_to_text
    from tfmon.reports.series_json import sweep_to_json

    data = sweep_to_json(ranking, str(file or ""))
    same = [one.name for one in fields(CombinationResult) if one.name not in ("ratio_ci95", "data")]
    return SweepResult(
        scenario=data["scenario"],
        combinations=tuple(
            CombinationResult(
                **{name: one[name] for name in same},
                ratio_ci95=tuple(one["ratio_ci95"]) if one["ratio_ci95"] else None,
                data=one,
            )
            for one in data["combinations"]
        ),
        text="\n".join(data["text"]),
        file=file,
        interrupted=data["interrupted"],
        table=sweep_to_text(ranking, str(file or "")),
        data=data,
    )
