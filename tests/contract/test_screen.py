"""The race screen draws the rows that it drew before, for kept recordings at three sizes of the terminal.

A replay in a real terminal is read at its end, when it no longer changes. `TFMON_UPDATE=1` writes the rows.
"""

import pytest
from support.terminal import Terminal
from support.waiting import wait_for

from contract.kept_runs import EXPECTED, UPDATE, recording

END_KEY = "\x1b[F"
SIZES = ((80, 24), (120, 36), (200, 50))
SETTLED_READS = 100
"""A screen that is the same in so many reads, of 50 ms each, is final."""

pytestmark = pytest.mark.pty


@pytest.mark.parametrize("name", ("race", "three", "failed", "watch"))
def test_the_race_screen_draws_the_rows_it_drew(name, tmp_path):
    terminal = Terminal("replay", str(recording(name)), TZ="UTC", LC_ALL="C.UTF-8", XDG_CONFIG_HOME=str(tmp_path))
    try:
        terminal.wait_for(lambda display: timeline(display).startswith((" replay", " paused")))
        go_to_the_end(terminal)
        for columns, rows in SIZES:
            terminal.resize(columns, rows)
            check(terminal, f"{name}-screen-{columns}x{rows}.txt")
        terminal.process.send("q")
        assert terminal.wait_for_exit() == 0
    finally:
        terminal.close()


def timeline(display: str) -> str:
    return display.splitlines()[-2]


def go_to_the_end(terminal: Terminal) -> None:
    """Press End until the replay has reached its last event: keys that arrive while it opens are lost."""

    def at_end() -> bool:
        terminal.process.send(END_KEY)
        return any(timeline(terminal.read()).startswith(" end ") for _ in range(10))

    wait_for(at_end, what="the replay is at its end")


def check(terminal: Terminal, name: str) -> None:
    """Wait until the screen shows the expected rows; fail with the difference if it settles on others."""
    path = EXPECTED / name
    expected = None if UPDATE else path.read_text(encoding="utf-8")
    rows, unchanged = "", 0
    while unchanged < SETTLED_READS:
        before, rows = rows, "\n".join(row.rstrip() for row in terminal.read().splitlines()) + "\n"
        if rows == expected:
            return
        unchanged = unchanged + 1 if rows == before else 0
    if UPDATE:
        path.write_text(rows, encoding="utf-8")
    else:
        assert rows == expected
