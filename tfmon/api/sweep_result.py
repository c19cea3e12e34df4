"""The error of a failed race, and the result of a sweep."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.analysis.result import Interval, RaceResult, pandas
from tfmon.errors import EXIT_LANE_FAILED, EXIT_UNHEALTHY, TfmonError
from tfmon.model.knobs import KnobValue

if TYPE_CHECKING:
    from pandas import DataFrame

    from tfmon.analysis.sweep_ranking import Ranking


class LaneFailedError(TfmonError):
    """A lane failed, is unhealthy, or has no device. `result` has the measurements."""

    def __init__(self, result: RaceResult, unhealthy: str = "") -> None:
        failed = [lane for lane in result.lanes if lane.state != "finished"]
        reasons = (f"{lane.name} {lane.state}: {lane.error or 'no reason is known'}" for lane in failed)
        super().__init__(unhealthy or "; ".join(reasons), "check=False returns the result all the same")
        self.result, self.unhealthy = result, unhealthy
        self.exit_code = EXIT_UNHEALTHY if unhealthy else EXIT_LANE_FAILED

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
        known = [
            combination
            for combination in self.combinations
            if combination.ratio is not None and device in (None, combination.device)
        ]
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
            figures = {
                name: value
                for name, value in combination.data.items()
                if name not in ("settings", "ratio_ci95", "deaths", "missing", "learns_differently_by", "number")
            }
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


def sweep_result_of(ranking: Ranking, file: Path | None) -> SweepResult:
    """Return the result of a sweep."""
    from tfmon.reports.series_report import sweep_to_json
    from tfmon.reports.series_report import to_text as sweep_to_text

    data = sweep_to_json(ranking, str(file or ""))
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
        table=sweep_to_text(ranking, str(file or "")),
        data=data,
    )
