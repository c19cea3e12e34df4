"""`tfmon replay`: a recorded race on the screen, or its result without one."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from tfmon.commands import options
from tfmon.errors import EXIT_FINE, EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from tfmon.recordings.reader import Recording


@click.command()
@click.argument("recording")
@click.option("--headless", is_flag=True, help="No screen: print the table of the race's end.")
@click.option("--json", "as_json", is_flag=True, help="No screen: print the result of the race, one JSON object.")
def replay(recording: str, headless: bool, as_json: bool) -> None:
    """Show RECORDING: a file, the id of a run or how it begins, or `last`.

    Space pauses, ← and → move by 5 s, `,` and `.` by one event, + and - change the speed; ? tells the others.
    """
    from tfmon.recordings.library import find
    from tfmon.recordings.player import play_all
    from tfmon.recordings.reader import Recording, guard
    from tfmon.result import to_json, to_text

    path = find(recording)
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
        click.echo(text)
        return
    if why := options.why_no_screen():
        raise UsageError(f"{why}: a replay needs the screen", "--headless and --json do without")
    with Recording(path) as opened:
        _show(opened)


def _show(recording: Recording) -> NoReturn:
    from tfmon.recordings.codec import RecordingError
    from tfmon.recordings.player import Player
    from tfmon.ui.replay_screen import ReplayApp

    player = Player(recording)
    app = ReplayApp(player.session, player)
    ending = app.run()
    if app.broken is not None:
        problem = f"{type(app.broken).__name__}: {app.broken}"
        raise RecordingError(f"{recording.path} holds what cannot be shown ({problem})")
    sys.exit(EXIT_FINE if ending else EXIT_INTERRUPTED)
