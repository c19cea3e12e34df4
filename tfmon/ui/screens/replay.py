"""A replay on the screen: the race as it was drawn then, a time line, and keys that move through it.

It draws what the race screen draws, of a session that a player fills. Keys that would change a race are refused in
words, those added later included: only what is listed here as watching is let through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tfmon.model.ports import Controls, ExperimentError, Experiments, Playback
from tfmon.model.session import Session, Snapshot
from tfmon.ui.app import Ending, MonitorApp
from tfmon.ui.keys import RACE_KEYS, REPLAY_KEYS, key_of, watches
from tfmon.ui.render.bars import Zone, message_of
from tfmon.ui.render.glossary import SECTIONS
from tfmon.ui.render.layout import arrange
from tfmon.ui.render.race import draw, in_sight
from tfmon.ui.render.rows import BLANK, Row
from tfmon.ui.render.style import KEY, LANE_COLOURS, STRONG, TEXT, Charset, to_ascii
from tfmon.ui.render.timeline import keys_row, time_of, timeline_row
from tfmon.ui.render.verdict import watched
from tfmon.ui.screens.help import entry
from tfmon.ui.screens.page import ScrollPage, bound, closer
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.widgets.canvas import Canvas

REFUSED = {key.id for key in RACE_KEYS if not watches(key.action)}
"""Keys of a race that do nothing here; remapped, they do not stand in the way of those that do."""
REFUSAL = "this is a replay of a race that is over: nothing in it can be changed"
MESSAGE_S = 5.0
PULL_S = 0.1


class ReplayScreen(RaceScreen, inherit_bindings=False):
    """The race screen of a replay. Thread: the app's only."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(key.keys, key.action if watches(key.action) else "refuse", key.help, id=key.id, show=False)
            for key in RACE_KEYS
            if key.id != "pause"
        ),
        *(Binding(key.keys, key.action, key.help, id=key.id, show=False) for key in REPLAY_KEYS),
    ]

    def __init__(self, shell: ReplayApp) -> None:
        super().__init__(shell)
        self._playback = shell.playback
        self._bar = (0, 0)

    def follow(self, snapshot: Snapshot) -> None:
        """Draw a snapshot with the time line below it."""
        width, height = self.app.size
        self.shell.view = watched(
            self.shell.view, snapshot, in_sight(snapshot, self.shell.view, width, max(1, height - 1))
        )
        view, tape = self.shell.view, self._playback.tape()
        page = draw(snapshot, view, width, max(1, height - 1))
        layout = arrange(width, max(1, height - 1), len(snapshot.lanes))
        body = page.rows[: -1 if layout.keys.height else max(1, height - 2)]
        line, start, size = timeline_row(tape, width)
        self._bar = (start, size)
        says_it_itself = bool(layout.status.height)
        keys = keys_row(tape, view.keys, "" if says_it_itself else message_of(view, snapshot), width)
        rows = (*body, line, keys)[:height]
        if view.charset == "ascii":
            rows = tuple(to_ascii(row) for row in rows)
        self._zones: tuple[Zone, ...] = tuple(zone for zone in page.zones if watches(zone.action))
        self.shell.view = replace(view, top=page.top)
        self.query_one(Canvas).show(rows)

    def on_click(self, event: events.Click) -> None:
        """Go where the time line was clicked; Textual calls the race screen's handler as well, for the panes."""
        start, size = self._bar
        if event.screen_y == self.app.size.height - 2 and start <= event.screen_x < start + size:
            self._playback.go_to(time_of(self._playback.tape(), event.screen_x - start, size))
            self.shell.pull()

    # ------------------------------------------------------------ through the race

    def action_play_or_pause(self) -> None:
        """Pause or play."""
        self._playback.toggle()
        self.shell.pull()

    def action_skip(self, seconds: int) -> None:
        """Go on, or back for a negative figure."""
        self._playback.skip(seconds)
        self.shell.pull()

    def action_step(self, direction: int) -> None:
        """Go one event on or back."""
        self._playback.step(direction)
        self.shell.pull()

    def action_go_to_mark(self, direction: int) -> None:
        """Go to the next mark, or the one before."""
        self._playback.go_to_mark(direction)
        self.shell.pull()

    def action_go_to_end(self, direction: int) -> None:
        """Go to the end, or to the beginning."""
        tape = self._playback.tape()
        self._playback.go_to(tape.to_ns if direction > 0 else tape.from_ns)
        self.shell.pull()

    def action_change_speed(self, direction: int) -> None:
        """Play faster, or slower."""
        self._playback.change_speed(direction)
        self.shell.pull()

    # ------------------------------------------------------------ what a replay does not do

    def action_refuse(self) -> None:
        """Say why the key does nothing here."""
        self.shell.say(REFUSAL)

    def action_show_help(self) -> None:
        """Open the help."""
        self.app.push_screen(ReplayHelp(self.shell))

    def _busy(self) -> bool:
        """Refuse what the knob page asks."""
        self.shell.say(REFUSAL)
        return True


