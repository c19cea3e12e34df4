"""A replay on the screen: the race as it was drawn then, a time line, and keys that move through it.

It draws what the race screen draws, of a session that a player fills. A key that would change a race says that
this is a replay; only the actions that `tfmon.ui.keys.watches` lists are let through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tfmon.model.ports import Controls, Experiments, ReplayControls, Runs
from tfmon.model.session import Session
from tfmon.ui.app import Ending, MonitorApp
from tfmon.ui.keys import RACE_KEYS, REPLAY_KEYS, WATCHING_KEYS, Key, key_of, watches
from tfmon.ui.render.bars import message_of
from tfmon.ui.render.race import layout_of
from tfmon.ui.render.style import LANE_COLOURS, Charset, to_ascii
from tfmon.ui.render.timeline import keys_row, time_of, timeline_row
from tfmon.ui.screens.playing import PULL_S, NoControls, NoExperiments, Playing
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.screens.text import HelpPage

TAKEN = ("pause", "cursor.back", "cursor.on", "follow.now")
"""Keys of a race that a replay has for something else."""
REFUSED = {key.id for key in RACE_KEYS if not watches(key.action)}
"""Keys of a race that do nothing here; remapped, they do not clash with those that do."""


class ReplayScreen(RaceScreen, inherit_bindings=False):
    """The race screen of a replay. Thread: the app's only."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(key.keys, key.action if watches(key.action) else "refuse", key.help, id=key.id, show=False)
            for key in RACE_KEYS
            if key.id not in TAKEN
        ),
        *(Binding(key.keys, key.action, key.help, id=key.id, show=False) for key in REPLAY_KEYS),
    ]

    def __init__(self, monitor: ReplayApp) -> None:
        super().__init__(monitor)
        self._playback = monitor.playback
        self._bar = (0, 0)

    @property
    def leaves(self) -> str:
        """What the key does that ends tfmon here."""
        return "quit"

    def redraw(self) -> None:
        """Draw the race with the time line below it."""
        width, height = self.app.size
        snapshot, playback = self.monitor.snapshot, self._playback.state()
        layout = layout_of(self.monitor.analysis, self.monitor.view, width, max(1, height - 1))
        page = self.draw_race(width, max(1, height - 1))
        self.zones = tuple(zone for zone in page.zones if watches(zone.action))
        body = page.rows[: -1 if layout.keys.height else max(1, height - 2)]
        line, start, size = timeline_row(playback, width)
        self._bar = (start, size)
        message = "" if layout.status.height else message_of(self.monitor.view, snapshot)
        rows = (*body, line, keys_row(playback, self.monitor.view.keys, message, width, self.leaves))[:height]
        if self.monitor.view.charset == "ascii":
            rows = tuple(to_ascii(row) for row in rows)
        self.canvas.show(rows)

    def on_click(self, event: events.Click) -> None:
        """Go where the time line was clicked; Textual calls the race screen's handler as well, for the panes."""
        start, size = self._bar
        if event.screen_y == self.app.size.height - 2 and start <= event.screen_x < start + size:
            self._playback.go_to(time_of(self._playback.state(), event.screen_x - start, size))
            self.monitor.pull()

    def action_playback(self, method: str, *amount: int) -> None:
        """Have the player do something: the name of a method of `ReplayControls`, and how far."""
        getattr(self._playback, method)(*amount)
        self.monitor.pull()

    def action_go_to_end(self, direction: int) -> None:
        """Go to the end, or to the beginning."""
        playback = self._playback.state()
        self._playback.go_to(playback.to_ns if direction > 0 else playback.from_ns)
        self.monitor.pull()

    def action_toggle_follow(self) -> None:
        """Say how a replay is stopped."""
        pause = key_of("replay.pause", self.monitor.view.keys)
        self.monitor.say(f"a replay has nothing to follow: {pause} pauses it")

    def action_show_crossover(self) -> None:
        """Open the page of the crossover, if the recording has one up to this moment."""
        if self.monitor.analysis.curve is None:
            self.monitor.say("no crossover was measured up to this moment of the race")
        else:
            super().action_show_crossover()

    def action_refuse(self) -> None:
        """Show why the key does nothing here."""
        self.monitor.may_change()

    def action_show_help(self) -> None:
        """Open the help."""
        self.app.push_screen(ReplayHelp(self.monitor))


class ReplayHelp(HelpPage):
    """Lists the keys of a replay, and explains the numbers."""

    title_text = "Help: a replay"
    listed: Iterable[Key] = (*REPLAY_KEYS, *WATCHING_KEYS)


class ReplayApp(Playing, MonitorApp):
    """A replay on the screen."""

    def __init__(
        self,
        session: Session,
        playback: ReplayControls,
        *,
        runs: Runs | None = None,
        table: Callable[[], str] = str,
        repeat: Callable[[], str] = str,
        theme: str = "textual-dark",
        lane_colours: str = LANE_COLOURS[0],
        characters: Charset | None = None,
        keymap: Mapping[str, str] | None = None,
    ) -> None:
        """Show the session that a player fills; `playback` moves the player, the rest is as for `MonitorApp`."""
        self.playback = playback
        controls, experiments = cast(Controls, NoControls(self)), cast(Experiments, NoExperiments())
        super().__init__(
            session,
            controls,
            experiments,
            runs=runs,
            table=table,
            repeat=repeat,
            theme=theme,
            lane_colours=lane_colours,
            characters=characters,
            keymap={binding: keys for binding, keys in (keymap or {}).items() if binding not in REFUSED},
        )
        self.view = replace(self.view, replay=True)

    def get_default_screen(self) -> Screen[None]:
        """Return the race."""
        return ReplayScreen(self)

    def on_mount(self) -> None:
        """Draw, and play."""
        super().on_mount()
        self.set_interval(PULL_S, self.play)

    def pull(self) -> None:
        """Play on, and draw what changed."""
        self.tick()
        MonitorApp.pull(self)

    @property
    def tabs(self) -> tuple[str, ...]:
        """The pages of a race that is over; nothing can be profiled or examined any more."""
        return tuple(name for name in super().tabs if name not in ("profile", "doctor"))

    def _quit(self, ending: Ending) -> None:
        self.exit(ending)
