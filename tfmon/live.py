"""A race on the screen: starts the app, hands it the program, and sees to it that no lane outlives it."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

from tfmon.catalog import Card, list_cards
from tfmon.errors import EXIT_INTERRUPTED
from tfmon.headless import SIGNALS
from tfmon.lanes.plan import RacePlan
from tfmon.program import Program
from tfmon.suspension import can_come_back, suspend_job, suspend_with
from tfmon.ui.app import MonitorApp

PATIENCE_S = 1.0
"""How long the app may take to leave after a signal, once the lanes are gone."""


def run(program: Program, card: Card, plan: RacePlan | None) -> str:
    """Show a race until the user leaves; return why it was interrupted, or "".

    Without a plan the race is planned after the first paint: asking a GPU's driver may take seconds.
    Thread: the main thread, for the signals.
    """
    caught: list[str] = []
    program.announce(card)
    app = MonitorApp(
        program.session,
        program.lanes,
        program.bench,
        scenarios=list_cards,
        examine=program.examine,
        profile=program.profile_text,
        on_ready=lambda: program.begin(plan or program.plan(card)),
        on_terminal=lambda: suspend_with(program.lanes.stillness, app.take_terminal),
        suspend=suspend_job if can_come_back() else None,
    )

    def interrupt(number: int, _frame: FrameType | None) -> None:
        caught.append(signal.Signals(number).name)
        app.request_quit()
        threading.Thread(target=_leave_anyway, args=(program,), name="tfmon-leave", daemon=True).start()

    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        ending = app.run()
    finally:
        program.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return f"interrupted by {caught[0]}" if caught and ending != "quit" else ""


def _leave_anyway(program: Program) -> None:
    """End the lanes and then the process, even if the app cannot: a terminal that is gone blocks its writes."""
    program.close()
    time.sleep(PATIENCE_S)
    os._exit(EXIT_INTERRUPTED)
