"""What runs inside a lane that is a user's own command: it watches the training, which the script drives.

A scenario's lane is a process that tfmon wrote: it calls each step. A script's lane is the user's process: it
starts, imports, trains and ends as it would without tfmon.

- **Getting in.** The lane's environment has the folder `site` first on PYTHONPATH, and a variable that names the
  inherited pipes (`tfmon.model.lane_pipes`). Python runs `site/sitecustomize.py` at its start. It removes its
  folder from `sys.path`, runs the script's own sitecustomize, and waits for imports: of TensorFlow and Keras, to
  watch them (`watching`), of PyTorch and JAX, to notice them, and of `tfmon`, so that `from tfmon import report`
  needs no installation. What tfmon imports is never a module of the script's folder.
  With `tfmon.watch` a process that runs already is the lane for a while: `watching.begin` watches what it has
  loaded and will load, and `watching.end` puts everything back.
- **Which process** (`process`). The first that trains. It takes a record lock on a file that the lane's processes
  inherit. The lock survives `exec`, is not passed on by `fork`, and ends with its process, so that the next one to
  train can become the lane. All other processes train unwatched; their CPU and memory count all the same.
- **Hooks** (`hooking`) replace methods of TensorFlow (`tf_hooks`, `tf_eager`) and Keras (`keras_watch`). They
  tell a `StepWatcher` (`steps`) of pulls and updates, and it tells where steps begin and end: from what was read
  and given for each (`sources`), and from which updates make one (`rounds`). What the lane is told of them is in
  `loop_report`. It follows one thread, and after its end
  the next one. It stands aside while Keras trains, which `keras_fit` follows. Steps that
  are all alike are only noted while they run, and told some hundred at a time (`bundle`).
- **Steps.** The script calls `begin_step` of the `lane` and `end_step` of its `meter`, through hooks or
  `tfmon.report`. What the lane does between them is `trainer.control.LaneControl`, which is also what the loop of
  a scenario does around its steps. Windows of the warm-up are sent, marked as such.
- **What is not a step.** During validation, callbacks at the end of an epoch and other work of the script, the
  window's clock is stopped; the time appears only in `Progressed`. A lane that trains no step in its slice is
  suspended after some seconds, so that others train, and goes on later (`lanes.scheduler`).
- **The end.** The monitor judges the exit code. `Stop`, and the end of the monitor, are a Ctrl+C in the main
  thread; `lanes.guard` ends what is left.
- **Signals** are the script's: none is caught here. The stacks of its threads are sent through the pipe.
- **Knobs** (`knobs`). The learning rate, stopping after the epoch under Keras, the script's
  pipeline (`pipeline`, `dataset_settings`), whose changes wait for its next epoch, and what the script offers with
  `report.knob`. They are reported as `KnobOffered`.
- **Levers** (`levers`). What the command line sets for any script, such as XLA, is applied as a library is loaded
  or a model compiled. Nothing else is changed.
- **Causes** (`causes`). What hooks saw of why a script is slow, told now and then: `retracing`, `epochs`,
  `input_causes` for its pipeline, `device_causes` for a GPU that is not used well.
"""