class ReplayHelp(ScrollPage):
    """Lists the keys of a replay and explains numbers."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("help"), bound("choose", "dismiss", "enter")]
    title_text = "Help: a replay"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the whole help."""
        keys = self.shell.view.keys
        rows: list[Row] = [BLANK, (("  Through the race", STRONG),)]
        for key in REPLAY_KEYS:
            rows += entry(key_of(key.id, keys), key.help, width, KEY)
        rows += [BLANK, (("  As in a race", STRONG),)]
        for key in RACE_KEYS:
            if watches(key.action):
                rows += entry(key_of(key.id, keys), key.help, width, KEY)
        for heading, explained in SECTIONS:
            rows += [BLANK, ((f"  {heading}", STRONG),)]
            for name, meaning in explained:
                rows += entry(name, meaning, width, TEXT)
        return rows


class ReplayApp(MonitorApp):
    """A replay on the screen. `run()` returns how it ended, and None if it could not be drawn; see `broken`."""

    def __init__(
        self,
        session: Session,
        playback: Playback,
        *,
        table: Callable[[], str] = str,
        theme: str = "textual-dark",
        lane_colours: str = LANE_COLOURS[0],
        characters: Charset | None = None,
        keymap: Mapping[str, str] | None = None,
    ) -> None:
        """Show the session that a player fills; the rest is as for `MonitorApp`."""
        self.playback = playback
        self.broken: Exception | None = None
        """What went wrong when the recording was drawn."""
        self._ticked_s = time.monotonic()
        controls, experiments = cast(Controls, _Deaf(self)), cast(Experiments, _Refusing())
        super().__init__(
            session,
            controls,
            experiments,
            table=table,
            theme=theme,
            lane_colours=lane_colours,
            characters=characters,
            keymap={binding: keys for binding, keys in (keymap or {}).items() if binding not in REFUSED},
        )

    def get_default_screen(self) -> Screen[None]:
        """Return the race."""
        return ReplayScreen(self)

    def on_mount(self) -> None:
        """Draw, and play."""
        self._ticked_s = time.monotonic()
        super().on_mount()
        self.set_interval(PULL_S, self._play)

    def _play(self) -> None:
        if self.playback.tape().playing:
            self.pull()

    def pull(self) -> None:
        """Play on, and draw what changed."""
        now_s = time.monotonic()
        elapsed_s, self._ticked_s = now_s - self._ticked_s, now_s
        self.playback.tick(elapsed_s)
        super().pull()

    def say(self, message: str) -> None:
        """Show a line for a few seconds of the user's time, not of the race's."""
        self.view = replace(self.view, message=message, message_until_ns=2**63)
        self.set_timer(MESSAGE_S, lambda: self._unsay(message))
        self.pull()

    def _unsay(self, message: str) -> None:
        if self.view.message == message:
            self.view = replace(self.view, message="", message_until_ns=0)
            self.pull()

    def _quit(self, ending: Ending) -> None:
        self.exit(ending)

    def _handle_exception(self, error: Exception) -> None:
        """Leave, and let the caller say it in a line: a recording may hold what cannot be drawn."""
        self.broken = self.broken or error
        self.exit()


class _Deaf:
    """Controls of a race that is over: whatever is wished, it is said that it cannot be."""

    def __init__(self, app: ReplayApp) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return lambda *_args, **_more: self._app.say(REFUSAL)


class _Refusing:
    """Experiments on a race that is over."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        def refuse(*_args: object, **_more: object) -> None:
            raise ExperimentError(REFUSAL)

        return refuse
