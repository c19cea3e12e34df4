"""The result of a race as typed values, each one of the JSON object that the command prints; and the gate."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tfmon.analysis.analysis import Analysis
from tfmon.api.arguments import named_as_arguments, refuse, share
from tfmon.errors import EXIT_LANE_FAILED, TfmonError
from tfmon.model.knobs import KnobValue
from tfmon.recordings.compare import compare_all
from tfmon.recordings.figures import RaceFigures, read_json, read_race, read_races
from tfmon.recordings.gate import Gate, judge
from tfmon.recordings.header import Header
from tfmon.recordings.library import find
from tfmon.reports.race import to_text
from tfmon.reports.race_json import to_json

if TYPE_CHECKING:
    from pandas import DataFrame

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
    missing: Mapping[str, str] = field(hash=False)
    """Which figures are not known, by their name in `data`, and why."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """All that the JSON object has of this lane."""


@dataclass(frozen=True, slots=True, repr=False)
class RaceResult:
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
        """Return the one lane with this id, name or device.

        Raises:
            TfmonError: there is none, or more than one.
        """
        for part in ("id", "name", "device"):
            found = [lane for lane in self.lanes if getattr(lane, part) == word]
            if len(found) == 1:
                return found[0]
        known = ", ".join(f"{lane.id} ({lane.name})" for lane in self.lanes)
        raise TfmonError(f"{word!r} is not one lane of this race", f"its lanes are {known}")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        return dict(self.data)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the JSON object into a new file, which `tfmon diff` reads; return its path.

        Raises:
            TfmonError: the file is there and not to be replaced (`force`), or it cannot be written.
        """
        target = Path(path)
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

        Raises:
            TfmonError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise TfmonError("to_frame needs pandas, which is not installed", "pip install pandas") from None
        rows = [
            {name: value for name, value in lane.data.items() if name not in ("missing", "discarded")}
            for lane in self.lanes
        ]
        return pandas.json_normalize(rows).set_index("id")

    def __repr__(self) -> str:
        return f"<RaceResult {self.scenario}: {self.verdict}>"

    def __str__(self) -> str:
        return self.table

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook."""
        return f"<pre>{html.escape(self.table)}</pre>"


class LaneFailedError(TfmonError):
    """A lane failed, or its device is not there; `result` has what was measured all the same."""

    exit_code = EXIT_LANE_FAILED

    def __init__(self, result: RaceResult) -> None:
        failed = [lane for lane in result.lanes if lane.state != "finished"]
        super().__init__(
            "; ".join(f"{lane.name} {lane.state}: {lane.error or 'no reason is known'}" for lane in failed),
            "check=False returns the result all the same",
        )
        self.result = result

    def __reduce__(self) -> tuple[type[LaneFailedError], tuple[RaceResult]]:
        return type(self), (self.result,)


def result_of(found: Analysis, header: Header | None = None) -> RaceResult:
    """Return the result of a race that is over."""
    data = to_json(found, header)
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
        table=to_text(found),
        data=data,
    )


def _lane(data: Mapping[str, Any]) -> LaneResult:
    same = ("id", "name", "device", "state", "error", "knobs", "steps", "examples_per_s", "step_ms", "bottleneck")
    return LaneResult(
        **{name: data[name] for name in (*same, "bottleneck_text", "missing")},
        examples_per_s_ci95=_interval(data["examples_per_s_ci95"]),
        last_loss=data["loss"]["last"],
        data=data,
    )


def _interval(ends: list[float] | None) -> Interval | None:
    return None if ends is None else (ends[0], ends[1])


# ---------------- the gate of `tfmon diff --slower-than`


LEAST_LIMIT = 0.001
Race: TypeAlias = "RaceResult | str | os.PathLike[str]"
"""A result, the file of a recording or of a JSON result, an id, `last`; or a folder of such files."""


def diff(baseline: Race | Sequence[Race], run: Race | Sequence[Race], *, slower_than: float = 0.05) -> Gate:
    """Return whether any lane of a run is slower than in the baseline, or that this cannot be told.

    Args:
        baseline: The race to compare with, or several, each of which was raced beside one run.
        run: The race that is judged, or as many.
        slower_than: A lane is slower when its throughput fell by more than this share.

    Raises:
        TfmonError: one of them cannot be read, or is of another scenario.
    """
    with named_as_arguments():
        limit = share("slower_than", slower_than, LEAST_LIMIT)
        if limit is None:
            refuse("slower_than", slower_than, "it is a share, such as 0.05")
        return judge(compare_all(_figures(baseline, "baseline"), _figures(run, "run")), limit)


def _figures(races: Race | Sequence[Race], name: str) -> list[RaceFigures]:
    if isinstance(races, RaceResult):
        return [read_json(races.to_json(), name, f"the {name}")]
    if isinstance(races, str | os.PathLike):
        path = Path(os.fspath(races))
        if path.is_dir():
            return [figures for figures, _ in read_races(path)]
        return [read_race(path if path.is_file() else find(str(path)))[0]]
    if isinstance(races, Mapping) or not isinstance(races, Sequence) or not races:
        refuse(name, races, "it is a result, a file, an id, a folder, or a list of these")
    return [figures for race in races for figures in _figures(race, name)]
