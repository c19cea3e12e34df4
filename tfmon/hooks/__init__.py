"""Runs inside a lane that is a user's own command and watches its training.

- `site/sitecustomize.py` waits for imports; `install` then patches the library through `patches`.
- `process` selects the process that is the lane with a record lock, which survives `exec` but not `fork`.
- `step_machine` finds the steps; `loop_report` reports them to `meter`.
- Between steps the lane runs `trainer.control.LaneControl`. Outside steps the window's clock is stopped.
- `Stop`, and the end of the monitor, are a Ctrl+C in the main thread. tfmon catches no signal in the script.
"""
