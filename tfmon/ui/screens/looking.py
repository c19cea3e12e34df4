"""Looking closer at a race: zoom, what the charts show, the cursor, and a display that does not follow."""

from __future__ import annotations

from dataclasses import replace

from textual import events

from tfmon.ui.monitor import Monitor
from tfmon.ui.render import series
from tfmon.ui.render.bars import Zone
from tfmon.ui.render.layout import Rect, arrange
from tfmon.ui.view import LOG, OWN, SCALES, SHARED, SPANS_S, focused_index

_SCALE_WORDS = {SHARED: "one axis for all lanes", OWN: "an axis for each lane", LOG: "a logarithmic axis for all"}
HALF = 2
"""A key scrolls by this part of a chart."""


class Looking:
    """What keys and mouse do to the view alone; no lane notices. For `RaceScreen`.

    Thread: the app's only.
    """

    monitor: Monitor
    charts: tuple[Rect, ...]
    """Where the charts are."""
    _clicked_at: tuple[int, int] = (-1, -1)
    """Where the last click was. For Textual any two clicks on the screen, one soon after the other, are double."""

    def redraw(self) -> None:
        """Draw what is known."""
        raise NotImplementedError

    # ------------------------------------------------------------ zoom

    def action_toggle_zoom(self, lane: int | None = None) -> None:
        """Give a lane the whole width, by default the focused one or else the first; or show all again."""
        view, lanes = self.monitor.view, self.monitor.shown.snapshot.lanes
        if view.zoomed:
            self._look(zoomed=False, focused=view.zoomed_from, zoomed_from=None, cursor=None)
        elif not lanes:
            self.monitor.say("there is no lane yet to zoom in on")
        elif arrange(*self.monitor.app.size, len(lanes)).kind != "panes":
            self.monitor.say("there is no room to zoom: the terminal is too small")
        else:
            at = lane if lane is not None else focused_index(view, self.monitor.shown.snapshot) or 0
            self._look(zoomed=True, zoomed_from=view.focused, focused=lanes[at].spec.name, cursor=None)

    # ------------------------------------------------------------ what the charts show

    def action_next_metric(self) -> None:
        """Draw the next metric that any lane has."""
        view, snapshot = self.monitor.view, self.monitor.shown.snapshot
        metric = series.next_metric(snapshot, view.metric)
        self._look(metric=metric, scales={})
        chosen = series.BY_ID[metric]
        lacking = [f"{lane.spec.id}: {series.absent(lane, chosen)}" for lane in snapshot.lanes]
        told = [one for one in lacking if not one.endswith(": ")]
        self.monitor.say(" · ".join([f"the charts show {chosen.words}", *told]))

    def action_next_scale(self) -> None:
        """Draw on the next kind of axis: shared, own, logarithmic."""
        scale = SCALES[(SCALES.index(self.monitor.view.scale) + 1) % len(SCALES)]
        self._look(scale=scale, scales={})
        self.monitor.say(f"the charts have {_SCALE_WORDS[scale]}")

    def action_next_span(self) -> None:
        """Draw 1, 5 or 30 minutes."""
        span_s = SPANS_S[(SPANS_S.index(self.monitor.view.span_s) + 1) % len(SPANS_S)]
        self._look(span_s=span_s, scales={}, cursor=None)
        self.monitor.say(f"the charts show the last {span_s // 60} min")

    # ------------------------------------------------------------ the cursor

    def action_move_cursor(self, direction: int) -> None:
        """Move the cursor by a cell, from the newest one that is over; at an edge, scroll what does not follow."""
        view = self.monitor.view
        if not self.charts:
            return
        width = self.charts[0].width
        if view.cursor is None:
            if view.frozen and not view.zoomed:
                self._scroll(-direction * width // (4 * HALF))
            else:
                self._look(cursor=min(1, width - 1), cursor_width=width)
            return
        at = view.cursor - direction
        if at < 0 or at >= width:
            self._scroll(-direction)
        self._look(cursor=max(0, min(width - 1, at)), cursor_width=width)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Read off the moment below the pointer; outside of the charts, end that."""
        view = self.monitor.view
        chart = next((one for one in self.charts if one.contains(event.screen_x, event.screen_y)), None)
        if chart is not None:
            at = chart.x + chart.width - 1 - event.screen_x
            if (view.cursor, view.cursor_width) != (at, chart.width):
                self._point(at, chart.width)
        elif view.cursor is not None:
            self._point(None, 0)

    def _point(self, cursor: int | None, width: int) -> None:
        """Move the cursor and draw what is known already: the mouse moves often."""
        self.monitor.view = replace(self.monitor.view, cursor=cursor, cursor_width=width)
        self.redraw()

    # ------------------------------------------------------------ following

    def action_toggle_follow(self) -> None:
        """Let the display stay as it is while the lanes train on; or go back to now."""
        if self.monitor.view.frozen:
            self.action_follow_now()
        else:
            self.monitor.follow(on=False)

    def action_follow_now(self) -> None:
        """Follow the race again."""
        self.monitor.follow(on=True)

    def _scroll(self, cells: int) -> None:
        """Move the charts of a display that does not follow: back for a positive number of cells."""
        view = self.monitor.view
        if not view.frozen or not self.charts:
            return
        cell_ns = view.span_s * 1_000_000_000 // max(1, self.charts[0].width)
        snapshot = self.monitor.shown.snapshot
        known_ns = series.end_ns(snapshot) - series.first_ns(snapshot)
        longest_ns = max(0, known_ns - view.span_s * 1_000_000_000)
        back_ns = max(0, min(longest_ns, view.back_ns + cells * cell_ns))
        self._look(back_ns=back_ns, scales={} if view.scale != SHARED else view.scales)

    def scroll_page(self, direction: int) -> bool:
        """Scroll by half a chart if the display does not follow; return whether it did."""
        if not self.monitor.view.frozen or not self.charts:
            return False
        self._scroll(-direction * self.charts[0].width // HALF)
        return True

    def double_clicked(self, event: events.Click, zone: Zone | None) -> bool:
        """Zoom in on a pane that is clicked twice in one place, or show all again; return whether no more is due.

        A key that asks is not answered by the same double click.
        """
        before, self._clicked_at = self._clicked_at, (event.screen_x, event.screen_y)
        if event.chain < 2 or before != self._clicked_at:
            return False
        if self.monitor.view.zoomed and zone is None:
            self.action_toggle_zoom()
        elif zone is not None and zone.action.startswith("focus_lane("):
            self.action_toggle_zoom(int(zone.action.removeprefix("focus_lane(").rstrip(")")))
        else:
            return zone is not None and not zone.knob
        return True

    def stop_looking(self) -> bool:
        """End the cursor, or else the zoom; return whether there was one to end."""
        if self.monitor.view.cursor is not None:
            self._look(cursor=None)
        elif self.monitor.view.zoomed:
            self.action_toggle_zoom()
        else:
            return False
        return True

    def _look(self, **changes: object) -> None:
        self.monitor.view = replace(self.monitor.view, **changes)  # type: ignore[arg-type]
        self.monitor.pull()
