"""The display of a source, and the actions of its keys."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from textual.screen import Screen

from tfmon import units
from tfmon.analysis.analysis import analyse
from tfmon.analysis.series_tables import progress_text
from tfmon.analysis.sweep_ranking import Ranking, rank
from tfmon.model.lane_state import PAUSED, LaneState
from tfmon.model.ports import Source
from tfmon.model.session import Snapshot
from tfmon.ui.keys import TABS, key_of
from tfmon.ui.render.bars import failure_line
from tfmon.ui.source import Display, focused_index, with_failures
from tfmon.ui.terminal import TerminalApp
from tfmon.units import Charset

SECOND_NS = 1_000_000_000
CALM_NS = 10 * SECOND_NS
"""Time after a key press until the screen is drawn less often."""
MESSAGE_S = 5.0
NOTICE_S = 3.0
"""A key press sooner than this after a notice does not remove the notice."""
FOREVER_NS = 2**63
LEAVE = "doctor"
"""Id of the key that leaves a detachable run."""
READ_ONLY = "read only: this screen shows the race and changes nothing (--readonly)"

Value = TypeVar("Value")
Ending: TypeAlias = Literal["quit", "forced", "signal", "left"]
"""How the app ended: "forced" if the user did not wait, "left" if the run continues."""


class Monitor:
    """The display of a source and the requests of its keys. Thread: the app's."""

    def __init__(
        self,
        app: TerminalApp[Ending],
        source: Source,
        make: Callable[[str, Monitor], Screen[Any]],
        *,
        charset: Charset,
        keys: Mapping[str, str],
        readonly: bool = False,
        below: Monitor | None = None,
    ) -> None:
        self.app, self.source, self.below = app, source, below
        self._make = make
        self.analysis = analyse(source.snapshot())
        self.sweep = self._ranked()
        self.lane = 0
        self.said = 0
        self.view = Display(
            charset=charset,
            keys=keys,
            readonly=readonly,
            race=self.snapshot.race.number,
            replay=source.playback is not None,
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
        self._told: tuple[str, ...] = ()

    @functools.cached_property
    def screen(self) -> Screen[Any]:
        """The race, replay or sweep."""
        return self._make("race", self)

    def over(self, source: Source) -> Monitor:
        """Return a monitor of another source that is shown above this one."""
        view = self.view
        return Monitor(self.app, source, self._make, charset=view.charset, keys=view.keys, below=self)

    @property
    def snapshot(self) -> Snapshot:
        """The current state."""
        return self.analysis.snapshot

    def touched(self) -> None:
        """Draw every change at once for a while after a key."""
        self._touched_ns = self.snapshot.at_ns

    def moves(self) -> bool:
        """Return whether to draw now."""
        snapshot = self.source.snapshot()
        return snapshot.at_ns // SECOND_NS != self.snapshot.at_ns // SECOND_NS or self.lively(snapshot)

    def lively(self, snapshot: Snapshot) -> bool:
        """Return whether every two seconds is not enough."""
        training = any(not lane.over and lane.phase != PAUSED for lane in snapshot.lanes)
        since_ns = max(self._touched_ns, snapshot.race.started_ns or snapshot.at_ns)
        calm = snapshot.at_ns - since_ns > CALM_NS
        return (training and not calm) or self.below is not None

    def play(self) -> None:
        """Draw, if a recording is played."""
        if self.source.playback is not None and self.source.playback.state().playing:
            self.pull()

    def _ranked(self, before: Ranking | None = None) -> Ranking | None:
        state = self.snapshot.sweep
        if state is None or (before is not None and before.state is state):
            return before
        return rank(state, None if state.over else before)  # at its end as when its file is read

    def pull(self) -> None:
        """Play on, read the source, and draw what changed."""
        if self.source.playback is not None:
            now_s = time.monotonic()
            self.source.playback.tick(0.0 if self._played_s is None else now_s - self._played_s)
            self._played_s = now_s
        self.analysis = analyse(self.source.snapshot(), self.analysis)
        self.sweep = self._ranked(self.sweep)
        if self.view.race != self.snapshot.race.number:  # focus, scales and failures came from another race
            fresh = replace(self.view, race=self.snapshot.race.number, zoomed=False)
            self.view = replace(fresh, focused=None, scales={}, seen=(), unseen=())
        if lost := self.source.lost():
            self.view = replace(self.view, notice=lost, readonly=True)
        if (below := self.below) is not None:
            live = with_failures(below.view, below.snapshot, ())
            line = failure_line(live, below.snapshot, key_of("close", self.view.keys))
            if line and (live.unseen != self._told or not self.view.message):
                self._told, said = live.unseen, f"in the race that runs: {line}"
                self.view = replace(self.view, message=said, message_until_ns=FOREVER_NS)
        self.app.draw(self)

    def say(self, message: str, done: Callable[[Snapshot], bool] | None = None) -> None:
        """Show a line for some seconds, or until `done`."""
        self.said += 1
        number = self.said
        until_ns = self.source.snapshot().at_ns + round(MESSAGE_S * SECOND_NS)

        def unsay() -> None:
            if self.said == number and self.view.message == message:  # and not the same line, said again
                self.unsay()
                self.pull()

        if self.source.playback is not None:  # whose clock is the race's
            until_ns = FOREVER_NS
            self.app.set_timer(MESSAGE_S, unsay)
        self.view = replace(self.view, message=message, message_until_ns=until_ns, message_done=done)
        self.pull()

    def unsay(self) -> None:
        """Take back the line that is shown."""
        kept = self.view.notice if time.monotonic() - self._noticed_s < NOTICE_S else ""
        self.view = replace(self.view, message="", message_until_ns=0, notice=kept)

    def notify(self, line: str) -> None:
        """Show a line until a key is pressed, without drawing, which may have failed."""
        self._noticed_s = time.monotonic()
        self.view = replace(self.view, message="", message_until_ns=0, notice=line)

    def open(self, name: str) -> None:
        """Show a page, which closes again, over the current one."""
        self.app.push_screen(self._make(name, self))

    def show(self, name: str) -> None:
        """Show a page; a page that is shown already closes."""
        app = self.app
        above = app.screen_stack[app.screen_stack.index(self.screen) + 1 :]
        if not above:
            focused = focused_index(self.view, self.snapshot)
            self.lane = self.lane if focused is None else focused
        if name != "race" and name not in self._kept:
            self._kept[name] = self._make(name, self)
            app.install_screen(self._kept[name], f"{name}-{id(self)}")
        for _ in above:
            app.pop_screen()
        page = self._kept.get(name)
        if page is not None and above != [page]:
            app.push_screen(page)

    def forget(self, page: Screen[Any]) -> None:
        """Make a page again when it is shown next."""
        for name in [name for name, kept in self._kept.items() if kept is page]:
            self.app.uninstall_screen(self._kept.pop(name))

    def close(self) -> None:
        """Remove every page and close the source. No page may be displayed."""
        for page in [*self._kept.values()]:
            self.forget(page)
            page.remove()
        self.source.stop()

    @property
    def refusal(self) -> str:
        """Reason why keys may not change the race. Empty if they may."""
        return self.source.refusal or self.source.lost() or (READ_ONLY if self.view.readonly else "")

    def may_change(self) -> bool:
        """Return whether keys may change the race; if not, say why."""
        if self.refusal:
            self.say(self.refusal)
        return not self.refusal

    def confirmed(self, key: str, lanes: Collection[LaneState], what: str) -> bool:
        """Return whether a key may act on lanes. Asks once for lanes of a user's command."""
        leaves = key == "quit" and self.source.detachable
        own = [lane for lane in lanes if lane.script.command or leaves]
        sweeps = leaves and self.sweep is not None and not self.sweep.state.over
        if not own and not sweeps:
            return True
        now_ns, confirmed = self.source.snapshot().at_ns, self.asks(key)
        started_ns = self.snapshot.race.started_ns or now_ns
        ends = [(max(started_ns, lane.process.started_ns), lane.end.event) for lane in own]
        ran_ns = max(((now_ns if end is None else end.at_ns) - began_ns for began_ns, end in ends), default=0)
        again = key_of(key, self.view.keys)
        ran = progress_text(self.sweep) if sweeps and self.sweep else f"{units.clock(ran_ns / 1e9)} of training"
        if not confirmed and leaves:
            goes_on = f"leave {self.snapshot.race.scenario} running ({key_of(LEAVE, self.view.keys)})"
            self.say(f"{goes_on}, or end it ({again})? {ran}")
        elif not confirmed:
            self.say(f"{what} ({ran})? {again} again: yes")
        self._question = (key, "" if confirmed else self.view.message)
        return confirmed

    def asks(self, key: str) -> bool:
        """Return whether the question of a key is shown."""
        now_ns = self.source.snapshot().at_ns
        return self._question == (key, self.view.message) and now_ns < self.view.message_until_ns

    def leave(self) -> None:
        """Leave a run that continues without the screen."""
        self.source.leave()
        self.app.exit("left")

    def quit(self, ending: Ending = "quit") -> None:
        """Go back, or end the lanes and leave; the second time at once."""
        if self.below is not None:
            self.screen.dismiss(None)
        elif self.source.playback is not None:
            self.app.exit(ending)
        elif self.view.stopping:
            if ending == "quit":
                self.source.end_now()
                self.app.exit("forced")
        else:
            training = [lane for lane in self.snapshot.lanes if not lane.over]
            can_only_leave = self.source.detachable and self.view.readonly
            if ending == "quit" and can_only_leave:
                self.leave()
                return
            if ending == "quit" and not self.confirmed("quit", training, f"end {self.snapshot.race.scenario}"):
                return
            self.view = replace(self.view, stopping=True)
            while len(self.app.screen_stack) > 1:
                self.app.pop_screen()
            self.pull()
            self.work(self.source.stop, lambda _: self.app.exit(ending), lambda _: self.app.exit(ending))

    def work(
        self,
        do: Callable[[], Value],
        then: Callable[[Value], object] | None = None,
        failed: Callable[[str], object] | None = None,
    ) -> None:
        """Call `do` in a thread, then `then` with its result or `failed` with an error."""
        self.app.work(do, then or (lambda _: self.pull()), failed or self.say)

    def save_report(self) -> None:
        """Write a report of the recording, and show its path."""
        recording, runs = self.snapshot.recording, self.source.runs
        path = recording.path if recording is not None else ""
        if runs is None or not path:
            self.say("no report: this is not recorded")
            return
        if self.view.busy:
            self.say("a report is being written already")
            return
        race = self.snapshot.race

        def saved(line: str) -> None:
            self.view = replace(self.view, busy="")
            closed = self.below is not None and self.screen not in self.app.screen_stack
            shown = self.below if closed and self.below is not None else self
            same = shown is self and self.source.snapshot().race.number == race.number
            shown.notify(line if same else f"report of {race.scenario}: {line}")
            shown.pull()

        self.view = replace(self.view, busy="writing a report of what is recorded up to now…")
        self.pull()
        self.work(lambda: runs.report(path), saved, saved)

    def save_picture(self, table: str) -> None:
        """Save the screen as SVG and a table as text."""
        stem = f"tfmon-{self.snapshot.race.scenario or 'screen'}-{time.strftime('%Y%m%d-%H%M%S')}"
        try:
            said = f"saved {self.app.save_screenshot(f'{stem}.svg', str(Path.cwd()))}"
            if table:
                Path(f"{stem}.txt").write_text(table + "\n", encoding="utf-8")
                said += " and .txt"
        except OSError as error:
            said = f"{stem} could not be saved: {error.strerror or error}"
        self.say(said)
