"""Runs inside a lane that is a user's own command and watches its training. The script drives the training.

- **Start.** The lane's PYTHONPATH starts with the folder `site`, and a variable names the inherited pipes
  (`tfmon.system.lane_pipes`). `site/sitecustomize.py` removes its folder from `sys.path`, runs the script's own
  sitecustomize, and waits for imports of TensorFlow, Keras, PyTorch, JAX and `tfmon`. With `tfmon.watch`, a
  running process is the lane from `install.begin` to `install.end`.
- **Process** (`process`) keeps the state of tfmon in a process. The first process that trains is the lane. It
  takes a record lock on an inherited file. The lock survives `exec`, is not passed on by `fork`, and ends with
  its process. Other processes train unwatched, but their CPU and memory count.
- **Hooks** replace methods through the registry `patches`, when `install` sees a loaded library. One module
  patches each thing that is observed: `tf_iterators` (pulls of batches), `tf_functions` (calls of a tf.function),
  `tf_eager` (tapes, updates and assignments), `pipeline` (datasets), `keras_calls` (methods of a model),
  `callbacks`, `retracing`. `keras_fit` follows a call of `fit`, and `optimizers` reads what optimizers count.
- **Steps.** Hooks report pulls, gradients and updates to the `StepMachine` (`step_machine`, with its table of
  states). It finds the steps with `sources` (iterators), `counts` (examples) and `rounds` (several optimizers),
  and reports them with `loop_report` to the `meter`. `bundle` collects steps that are alike.
- **Between steps** the lane runs `trainer.control.LaneControl`, as the loop of a scenario does.
- **Outside steps** (validation, callbacks, other work) the window's clock is stopped. The slice lasts until the
  next step ends (`lanes.scheduler`).
- **End.** `Stop`, and the end of the monitor, are a Ctrl+C in the main thread; `lanes.guard` ends the rest.
  tfmon catches no signal in the script.
- **Knobs** (`knobs`, `pipeline`, `dataset_settings`) change while the script runs. **Levers** (`levers`) apply
  when a library is loaded or a model compiled.
- **Causes** (`causes`) explain why a script is slow: `retracing`, `epochs`, `input_causes`, `device_causes`.
"""
