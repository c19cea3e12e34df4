"""`tfmon watch`: a training script of the user's own, in one lane."""

from __future__ import annotations

import click

from tfmon import config
from tfmon.commands import options
from tfmon.commands.race import start
from tfmon.errors import UsageError


@click.command(cls=options.TakesCommand)
@options.settings
@click.option("--lane", metavar="SPEC", help="DEVICE[,KNOB=VALUE…]; the first GPU, or the CPU, if not said.")
@click.option(
    "--seconds",
    type=options.Seconds(min=0, min_open=True, max=options.LONGEST_S),
    help="Watch so long, then stop.",
)
@options.record
@click.option("--headless", is_flag=True, help="No screen: print a table at the end.")
@click.option("--json", "as_json", is_flag=True, help="No screen: print one JSON object at the end.")
@options.screen
def watch(
    settings: tuple[str, ...],
    lane: str | None,
    seconds: float | None,
    record: str | None,
    no_record: bool,
    headless: bool,
    as_json: bool,
    theme: str | None,
    mouse: bool | None,
    readonly: bool | None,
) -> None:
    """Watch your own training script as it is.

    For example: tfmon watch -- python train.py --epochs 3

    Keras' fit is seen by itself; a loop of your own says `report.step(...)`, see `python -m pydoc tfmon.report`.
    """
    from tfmon.catalog import command_card
    from tfmon.planner import Wishes

    command = options.command_of(click.get_current_context())
    if not command:
        raise UsageError("there is nothing to watch", "name the command: tfmon watch -- python train.py")
    lanes = () if lane is None else (lane,)
    wishes = Wishes(lanes, settings, options.interpreter_of(command), seconds, one_lane=True)
    wishes = options.with_recording(wishes, record, no_record)
    screen = config.screen_settings(theme, mouse, readonly)
    start(command_card(command), wishes, screen, headless=headless, as_json=as_json)
