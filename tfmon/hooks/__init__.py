"""Runs inside a lane that is a user's command, and watches the training.

- `site/sitecustomize.py` waits for imports; `install` then patches the libraries.
- `script_process` selects the lane's process with a record lock, which survives `exec` but not `fork`.
- `step_machine` finds the steps; `loop_report` and `meter` report them.
- Between steps, the lane obeys the monitor through `trainer.lane_control`.
- `Stop`, and the end of the monitor, are a Ctrl+C in the main thread. tfmon catches no signal in the script.
"""
