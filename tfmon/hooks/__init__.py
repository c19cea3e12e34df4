"""Runs inside a lane that is a user's own command and watches its training.

- `site/sitecustomize.py` is first on the lane's PYTHONPATH. It waits for imports of TensorFlow, Keras, PyTorch,
JAX
  and `tfmon`; `install` then patches the library through `patches`.
- `process` selects the process that is the lane with a record lock, which survives `exec` and is not inherited by
  `fork`. Other processes train unwatched.
- `step_machine` finds the steps from pulls, gradients and updates; `loop_report` reports them to `meter`.
- Between steps the lane runs `trainer.control.LaneControl`. Outside steps the window's clock is stopped.
- `Stop`, and the end of the monitor, are a Ctrl+C in the main thread. tfmon catches no signal in the script.
"""
