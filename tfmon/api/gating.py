"""`tfmon.diff`: the gate of `tfmon diff --slower-than`, from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from tfmon.api.result import RaceResult
from tfmon.errors import UsageError
from tfmon.recordings.compare import compare_all
from tfmon.recordings.figures import RaceFigures, read_json, read_race, read_races
from tfmon.recordings.gate import Gate, judge
from tfmon.recordings.library import find

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
    if not 0 < slower_than < 1:
        raise UsageError(f"slower_than={slower_than} is not possible", "it is a share from 0 to 1, such as 0.05")
    return judge(compare_all(_figures(baseline, "baseline"), _figures(run, "run")), slower_than)


def _figures(races: Race | Sequence[Race], name: str) -> list[RaceFigures]:
    if isinstance(races, RaceResult):
        return [read_json(races.to_json(), name, f"the {name}")]
    if isinstance(races, str | os.PathLike):
        path = Path(os.fspath(races))
        if path.is_dir():
            return [figures for figures, _ in read_races(path)]
        return [read_race(path if path.is_file() else find(str(path)))[0]]
    return [figures for race in races for figures in _figures(race, name)]
