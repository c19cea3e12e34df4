"""Runs inside a lane that is a user's own command and watches its training. The script drives the training.

- **Start.** The lane's PYTHONPATH starts with the folder `site`, and a variable names the inherited pipes
  (`tfmon.model.lane_pipes`). `site/sitecustomize.py` removes its folder from `sys.path`, runs the script's own
  sitecustomize, and waits for imports of TensorFlow, Keras, PyTorch, JAX and `tfmon`. With `tfmon.watch`, a
  running process is the lane from `watching.begin` to `watching.end`.
- **Process** (`process`). The first process that trains is the lane. It takes a record lock on an inherited file.
  The lock survives `exec`, is not passed on by `fork`, and ends with its process. Other processes train
  unwatched, but their CPU and memory count.
- **Hooks** (`hooking`) replace methods of TensorFlow (`tf_hooks`, `tf_eager`) and Keras (`keras_watch`). They
  report pulls and updates to a `StepWatcher` (`steps`), which finds the steps with `sources` and `rounds` and
  reports them with `loop_report`. `keras_fit` follows Keras instead. `bundle` collects steps that are alike.
- **Between steps** the lane runs `trainer.control.LaneControl`, as the loop of a scenario does.
- **Outside steps** (validation, callbacks, other work) the window's clock is stopped. A lane without a step in its
  slice is suspended after some seconds (`lanes.scheduler`).
- **End.** `Stop`, and the end of the monitor, are a Ctrl+C in the main thread; `lanes.guard` ends what is left.
  tfmon catches no signal in the script.
- **Knobs** (`knobs`, `pipeline`, `dataset_settings`) change while the script runs. **Levers** (`levers`) apply
  when a library is loaded or a model compiled.
- **Causes** (`causes`) explain why a script is slow: `retracing`, `epochs`, `input_causes`, `device_causes`.
"""
