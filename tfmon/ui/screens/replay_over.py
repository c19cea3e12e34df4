"""A recorded race played over the race that runs, which goes on below and is shown again afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, cast

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.timer import Timer

from tfmon.analysis.analysis import Analysis, analyse
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

    @property
    def leaves(self) -> str:
        """What the key does that ends tfmon in another replay."""
        return "back"

    def action_leave(self) -> None:
        """Go back to where the replay was started."""
        self.dismiss(None)

    def action_focus_all_or_leave(self) -> None:
        """Let all lanes have the focus again; leave where they have it."""
        view = self._replayed.view
        if view.focused is None and view.cursor is None and not view.zoomed:
            self.action_leave()
        else:
            self.action_focus_all()

    def action_save_picture(self) -> None:
        """Save the screen as a picture and as text."""
        self._replayed.save_picture(self.canvas.text())


class ReplayMonitor:
    """What the screens of a replay use in place of the app: nothing of the race that runs reaches them.

    Thread: the app's only.
    """

    freeze, unfreeze = MonitorApp.freeze, MonitorApp.unfreeze

    def __init__(self, app: MonitorApp, opened: OpenReplay) -> None:
        self.app = app
        self.opened = self.playback = opened
        self.session = opened.session
        self.analysis = analyse(opened.session.snapshot())
        self.view = View(charset=app.view.charset, keys=app.view.keys, replay=True, tabs=TABS)
        self.controls = _NoControls(cast(ReplayApp, self))
        self.experiments = _NoExperiments()
        self.tabs = TABS
        self.help_keys = (*REPLAY_KEYS, *(key for key in RACE_KEYS if watches(key.action)), *PAGE_KEYS)
        self.may_change_lanes = False
        self.runs = None
        self.screen = ReplayOverScreen(self)
        self.pages = Pages(cast(MonitorApp, self), self.screen)
        self._frozen: Analysis | None = None
        self._told: tuple[str, ...] = ()
        """Lanes of the race that runs whose failure was told here."""
        self._ticked_s = time.monotonic()

    @property
    def palette(self) -> Mapping[str, Style]:
        """The styles of the theme."""
        return self.app.palette

    @property
    def snapshot(self) -> Snapshot:
        """What is known at the moment that is shown."""
        return self.analysis.snapshot

    @property
    def shown(self) -> Analysis:
        """What the race screen draws: what is known, or what was when the display ceased to follow."""
        return self._frozen or self.analysis

    def repeat(self) -> str:
        """Return no command: `tfmon replay` has it."""
        return ""

    def save_picture(self, table: str) -> None:
        """Save the screen and a text, and say where."""
        MonitorApp.save_picture(cast(MonitorApp, self), table)

    def save_screenshot(self, name: str, folder: str) -> str:
        """Save a picture of the screen, and return where."""
        return self.app.save_screenshot(name, folder)

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
        if line and (live.unseen != self._told or not self.view.message):
            self._told = live.unseen
            self.view = replace(self.view, message=f"in the race that runs: {line}", message_until_ns=FOREVER_NS)

    def say(self, message: str, done: Callable[[Snapshot], bool] | None = None) -> None:
        """Show a line for a few seconds of the user's time."""
        self.view = replace(self.view, message=message, message_until_ns=FOREVER_NS, message_done=done)
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

    def close(self) -> None:
        """Close the recording."""
        self.pages.close()
        self.opened.close()


def show_replay(monitor: MonitorApp, opened: OpenReplay) -> None:
    """Play an open recording over what is shown now; it is closed when the user leaves it."""
    app = cast(MonitorApp, monitor.app)
    app.push_screen(ReplayMonitor(app, opened).screen)
