"""What runs inside a lane that is a user's own command: it watches the training, which it does not drive.

A scenario's lane is a process that tfmon wrote: it reads what to train, and calls each step. A script's lane
is the user's process: it starts, imports, trains and ends as it would without tfmon. All that differs follows
from this.

- **Getting in.** The lane's environment has the folder `site` first on PYTHONPATH, and a variable that names
  the inherited pipes (`tfmon.model.lane_pipes`). Whatever starts Python there runs `site/sitecustomize.py`, which
  takes its folder off `sys.path` again, gives way to the script's own sitecustomize, and waits for two
  imports: of `keras`, to watch it (`keras_watch`), and of `tfmon`, so that `from tfmon import report` needs
  nothing installed. It imports nothing itself.
- **Which process.** The first that trains. It takes a record lock on a file that the lane's processes
  inherit: the lock survives `exec`, is not passed on by `fork`, and ends with its process, so that the next
  one to train is the lane then. Every other process trains unwatched, and its CPU and memory count all the
  same.
- **Steps.** The loop of a scenario asks for its next step; here the script says `begin_step` and `end_step`,
  from Keras or from `tfmon.report`. `lane.Lane` does between them what `trainer.loop.Loop` does around its
  steps, with the same parts: `Slices` (turns, pauses), `StepClock` (windows), `Reporter`, `Mailbox`, `Inbox`,
  `Capture`, `TraceWatch`. `meter` adds up the steps of a window, `asides` has those that are in none. It sends
  the same events, and heeds the same requests at step boundaries. Warm-up windows are sent, marked as such.
- **What is no step.** Validation, callbacks at the end of an epoch, whatever else the script does: the window
  that is under way stands still meanwhile, and its time counts nowhere but in `Progressed`. A lane that does
  not come to a step while it has the turn gives the turn back after some seconds (`lending`), and gets it again.
- **The end.** The monitor judges the exit code. `Stop` is a Ctrl+C in the main thread, as the script's author
  knows it; so is the end of the monitor, and `lanes.guard` sees to it that nothing is left.
- **Signals** are the script's: none is caught here. Where its threads stand it tells through the pipe (`stacks`).
- **Knobs.** Those the script has: the learning rate and stopping after the epoch under Keras, and what it
  offers with `report.knob`. They are told as `KnobOffered` when they are there.
"""
