"""The trainer: what runs in a lane's child process, and the API of scenario files.

A scenario file imports from here: `from tfmon.trainer import Claim, Knob, Scenario`. TensorFlow is imported late,
so this import is cheap. The standard library, NumPy and TensorFlow are all that is needed.
"""

from tfmon.model.knobs import Knob
from tfmon.model.race import Claim
from tfmon.trainer.scenario import Scenario, ScenarioError, runs_in_python

__all__ = ["Claim", "Knob", "Scenario", "ScenarioError", "runs_in_python"]
