"""What `import tfmon` offers to Python: races, their results, and the gate, without a screen."""

from tfmon.api.racing import race
from tfmon.api.result import LaneFailedError, LaneResult, RaceResult
from tfmon.errors import TfmonError

__all__ = ["LaneFailedError", "LaneResult", "RaceResult", "TfmonError", "race"]
