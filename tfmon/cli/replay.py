"""`tfmon replay`: a recorded race on the screen, or its result without one."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from tfmon.cli import options
from tfmon.errors import EXIT_FINE, EXIT_INTERRUPTED, UsageError
from tfmon.runner import settings

if TYPE_CHECKING:
    from tfmon.recordings.reader import Recording


@click.command()
@click.argument("recording", required=False)
@click.option(
    "--example", is_flag=True, help="Show a race that comes with tfmon, and say what it was recorded on."
)
@click.option("--headless", is_flag=True, help="No screen: print the table of the race's end.")
@click.option("--json", "as_json", is_flag=True, help="No screen: print the result of the race, one JSON object.")
@options.looks
def replay(
    recording: str | None, example: bool, headless: bool, as_json: bool, theme: str | None, mouse: bool | None
) -> None:
    """Show RECORDING: a file, the id of a run or how it begins, or `last`.

    Space pauses, ← and → move by 5 s, `,` and `.` by one event, + and - change the speed; ? tells the others.
    """
    from tfmon.recordings.library import EXAMPLE, find
    from tfmon.recordings.player import play_all
    from tfmon.recordings.reader import Recording, guard
    from tfmon.reports.race import to_json, to_text

    if example is (recording is not None):
        raise UsageError("replay needs a RECORDING, or --example instead", "tfmon runs lists those that are here")
    path = EXAMPLE if recording is None else find(recording)
    if headless or as_json:
        with guard(path):
            opened, snapshot = play_all(path)
            why = snapshot.race.interrupted
            if as_json:
                text = json.dumps(to_json(snapshot, why), indent=2, allow_nan=False)
            else:
                text = to_text(snapshot, why)
        if opened.torn:
            click.echo(f"tfmon: {path} is cut off at its end; this is what it holds", err=True)
        if example:
            click.echo(f"recorded on {opened.header.recorded_on}", err=True)
        click.echo(text)
        return
    if why := options.why_no_screen():
        raise UsageError(f"{why}: a replay needs the screen", "--headless and --json do without")
    screen = settings.screen_settings(theme, mouse, None)
    with Recording(path) as opened:
        if example:
            click.echo(f"recorded on {opened.header.recorded_on}", err=True)
        _show(opened, screen)


def _show(recording: Recording, screen: settings.ScreenSettings) -> NoReturn:
    from tfmon.recordings.header import RecordingError
    from tfmon.recordings.player import Player
    from tfmon.reports.race import to_text
    from tfmon.ui.screens.replay import ReplayApp

    player = Player(recording)
    app = ReplayApp(
        player.session,
        player,
        table=lambda: to_text(player.session.snapshot()),
        theme=screen.theme,
        lane_colours=screen.lane_colours,
        characters=screen.charset,
        keymap=screen.keymap,
    )
    ending = app.run(mouse=screen.mouse)
    if app.broken is not None:
        problem = f"{type(app.broken).__name__}: {app.broken}"
        raise RecordingError(f"{recording.path} holds what cannot be shown ({problem})")
    sys.exit(EXIT_FINE if ending else EXIT_INTERRUPTED)
