"""What `import tfmon` offers to Python: races, their results, and the gate, without a screen."""

from tfmon.api.gating import diff
from tfmon.api.racing import race
from tfmon.api.result import LaneFailedError, LaneResult, RaceResult
from tfmon.errors import TfmonError
from tfmon.recordings.gate import Gate

__all__ = ["Gate", "LaneFailedError", "LaneResult", "RaceResult", "TfmonError", "diff", "race"]
