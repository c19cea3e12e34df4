"""What `import tfmon` offers to Python: races, sweeps, their results, and the gate, without a screen."""

from tfmon.api.racing import race
from tfmon.api.result import LaneFailedError, LaneResult, RaceResult, diff
from tfmon.api.sweeping import CombinationResult, SweepResult, sweep
from tfmon.errors import DeviceAbsentError, GpusBusyError, TfmonError, UsageError
from tfmon.recordings.gate import Gate

__all__ = [
    "CombinationResult", "DeviceAbsentError", "Gate", "GpusBusyError", "LaneFailedError", "LaneResult",
    "RaceResult", "SweepResult", "TfmonError", "UsageError", "diff", "race", "sweep",
]  # fmt: skip
