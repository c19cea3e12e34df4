"""What the screens show and whom they ask: a race that runs, a recording that is played, or a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tfmon.analysis.sweep import Found
from tfmon.model.ports import Controls, Experiments, OpenReplay, ReplayControls, Runs
from tfmon.model.session import Session, Snapshot
from tfmon.ui.render.tabs import TAB_NAMES


class ScenarioRow(Protocol):
    """One scenario as the picker shows it."""

    @property
    def name(self) -> str:
        """What `race` takes."""

    @property
    def title(self) -> str:
        """One line."""

    @property
    def doc(self) -> str:
        """A paragraph; may be empty."""

    @property
    def origin(self) -> str:
        """Where it comes from, such as "built in" or a path."""


class Source:
    """Gives snapshots, and takes what keys request. What a kind of source does not have stays as it is here.

    Thread: the screen's, but where a method says that it may block.
    """

    refusal = ""
    """Why no key can change anything; empty where keys can."""
    tabs: tuple[str, ...] = TAB_NAMES
    """The pages beside it."""
    controls: Controls | None = None
    """Takes requests to the lanes; None where nothing can be changed."""
    experiments: Experiments | None = None
    """Takes requests for measurements on the lanes; None where nothing can be changed."""
    playback: ReplayControls | None = None
    """Moves through a recording; None where nothing is played."""
    runs: Runs | None = None
    """The recorded runs; None where there is no list of them."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def snapshot(self) -> Snapshot:
        """Return what is known of the race."""
        return self.session.snapshot()

    def name(self) -> str:
        """Return the name of the scenario, after which files are named; empty for none."""
        return self.snapshot().race.scenario

    def sweep(self) -> Found | None:
        """Return what is known of the sweep; None for a race."""
        return None

    def unsaved(self) -> str:
        """Return why what is measured is not saved; empty while all is well."""
        return ""

    def recording(self) -> str:
        """Return the path of what is recorded; empty for nothing."""
        place = self.snapshot().recording
        return "" if place is None else place.path

    def table(self) -> str:
        """Return all of it as text; empty for what the screen shows."""
        return ""

    def repeat(self) -> str:
        """Return the command that repeats the race with the settings in effect, or ""; raises TfmonError."""
        return ""

    def scenarios(self) -> Sequence[ScenarioRow]:
        """Return the scenarios that can be raced instead."""
        return ()

    def examine(self) -> str:
        """Return the doctor's report. May block."""
        return ""

    def profile(self, lane: str) -> str:
        """Profile the lane of that name and return the report; raises TfmonError. May block."""
        return ""

    def watch_gpus(self) -> str:
        """Have all GPUs read from now on, and return why there are none, or "". May block."""
        return ""

    def start(self, say: Callable[[str], object]) -> None:
        """Start the lanes, once there was a first paint; `say` shows a line. Raises TfmonError. May block."""

    def stop(self) -> None:
        """End every lane and wait until all are gone. May block."""
        if self.controls is not None:
            self.controls.stop()

    def end_now(self) -> None:
        """Wait no longer for lanes that are ending."""
        if self.controls is not None:
            self.controls.end_now()


class Replay(Source):
    """A recording that a player plays."""

    refusal = "this is a replay of a race that is over: nothing in it can be changed"
    tabs = ("race", "lane", "log", "knobs", "gpus", "runs")

    def __init__(self, opened: OpenReplay, runs: Runs | None = None) -> None:
        super().__init__(opened.session)
        self.playback = self._opened = opened
        self.runs = runs

    def table(self) -> str:
        """Return the race at the moment that is shown as text."""
        return self._opened.table()

    def repeat(self) -> str:
        """Return the command that races these lanes with the settings of the moment that is shown."""
        return self._opened.repeat()

    def stop(self) -> None:
        """Close the recording."""
        self._opened.close()
