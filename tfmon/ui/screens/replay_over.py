"""A recorded race played over the race that runs, which goes on below and is shown again afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, cast

from rich.style import Style
from textual.binding import Binding, BindingType

from tfmon.analysis.analysis import analyse
from tfmon.model.ports import OpenReplay
from tfmon.ui.app import MonitorApp
from tfmon.ui.keys import key_of
from tfmon.ui.picture import save_picture
from tfmon.ui.render.bars import failure_line
from tfmon.ui.screens.page import Page
from tfmon.ui.screens.playing import FOREVER_NS, PULL_S, NoControls, NoExperiments, Playing
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.screens.replay import ReplayApp, ReplayScreen
from tfmon.ui.screens.tabs import Pages
from tfmon.ui.view import View, with_failures

TABS = ("race", "lane", "log", "knobs")
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

    def on_mount(self) -> None:
        """Play."""
        self.set_interval(PULL_S, self._replayed.play)

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


class ReplayMonitor(Playing):
    """What the screens of a replay use in place of the app: nothing of the race that runs reaches them.

    Thread: the app's only.
    """

    app: MonitorApp
    """The app of the race that runs."""

    def __init__(self, app: MonitorApp, opened: OpenReplay) -> None:
        self.app = app
        self.opened = self.playback = opened
        self.session = opened.session
        self.analysis = analyse(opened.session.snapshot())
        self.view = View(charset=app.view.charset, keys=app.view.keys, replay=True, tabs=TABS)
        self.controls = NoControls(self)
        self.experiments = NoExperiments()
        self.runs = None
        self.screen = ReplayOverScreen(self)
        self.pages = Pages(cast(MonitorApp, self), self.screen)
        self._told: tuple[str, ...] = ()
        """Lanes of the race that runs whose failure was told here."""

    @property
    def palette(self) -> Mapping[str, Style]:
        """The styles of the theme."""
        return self.app.palette

    def repeat(self) -> str:
        """Return the command that races these lanes with the settings of the moment that is shown."""
        return self.opened.repeat()

    def save_picture(self, table: str) -> None:
        """Save the screen as a picture and a text, and say where."""
        self.say(save_picture(self.app, self.snapshot.race.scenario, table))

    def save_report(self) -> None:
        """Save a report of the recording that is replayed, and say where."""
        recording = self.snapshot.recording
        self.app.report_of(recording.path if recording is not None else "", self.say)

    def pull(self) -> None:
        """Play on, and draw what changed."""
        self.tick()
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

    def close(self) -> None:
        """Close the recording."""
        self.pages.close()
        self.opened.close()


def show_replay(monitor: MonitorApp, opened: OpenReplay) -> None:
    """Play an open recording over what is shown now; it is closed when the user leaves it."""
    app = cast(MonitorApp, monitor.app)
    app.push_screen(ReplayMonitor(app, opened).screen)
