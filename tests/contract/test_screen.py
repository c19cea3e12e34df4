"""The race screen draws the rows that it drew before, at the end of kept recordings and at three sizes.

`TFMON_UPDATE=1` writes the rows.
"""

import pytest
from ui.pilot import shown, until, work_off

from contract.kept_runs import EXPECTED, UPDATE, recording
from tfmon.api.live import RecordedRuns, Replay
from tfmon.recordings.player import Player
from tfmon.recordings.reader import Recording
from tfmon.ui.app import MonitorApp

SIZES = ((80, 24), (120, 36), (200, 50))


@pytest.mark.parametrize("name", ("race", "three", "failed", "watch"))
async def test_the_race_screen_draws_the_rows_it_drew(name):
    with Recording(recording(name)) as opened:
        player = Player(opened)
        player.go_to(player.state().to_ns)
        app = MonitorApp(Replay(player, RecordedRuns()), characters="braille")
        async with app.run_test(size=SIZES[0]) as pilot:
            for columns, rows in SIZES:
                await pilot.resize_terminal(columns, rows)
                path = EXPECTED / f"{name}-screen-{columns}x{rows}.txt"
                if UPDATE:
                    await work_off(pilot)
                    path.write_text(shown(pilot) + "\n", encoding="utf-8")
                expected = path.read_text(encoding="utf-8").rstrip("\n")
                await until(pilot, lambda expected=expected: shown(pilot).rstrip("\n") == expected)
