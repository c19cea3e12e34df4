"""What runs inside a lane's child process: the Scenario API, the training loop, the input pipeline, the reports.

Scenario files import from here: `from tfmon.trainer import Knob, Scenario`. TensorFlow is imported late, so
that this import alone is cheap. Nothing but the standard library, NumPy and TensorFlow is needed.
"""

from tfmon.analysis.claims import Claim
from tfmon.model.knobs import Knob
from tfmon.trainer.scenario import Scenario, runs_in_python

__all__ = ["Claim", "Knob", "Scenario", "runs_in_python"]
