"""Races that never were, recorded: what is in the file, and what was known at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support import ui
from support.ui import Demo, racing_demo
from tfmon.model.session import Session, Snapshot
from tfmon.recordings.recorder import Recorder

DATA = Path(__file__).parents[1] / "recordings" / "data"
REAL = DATA / "schema-1.jsonl"
"""Two lanes of small-dense on two cores, 4 s."""


def record(
    path: Path | None, monkeypatch: pytest.MonkeyPatch, happen: Callable[[], Demo] = racing_demo
) -> tuple[Demo, Snapshot]:
    """Let something happen in a session that is recorded; return it and what was known at its end."""
    recorders: list[Recorder] = []

    def recorded(*arguments) -> Session:
        session = Session(*arguments)
        recorders.append(Recorder(session, Path(sys.executable), path))
        return session

    with monkeypatch.context() as patch:
        patch.setattr(ui, "Session", recorded)
        demo = happen()
    recorders[0].close()
    return demo, demo.session.snapshot()
