"""`tfmon.diff`: the gate of `tfmon diff --slower-than`, from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tfmon.api.arguments import named_as_arguments, refuse, share
from tfmon.api.result import RaceResult
from tfmon.recordings.compare import compare_all
from tfmon.recordings.figures import RaceFigures, read_json, read_race, read_races
from tfmon.recordings.gate import Gate, judge
from tfmon.recordings.library import find

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
