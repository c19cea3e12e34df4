"""What the screens show and whom they ask: a race that runs, a recording that is played, or a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tfmon.analysis.sweep import Found
from tfmon.model.ports import Controls, Experiments, ReplayControls, RunInfo
from tfmon.model.session import Snapshot
from tfmon.ui.render.tabs import TAB_NAMES

Say: TypeAlias = Callable[[str], object]
"""Shows a line."""


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


def _do_nothing(*_: object) -> None:
    """Start or end nothing."""


@dataclass(frozen=True, slots=True)
class Source:
    """Gives snapshots, and takes what keys request. What a kind of source does not have stays as it is here.

    Thread: the screen's, but for what may block. What raises TfmonError has its text shown.
    """

    snapshot: Callable[[], Snapshot]
    """Returns what is known of the race."""
    controls: Controls | None = None
    """Takes requests to the lanes; None where nothing can be changed."""
    experiments: Experiments | None = None
    """Takes requests for measurements on the lanes; None where nothing can be changed."""
    refusal: str = ""
    """Why no key can change anything; empty where keys can."""
    playback: ReplayControls | None = None
    """Moves through a recording; None where nothing is played."""
    sweep: Callable[[], Found | None] = lambda: None
    """Returns what is known of a sweep; None for a race."""
    unsaved: Callable[[], str] = str
    """Returns why what a sweep measured is not saved; empty while all is well."""
    name: str = ""
    """After which files are named; empty for the scenario of the race."""
    file: str = ""
    """Where it is recorded; empty for where the snapshot says."""
    tabs: tuple[str, ...] = TAB_NAMES
    """The pages beside it."""
    runs: Runs | None = None
    """The recorded runs; None where there is no list of them."""
    scenarios: Callable[[], Sequence[ScenarioRow]] = tuple
    """Returns the scenarios that can be raced instead."""
    table: Callable[[], str] = str
    """Returns all of it as text; empty for what the screen shows."""
    repeat: Callable[[], str] = str
    """Returns the command that repeats the race with the settings in effect, or ""; raises TfmonError."""
    examine: Callable[[], str] = str
    """Returns the doctor's report. May block."""
    profile: Callable[[str], str] = str
    """Profiles the lane of that name and returns the report; raises TfmonError. May block."""
    watch_gpus: Callable[[], str] = str
    """Has all GPUs read from now on, and returns why there are none, or "". May block."""
    start: Callable[[Say], object] = _do_nothing
    """Starts the lanes, once there was a first paint; raises TfmonError. May block."""
    stop: Callable[[], object] = _do_nothing
    """Ends every lane and waits until all are gone, or closes what is played. May block."""
    end_now: Callable[[], object] = _do_nothing
    """Waits no longer for lanes that are ending."""


class Runs(Protocol):
    """The recordings of the user, each named by its id.

    Every method may read the disk for a second: call them off the screen's thread. All raise TfmonError, whose
    text says what was wrong: the folder cannot be read, or a run is gone or damaged.
    """

    def list(self) -> Sequence[RunInfo]:
        """Return all recordings by their start, the oldest first."""

    def delete(self, id: str) -> None:
        """Delete a recording for good; raises TfmonError for one that is being written."""

    def report(self, path: str) -> str:
        """Write a report of the recording in a file into the working directory; return the message to show."""

    def replay(self, id: str) -> Source:
        """Open a recording to play it; the caller stops it."""
