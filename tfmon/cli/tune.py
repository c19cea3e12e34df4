"""`tfmon tune`: tries on one lane what may help it, one change after the other, and says what did."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import tfmon
from tfmon.cli import options
from tfmon.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from tfmon.model.race import Attempt, TuneState
    from tfmon.model.readings import Estimate
    from tfmon.model.session import Snapshot
    from tfmon.runner.headless import Interruption
    from tfmon.runner.program import Program

WIDTH = 110


@click.command()
@click.argument("scenario")
@click.option("--lane", metavar="SPEC", help="DEVICE[,KNOB=VALUE…]; the first GPU if there is one, else the CPU.")
@options.settings
@options.record
@options.as_json
@options.python
def tune(
    scenario: str,
    lane: str | None,
    settings: tuple[str, ...],
    record: str | None,
    no_record: bool,
    as_json: bool,
    python: str | None,
) -> None:
    """Find settings under which SCENARIO trains faster on one device.

    The lane trains on, and what may help against whatever bounds it is tried in alternating slices, one change
    after the other, until nothing helps any more. What gains is kept. Ctrl+C ends it with what it has.
    """
    from tfmon.catalog import find_scenario
    from tfmon.model.race import TuneState
    from tfmon.runner.headless import interruption
    from tfmon.runner.planner import RaceOptions, find_python
    from tfmon.runner.program import Program

    interpreter = find_python(python) if python else Path(sys.executable)
    race_options = RaceOptions(lanes=(lane,) if lane else (), settings=settings, python=interpreter, one_lane=True)
    race_options = options.with_recording(race_options, record, no_record)
    info = find_scenario(scenario)
    program = Program(race_options)
    with interruption() as interrupted:
        try:
            plan = program.plan(info)
            program.begin(plan)
            state = _try_all(program, TuneState(plan.lanes[0].spec.name, everything=True), interrupted)
            snapshot = program.session.snapshot()
        finally:
            program.close(interrupted.why)
    click.echo(json.dumps(to_json(snapshot, state), indent=2) if as_json else to_text(snapshot, state))
    sys.exit(EXIT_INTERRUPTED if interrupted.signal else program.exit_code())


def _try_all(program: Program, state: TuneState, interrupted: Interruption) -> TuneState:
    """Try until nothing helps or a signal comes, and say on a terminal how far it is."""
    from tfmon.analysis.tuning import news

    program.bench.run(state)
    while not program.bench.join(0.2):
        if interrupted.came():
            program.bench.stop()
        snapshot = program.session.snapshot()
        options.tell(news(snapshot) if snapshot.lanes[0].points else "the lane gets ready")
    options.tell("")
    return program.session.snapshot().tuned or state


def to_json(snapshot: Snapshot, state: TuneState) -> dict[str, Any]:
    """Return what was tried as plain values. Units: gains are throughput over throughput, intervals at 95 %."""
    from tfmon.analysis.bottleneck import find_bottleneck
    from tfmon.analysis.tuning import best_of, change_text
    from tfmon.reports.race import recording_json

    lane, best = snapshot.lane(state.lane), best_of(state)
    bound = find_bottleneck(snapshot, lane)

    def attempt(one: Attempt) -> dict[str, Any]:
        return {
            "tried": change_text(one),
            "settings": one.change,
            "against": one.bottleneck,
            "outcome": one.outcome,
            **_gain(one.gain),
            "why": one.reason or None,
        }

    return {
        "schema": 1,
        "tfmon": tfmon.__version__,
        "scenario": snapshot.race.scenario,
        "lane": {"name": lane.spec.name, "device": lane.spec.device},
        "began_with": state.attempts[0].before if state.attempts else lane.settings,
        "attempts": [attempt(one) for one in state.attempts],
        "best": {"settings": best.settings, "code": list(best.code), **_gain(best.speed_up)},
        "settings": lane.settings,
        "examples_per_s": lane.steady.examples_per_s,
        "bound": bound.kind if bound else None,
        "bound_text": bound.text if bound else None,
        "trouble": lane.trouble.message if lane.trouble else None,
        "interrupted": state.ended or None,
        **recording_json(snapshot),
    }


def _gain(estimate: Estimate | None) -> dict[str, Any]:
    return {
        "gain": estimate.value if estimate else None,
        "gain_ci95": [estimate.low, estimate.high] if estimate else None,
        "pairs": estimate.pairs if estimate else None,
    }


def to_text(snapshot: Snapshot, state: TuneState) -> str:
    """Return the table and what it comes to as plain text."""
    from tfmon.analysis.analysis import analyse
    from tfmon.reports.race import recording_lines
    from tfmon.ui.render.experiments import tune_rows
    from tfmon.ui.render.rows import plain

    lane = snapshot.lane(state.lane)
    lines = [f"{snapshot.race.scenario} on {lane.title}", *plain(tune_rows(analyse(snapshot), lane, WIDTH))]
    if lane.trouble is not None:
        lines += ["", f"{lane.trouble.message} {lane.trouble.hint}".rstrip()]
    lines += recording_lines(snapshot)
    return "\n".join(line.removeprefix(" ") for line in lines)
