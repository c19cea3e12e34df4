"""What the screens of a race show: the analysis of a snapshot, and the view of it."""

from __future__ import annotations

from dataclasses import replace

from tfmon.analysis.analysis import Analysis
from tfmon.model.session import Snapshot
from tfmon.ui.view import View


class Display:
    """Keeps what is shown, of the race that runs or of a replay. Thread: the app's only."""

    analysis: Analysis
    """What is known, and what follows from it; computed once for each snapshot."""
    view: View
    _frozen: Analysis | None = None

    def pull(self) -> None:
        """Read the session and draw what changed."""
        raise NotImplementedError

    @property
    def snapshot(self) -> Snapshot:
        """What is known."""
        return self.analysis.snapshot

    @property
    def shown(self) -> Analysis:
        """What the race screen draws: what is known, or what was when the display ceased to follow."""
        return self._frozen or self.analysis

    def freeze(self) -> None:
        """Let the race screen show this moment from now on; the lanes train on."""
        self._frozen = self.analysis
        self.view = replace(self.view, frozen=True, back_ns=0)
        self.pull()

    def unfreeze(self) -> None:
        """Let the race screen follow the race again."""
        self._frozen = None
        self.view = replace(self.view, frozen=False, back_ns=0)
        self.pull()

    def unsay(self) -> None:
        """Take back the line that is shown."""
        self.view = replace(self.view, message="", message_until_ns=0)
