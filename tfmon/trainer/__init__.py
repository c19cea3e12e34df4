"""The trainer: the code of a lane's child process, and the API of scenario files.

A scenario file imports from here: `from tfmon.trainer import Claim, Knob, Scenario`. This is cheap, because
TensorFlow is imported late. The trainer needs only the standard library, NumPy and TensorFlow.
"""

from tfmon.model.knobs import Knob
from tfmon.model.race import Claim
from tfmon.trainer.scenario import Scenario, ScenarioError, runs_in_python

__all__ = ["Claim", "Knob", "Scenario", "ScenarioError", "runs_in_python"]
