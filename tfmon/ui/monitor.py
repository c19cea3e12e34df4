"""The display of a source, and the requests of its keys."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from textual.screen import Screen

from tfmon import units
from tfmon.analysis.analysis import analyse
from tfmon.analysis.series_tables import progress_text
from tfmon.analysis.sweep_ranking import Ranking, rank
from tfmon.errors import TfmonError
from tfmon.model.lane_events import PAUSED
from tfmon.model.lane_state import LaneState
from tfmon.model.ports import Source
from tfmon.model.requests import Command
from tfmon.model.session import Snapshot
from tfmon.system.threads import start_thread
from tfmon.ui.keys import TABS, key_of
from tfmon.ui.render.bars import failure_line
from tfmon.ui.source import Display, focused_index
from tfmon.ui.terminal import TerminalApp
from tfmon.units import Charset

SECOND_NS = 1_000_000_000
CALM_NS = 10 * SECOND_NS
"""Time after a key press during which the screen is drawn often."""
MESSAGE_S = 5.0
NOTICE_S = 3.0
"""Time during which a key press does not remove a notice."""
LEAVE = "doctor"
"""Id of the key that leaves a detachable run."""
READ_ONLY = "read only: this screen shows the race and changes nothing (--readonly)"

Value = TypeVar("Value")
Ending: TypeAlias = Literal["quit", "forced", "signal", "left"]
"""How the app ended: "forced" if the user did not wait, "left" if the run continues."""

_SCREENS = {
    "sweep": ("experiments", "SweepPage"), "replay": ("race_screen", "ReplayScreen"),
    "race": ("race_screen", "RaceScreen"),
    "lane": ("lane_page", "LanePage"), "log": ("log", "LogPage"), "knobs": ("choices", "KnobPage"),
    "profile": ("report_pages", "ProfilePage"), "profiles": ("report_pages", "ProfilesPage"),
    "gpus": ("gpus_page", "GpusPage"), "doctor": ("report_pages", "DoctorPage"),
    "runs": ("choices", "RunsPage"), "help": ("help", "HelpPage"), "copy": ("report_pages", "CopyPage"),
    "scenarios": ("help", "ScenarioPage"), "crossover": ("experiments", "CrossoverPage"),
    "new crossover": ("choices", "NewCrossoverPage"), "history": ("experiments", "HistoryPage"),
    "account": ("report_pages", "AccountPage"),
    "tuning": ("experiments", "TunePage"), "palette": ("help", "palette_of"),
}  # fmt: skip


class Monitor:
    """The display of a source and the requests of its keys. Thread: the app's."""

    def __init__(
        self,
        app: TerminalApp[Ending],
        source: Source,
        *,
        charset: Charset,
        keys: Mapping[str, str],
        readonly: bool = False,
        below: Monitor | None = None,
    ) -> None:
        self.app, self.source, self.below = app, source, below
        self.analysis = analyse(source.snapshot())
        self.sweep = self._ranked()
        self.lane = 0
        self.message_count = 0
        self.view = Display(
            charset=charset,
            keys=keys,
            readonly=readonly,
            race=self.snapshot.race.number,
            replay=source.playback is not None,
            above=below is not None,
            tabs=tuple(
                name
                for name in (TABS if source.tabs is None else source.tabs)
                if (source.runs is not None or name != "runs") and (below is None or name not in ("gpus", "runs"))
            ),
        )
        self._kept: dict[str, Screen[Any]] = {}
        self._question = ("", "")
        self._played_s: float | None = None
        self._touched_ns = 0
        self._noticed_s = 0.0
        self._reported: dict[str, bool] = {}

    @functools.cached_property
    def screen(self) -> Screen[Any]:
        """The screen of the race, replay or sweep."""
        return self._make("sweep" if self.sweep is not None else "replay" if self.view.replay else "race")

    def _make(self, name: str) -> Screen[Any]:
        module, kind = _SCREENS[name]
        screen: Screen[Any] = getattr(import_module(f"tfmon.ui.screens.{module}"), kind)(self)
        return screen

    @property
    def snapshot(self) -> Snapshot:
        """The current state."""
        return self.analysis.snapshot

    def touched(self) -> None:
        """Draw changes at once after a key press, for `CALM_NS`."""
        self._touched_ns = self.snapshot.at_ns

    def lively(self) -> bool:
        """Return whether to draw more often than every two seconds."""
        snapshot = self.snapshot
        training = any(not lane.over and lane.phase != PAUSED for lane in snapshot.lanes)
        since_ns = max(self._touched_ns, snapshot.race.started_ns or snapshot.at_ns)
        calm = snapshot.at_ns - since_ns > CALM_NS
        return (training and not calm) or self.below is not None

    def _ranked(self, before: Ranking | None = None) -> Ranking | None:
        state = self.snapshot.sweep
        return before if state is None or (before is not None and before.state is state) else rank(state, before)

    def pull(self) -> None:
        """Advance the replay, read the source, and draw."""
        if self.source.playback is not None:
            now_s = time.monotonic()
            self.source.playback.tick(0.0 if self._played_s is None else now_s - self._played_s)
            self._played_s = now_s
        self.analysis = analyse(self.source.snapshot(), self.analysis)
        self.sweep = self._ranked(self.sweep)
        if self.view.race != self.snapshot.race.number:
            view = self.view
            view.race, view.zoomed, view.focused = self.snapshot.race.number, False, None
            view.scales, view.failures = {}, {}
        if lost := self.source.lost():
            self.view.notice, self.view.readonly = lost, True
        if (below := self.below) is not None:
            below.view.note_failures(below.snapshot)
            line = failure_line(below.view, below.snapshot, key_of("close", self.view.keys))
            if line and (below.view.failures != self._reported or not self.view.message):
                self._reported, self.view.message = below.view.failures, f"in the race that runs: {line}"
        self.app.draw(self)

    def say(self, message: str) -> None:
        """Display a message for some seconds."""
        self.message_count += 1
        number = self.message_count

        def unsay() -> None:
            if self.message_count == number and self.view.message == message:
                self.unsay()
                self.app.draw(self)

        self.app.set_timer(MESSAGE_S, unsay)
        self.view.message = message
        self.pull()  # the next key must start from the values that this key requested

    def unsay(self) -> None:
        """Remove the displayed message."""
        kept = self.view.notice if time.monotonic() - self._noticed_s < NOTICE_S else ""
        self.view.message, self.view.notice = "", kept

    def notify(self, line: str) -> None:
        """Set a notice that stays until a key press. Drawing may have failed, so do not draw."""
        self._noticed_s = time.monotonic()
        self.view.message, self.view.notice = "", line

    def open(self, name: str) -> None:
        """Display a new page above the current one."""
        self.app.push_screen(self._make(name))

    def show(self, name: str) -> None:
        """Display a tab, or close it if it is displayed."""
        app = self.app
        above = app.screen_stack[app.screen_stack.index(self.screen) + 1 :]
        if not above:
            focused = focused_index(self.view, self.snapshot)
            self.lane = self.lane if focused is None else focused
        if name != "race" and name not in self._kept:
            self._kept[name] = self._make(name)
            app.install_screen(self._kept[name], f"{name}-{id(self)}")
        for _ in above:
            app.pop_screen()
        page = self._kept.get(name)
        if page is not None and above != [page]:
            app.push_screen(page)

    def forget(self, page: Screen[Any]) -> None:
        """Discard a page, so that the next display creates a new one."""
        for name in [name for name, kept in self._kept.items() if kept is page]:
            self.app.uninstall_screen(self._kept.pop(name))

    def close(self) -> None:
        """Remove all pages and close the source. No page may be displayed."""
        for page in [*self._kept.values()]:
            self.forget(page)
            page.remove()
        self.source.stop()

    @property
    def refusal(self) -> str:
        """Why keys may not change the race. Empty if they may."""
        return self.source.refusal or self.source.lost() or (READ_ONLY if self.view.readonly else "")

    def may_change(self) -> bool:
        """Return whether keys may change the race; if not, display the reason."""
        if self.refusal:
            self.say(self.refusal)
        return not self.refusal

    def confirmed(self, key: str, lanes: Collection[LaneState], action: str) -> bool:
        """Return whether a key may act on lanes. For lanes of a user's command, ask first."""
        leaves = key == "quit" and self.source.detachable
        lanes_to_confirm = [lane for lane in lanes if lane.script.command or leaves]
        sweeps = leaves and self.sweep is not None and not self.sweep.state.over
        if not lanes_to_confirm and not sweeps:
            return True
        now_ns, confirmed = self.source.snapshot().at_ns, self.asks(key)
        started_ns = self.snapshot.race.started_ns or now_ns
        ends = [(max(started_ns, lane.process.started_ns), lane.end.event) for lane in lanes_to_confirm]
        ran_ns = max(((now_ns if end is None else end.at_ns) - began_ns for began_ns, end in ends), default=0)
        again = key_of(key, self.view.keys)
        ran = progress_text(self.sweep) if sweeps and self.sweep else f"{units.clock(ran_ns / 1e9)} of training"
        if not confirmed and leaves:
            goes_on = f"leave {self.snapshot.race.scenario} running ({key_of(LEAVE, self.view.keys)})"
            self.say(f"{goes_on}, or end it ({again})? {ran}")
        elif not confirmed:
            self.say(f"{action} ({ran})? {again} again: yes")
        self._question = (key, "" if confirmed else self.view.message)
        return confirmed

    def asks(self, key: str) -> bool:
        """Return whether a key's question is displayed."""
        return self._question == (key, self.view.message) and bool(self.view.message)

    def leave(self) -> None:
        """Close the screen; the run continues."""
        self.source.leave()
        self.app.exit("left")

    def quit(self, ending: Ending = "quit") -> None:
        """Close a replay, or end the lanes and close the screen; the second time at once."""
        if self.below is not None:
            self.screen.dismiss(None)
        elif self.source.playback is not None:
            self.app.exit(ending)
        elif self.view.stopping:
            if ending == "quit":
                self.source.send(Command("end now"))
                self.app.exit("forced")
        else:
            self.pull()  # to notice a lost connection
            training = [lane for lane in self.snapshot.lanes if not lane.over]
            can_only_leave = self.source.detachable and self.view.readonly
            if ending == "quit" and can_only_leave:
                self.leave()
                return
            if ending == "quit" and not self.confirmed("quit", training, f"end {self.snapshot.race.scenario}"):
                return
            self.view.stopping = True
            while len(self.app.screen_stack) > 1:
                self.app.pop_screen()
            self.app.draw(self)
            self.work(self.source.stop, lambda _: self.app.exit(ending), lambda _: self.app.exit(ending))

    def work(
        self,
        do: Callable[[], Value],
        then: Callable[[Value], object] | None = None,
        failed: Callable[[str], object] | None = None,
    ) -> None:
        """Call `do` in a thread, then `then` with the result or `failed` with the error."""
        take, fail = then or (lambda _: self.pull()), failed or self.say

        def run() -> None:
            try:
                result = do()
            except TfmonError as error:
                self.app.call_later(fail, error.line)
            else:
                self.app.call_later(take, result)

        start_thread("tfmon-ui", run, lambda reason: self.app.call_later(fail, reason))

    def save_report(self) -> None:
        """Write a report of the recording and display the path."""
        path, runs = self.snapshot.recorded, self.source.runs
        if runs is None or not path:
            self.say("no report: this is not recorded")
            return
        if self.view.busy:
            self.say("a report is being written already")
            return
        race = self.snapshot.race

        def saved(line: str) -> None:
            self.view.busy = ""
            shown = self if self.below is None or self.screen in self.app.screen_stack else self.below
            same = shown is self and self.source.snapshot().race.number == race.number
            shown.notify(line if same else f"report of {race.scenario}: {line}")
            shown.pull()

        self.view.busy = "writing a report of what is recorded up to now…"
        self.pull()
        self.work(lambda: runs.report(path), saved, saved)

    def save_picture(self, table: str) -> None:
        """Save the screen as SVG and a table as text."""
        stem = f"tfmon-{self.snapshot.race.scenario or 'screen'}-{time.strftime('%Y%m%d-%H%M%S')}"
        try:
            message = f"saved {self.app.save_screenshot(f'{stem}.svg', str(Path.cwd()))}"
            if table:
                Path(f"{stem}.txt").write_text(table + "\n", encoding="utf-8")
                message += " and .txt"
        except OSError as error:
            message = f"{stem} could not be saved: {error.strerror or error}"
        self.say(message)
