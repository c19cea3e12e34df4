"""`tfmon crossover`, `tune` and `sweep`: series of measurements."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from tfmon.api.options import Purpose, RaceOptions, SweepOptions
from tfmon.api.settings import ScreenOptions
from tfmon.api.value_rules import number
from tfmon.cli import flags
from tfmon.errors import UsageError

if TYPE_CHECKING:
    from tfmon.api.run_base import Run
    from tfmon.model.series import SeriesState
    from tfmon.model.spec import LaneSpec

_POSITIVE = number("number", "a number", 0.0, above=True)


@click.command
@click.argument("scenario")
@click.option(
    "--knob",
    default="batch_size",
    show_default=True,
    help="The knob to vary: one of the scenario that is a number.",
)
@click.option("--from", "low", type=_POSITIVE, help="Lowest value of the knob.")
@click.option("--to", "high", type=_POSITIVE, help="Highest value of the knob. Default: 4096.")
@flags.takes(RaceOptions, "crossover")
@flags.as_json
def crossover(chosen: RaceOptions, knob: str, low: float | None, high: float | None, as_json: bool) -> None:
    """Find the value of a knob at which one lane of SCENARIO overtakes the other.

    Two lanes race in slices at every power of two in the knob's range, and longer where the lead changes. By
    default they are the CPU and the idlest GPU; without a GPU, two variants on the CPU. Ctrl+C ends the
    measurement and prints what is known by then.

    \b
    For example:
      tfmon crossover small-dense
      tfmon crossover large-dense --from 16 --to 1024 --lane cpu --lane gpu
    """
    from tfmon.analysis.crossover_curve import plan_crossover
    from tfmon.errors import ExperimentError

    info = chosen.info
    if len(chosen.lanes) > 2:
        text = f"a crossover compares two lanes, and {len(chosen.lanes)} are named"
        raise UsageError(text, "name two by --lane")

    def planned(lanes: Sequence[LaneSpec]) -> SeriesState:
        try:
            return plan_crossover(info.knobs, lanes, knob, (low, high), info.examples)
        except ExperimentError as error:
            raise UsageError(str(error), f"tfmon show {info.name} lists the knobs") from error

    from tfmon.api.race_programs import SeriesProgram
    from tfmon.cli.attach import prepared, run_here

    make = partial(SeriesProgram, chosen, Purpose(varied_knob=knob), planned)
    run_here(prepared(make, as_json=as_json), as_json=as_json)


@click.command(cls=flags.TakesCommand)
@click.argument("scenario", required=False)
@flags.takes(RaceOptions, "tune")
@flags.detach
@flags.as_json
def tune(chosen: RaceOptions, as_json: bool, detach: bool) -> None:
    """Find settings under which SCENARIO trains faster on one device.

    Or your own training script, unchanged: tfmon tune -- python train.py --epochs 30

    The lane trains on while tfmon tries, one change after the other, what may help against its bottleneck. Slices
    with and without the change alternate. A change that makes the lane faster is kept; it ends when nothing helps
    any more. Ctrl+C ends it and prints what is known by then. Where the terminal is closed, the tuning of a script
    goes on: `tfmon attach` shows it.

    \b
    For example:
      tfmon tune slow-preprocess
      tfmon tune large-dense --lane gpu:0 --set prefetch=off
    """
    from tfmon.analysis.tuning_trials import tuning_of
    from tfmon.api.race_programs import SeriesProgram
    from tfmon.cli.attach import prepared, run_here, start

    fresh, purpose = replace(chosen, fresh=True), Purpose(one_lane=True, restarts=True)
    make = partial(SeriesProgram, fresh, purpose, lambda lanes: tuning_of(lanes[0].name, everything=True))
    if detach or (chosen.command and sys.stderr.isatty()):
        start(make, fresh, None, detach=detach, as_json=as_json)
    run_here(prepared(make, as_json=as_json), as_json=as_json)


@click.command(cls=flags.TakesCommand)
@click.argument("scenario", required=False)
@flags.takes(SweepOptions, "sweep")
@flags.takes(ScreenOptions, "sweep")
@flags.detach
@flags.headless
@flags.as_json
def sweep(screen: ScreenOptions, chosen: SweepOptions, detach: bool, headless: bool, as_json: bool) -> None:
    """Measure SCENARIO under all combinations of the values of some knobs, and rank them.

    Or your own script, unchanged: tfmon sweep --over learning_rate=1e-3,1e-4 -- python train.py

    Each combination is raced in turns against the baseline (the scenario's settings, and --set) on the same
    device, so that its ratio compares with those from other machines. What cannot be the best is stopped early.
    Ctrl+C keeps what there is; --resume goes on with it. Where the terminal is closed, the sweep of a script goes
    on: `tfmon attach` shows it.

    \b
    For example:
      tfmon sweep large-dense --over batch_size=16..4096
      tfmon sweep large-dense --over batch_size=32,128,512 --over mixed_precision=off,bfloat16 --on gpu
      tfmon sweep large-dense --over batch_size=32,128,512 --on ray/gpu
      tfmon sweep --resume FILE
    """
    from tfmon.cli.attach import prepared, run_here, start

    def make() -> Run:
        from tfmon.api.sweep_program import SweepProgram

        return SweepProgram(chosen)

    headless, notes = flags.uses_no_screen(headless=headless, detach=detach, as_json=as_json, doing="sweeping")
    if not headless:
        start(make, chosen, screen, detach=detach)
    run_here(prepared(make, as_json=as_json, notes=notes), as_json=as_json)
