"""The code of a lane's child process, and the API of scenario files. TensorFlow is imported late."""

from tfmon.model.knobs import Knob
from tfmon.model.race import Claim
from tfmon.trainer.scenario import Scenario, ScenarioError, runs_in_python

__all__ = ["Claim", "Knob", "Scenario", "ScenarioError", "runs_in_python"]
