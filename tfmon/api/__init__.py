"""What `import tfmon` offers to Python: races, sweeps, their results, and the gate, without a screen."""

from tfmon.api.gating import diff
from tfmon.api.racing import race
from tfmon.api.result import LaneFailedError, LaneResult, RaceResult
from tfmon.api.sweeping import CombinationResult, SweepResult, sweep
from tfmon.errors import TfmonError
from tfmon.recordings.gate import Gate

__all__ = [
    "CombinationResult", "Gate", "LaneFailedError", "LaneResult", "RaceResult", "SweepResult", "TfmonError",
    "diff", "race", "sweep",
]  # fmt: skip
