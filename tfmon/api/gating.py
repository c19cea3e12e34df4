"""`tfmon.diff`: the gate of `tfmon diff --slower-than`, from Python."""

from __future__ import annotations

import os
from pathlib import Path

from tfmon.api.result import RaceResult
from tfmon.errors import UsageError
from tfmon.recordings.compare import Side, compare, open_side
from tfmon.recordings.gate import Gate, judge
from tfmon.recordings.library import find
from tfmon.recordings.results import side_of_json


def diff(
    baseline: RaceResult | str | os.PathLike[str],
    run: RaceResult | str | os.PathLike[str],
    *,
    slower_than: float = 0.05,
) -> Gate:
    """Return whether any lane of a run is slower than in the baseline, or that this cannot be told.

    Args:
        baseline: The race to compare with: a result, the file of a recording or of a JSON result, an id, `last`.
        run: The race that is judged.
        slower_than: A lane is slower when its throughput fell by more than this share.

    Raises:
        TfmonError: one of them cannot be read, or is of another scenario.
    """
    if not 0 < slower_than < 1:
        raise UsageError(f"slower_than={slower_than} is not possible", "it is a share from 0 to 1, such as 0.05")
    return judge(compare(_side(baseline, "baseline"), _side(run, "run")), slower_than)


def _side(race: RaceResult | str | os.PathLike[str], name: str) -> Side:
    if isinstance(race, RaceResult):
        return side_of_json(race.to_json(), name, f"the {name}")
    word = os.fspath(race)
    return open_side(Path(word) if Path(word).is_file() else find(word))[0]
