"""A recorded race played over the race that runs, which goes on below and is shown again afterwards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.timer import Timer

from tfmon.analysis.analysis import analyse
from tfmon.model.ports import OpenReplay
from tfmon.model.session import Snapshot
from tfmon.ui.app import MonitorApp
from tfmon.ui.keys import PAGE_KEYS, RACE_KEYS, REPLAY_KEYS, key_of, watches
from tfmon.ui.render.bars import failure_line
from tfmon.ui.screens.page import Page
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.screens.replay import (
    MESSAGE_S,
    PULL_S,
    REFUSAL,
    ReplayApp,
    ReplayScreen,
    _NoControls,
    _NoExperiments,
)
from tfmon.ui.screens.tabs import Pages
from tfmon.ui.view import View, with_failures

TABS = ("race", "lane", "log", "knobs")
FOREVER_NS = 2**63
_LEAVING = {"quit": "leave", "runs": "leave", "focus.all": "focus_all_or_leave"}
"""What keys of a replay do here instead, by their ids."""


class ReplayOverScreen(ReplayScreen, inherit_bindings=False):
    """The screen of such a replay: what leaves tfmon in another replay goes back to the list of runs here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(one.key, _LEAVING.get(one.id or "", one.action), one.description, id=one.id, show=False)
        for one in ReplayScreen.BINDINGS
        if isinstance(one, Binding)
    ]

    def __init__(self, monitor: ReplayMonitor) -> None:
        super().__init__(cast(ReplayApp, monitor))
        self._replayed = monitor
        self._timer_of_play: Timer | None = None

    def on_mount(self) -> None:
        """Play."""
        self._timer_of_play = self.set_interval(PULL_S, self._replayed.play)

    def on_unmount(self) -> None:
        """Close the recording and the pages of this replay."""
        self._replayed.close()

    def action_leave(self) -> None:
        """Go back to where the replay was started."""
        self.dismiss(None)

    def action_focus_all_or_leave(self) -> None:
        """Let all lanes have the focus again; leave where they have it."""
        if self._replayed.view.focused is None:
            self.action_leave()
        else:
            self.action_focus_all()

    def action_save_picture(self) -> None:
        """Save the screen as a picture and as text."""
        self._replayed.save_picture(self.canvas.text())


class ReplayMonitor:
    """What the screens of a replay use in place of the app: everything else is the app's own.

    Thread: the app's only.
    """

    def __init__(self, app: MonitorApp, opened: OpenReplay) -> None:
        self.app = app
        self.opened = opened
        self.playback = opened
        self.session = opened.session
        self.analysis = analyse(opened.session.snapshot())
        self.view = View(charset=app.view.charset, keys=app.view.keys)
        self.controls = _NoControls(cast(ReplayApp, self))
        self.experiments = _NoExperiments()
        self.tabs = TABS
        self.help_keys = (*REPLAY_KEYS, *(key for key in RACE_KEYS if watches(key.action)), *PAGE_KEYS)
        self.may_change_lanes = False
        self.runs = None
        self.screen = ReplayOverScreen(self)
        self.pages = Pages(cast(MonitorApp, self), self.screen)
        self._ticked_s = time.monotonic()

    @property
    def palette(self) -> Mapping[str, Style]:
        """The styles of the theme."""
        return self.app.palette

    @property
    def snapshot(self) -> Snapshot:
        """What is on the screen."""
        return self.analysis.snapshot

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a screen uses of the app
        return getattr(self.app, name)

    def play(self) -> None:
        """Play on, if it plays."""
        if self.playback.state().playing:
            self.pull()

    def pull(self) -> None:
        """Play on, and draw what changed."""
        now_s = time.monotonic()
        elapsed_s, self._ticked_s = now_s - self._ticked_s, now_s
        self.playback.tick(elapsed_s)
        self.analysis = analyse(self.session.snapshot(), self.analysis)
        self._watch_the_race()
        screen = self.app.screen
        if (
            self.app.may_paint()
            and isinstance(screen, RaceScreen | Page)
            and screen.monitor is cast(MonitorApp, self)
        ):
            screen.redraw()

    def _watch_the_race(self) -> None:
        """Tell of a lane of the race that runs which has failed meanwhile."""
        live = with_failures(self.app.view, self.app.snapshot, ())
        line = failure_line(live, self.app.snapshot, key_of("close", self.view.keys))
        if line and not self.view.message:
            self.view = replace(self.view, message=f"in the race that runs: {line}", message_until_ns=FOREVER_NS)

    def say(self, message: str) -> None:
        """Show a line for a few seconds of the user's time."""
        self.view = replace(self.view, message=message, message_until_ns=FOREVER_NS)
        self.app.set_timer(MESSAGE_S, lambda: self._unsay(message))
        self.pull()

    def _unsay(self, message: str) -> None:
        if self.view.message == message:
            self.view = replace(self.view, message="", message_until_ns=0)
            self.pull()

    def may_change(self) -> bool:
        """Return False, and say why."""
        self.say(REFUSAL)
        return False

    def save_picture(self, table: str) -> None:
        """Save the screen and a text, and say where."""
        MonitorApp.save_picture(cast(MonitorApp, self), table)

    def close(self) -> None:
        """Close the recording."""
        self.pages.close()
        self.opened.close()


def show_replay(monitor: MonitorApp, opened: OpenReplay) -> None:
    """Play an open recording over what is shown now; it is closed when the user leaves it."""
    app = cast(MonitorApp, monitor.app)
    app.push_screen(ReplayMonitor(app, opened).screen)
