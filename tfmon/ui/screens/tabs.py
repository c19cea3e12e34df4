"""The pages beside the race: shown by one key from any other, each kept with its state while another is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from tfmon.model.lane_state import LaneState
from tfmon.ui.view import focused_index

if TYPE_CHECKING:
    from tfmon.ui.app import MonitorApp
    from tfmon.ui.screens.page import Page


class Pages:
    """The pages of one race. A page is made when it is first shown, and is mounted from then on.

    Thread: the app's only.
    """

    def __init__(self, monitor: MonitorApp, base: Screen[Any] | None = None) -> None:
        """Show the pages over `base`, the screen of the race; None for the app's first screen."""
        self._monitor = monitor
        self._base = base
        self._kept: dict[str, Page] = {}
        self.lane = 0
        """Place of the lane that the pages show."""

    @property
    def base(self) -> Screen[Any]:
        """The screen of the race."""
        return self._base or self._monitor.app.screen_stack[0]

    @property
    def kept(self) -> tuple[Page, ...]:
        """The pages that were shown, whether or not one of them is shown now."""
        return tuple(self._kept.values())

    def show(self, name: str) -> None:
        """Show a page, or the race; the page that is shown already gives way to the race."""
        app = self._monitor.app
        above = app.screen_stack[app.screen_stack.index(self.base) + 1 :]
        if not above:
            focused = focused_index(self._monitor.view, self._monitor.snapshot)
            self.lane = self.lane if focused is None else focused
        page = None if name == "race" else self._page(name)
        if page is None or above == [page]:
            for _ in above:
                app.pop_screen()
        elif page in above:
            for _ in above[above.index(page) + 1 :]:
                app.pop_screen()
        else:
            for _ in above[1:]:
                app.pop_screen()
            if above:
                app.switch_screen(page)
            else:
                app.push_screen(page)

    def lane_of(self, lanes: tuple[LaneState, ...]) -> LaneState | None:
        """Return the lane that the pages show; None where there is none."""
        return lanes[self.lane % len(lanes)] if lanes else None

    def close(self) -> None:
        """Remove every page; call it when none of them is shown any more."""
        for page in self._kept.values():
            self._monitor.app.uninstall_screen(page)
            page.remove()
        self._kept = {}

    def _page(self, name: str) -> Page:
        if name not in self._kept:
            page = _make(name, self._monitor)
            self._monitor.app.install_screen(page, f"{name}-{id(self)}")
            self._kept[name] = page
        return self._kept[name]


def _make(name: str, monitor: MonitorApp) -> Page:
    """Make a page; what it needs is loaded here."""
    match name:
        case "lane":
            from tfmon.ui.screens.lane import LanePage

            return LanePage(monitor)
        case "log":
            from tfmon.ui.screens.log import LogPage

            return LogPage(monitor)
        case "knobs":
            from tfmon.ui.screens.choices import KnobPage

            return KnobPage(monitor)
        case "profile":
            from tfmon.ui.screens.text import ProfilePage

            return ProfilePage(monitor)
        case "gpus":
            from tfmon.ui.screens.gpus import GpusPage

            return GpusPage(monitor)
        case "doctor":
            from tfmon.ui.screens.text import DoctorPage

            return DoctorPage(monitor)
        case "runs":
            from tfmon.ui.screens.runs import RunsPage

            return RunsPage(monitor)
    raise ValueError(f"there is no page {name!r}")


class Tabbed:
    """What the race and every page can show by a key."""

    monitor: MonitorApp

    def action_show_tab(self, name: str) -> None:
        """Show a page beside the race, or the race itself."""
        if name in self.monitor.view.tabs:
            self.monitor.pages.show(name)

    def action_profile_lane(self) -> None:
        """Show the profile of a lane; one that has none is profiled."""
        if self.monitor.may_change():
            self.action_show_tab("profile")
