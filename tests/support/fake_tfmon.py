"""Runs tfmon with lanes that train nothing: a child on the CPU plays a GPU lane, too. For tests only.

TFMON_TEST_CHILD: another script for the lanes. TFMON_TEST_STALL_S: the shortest silence that counts as a stall.
"""

import functools
import os
from pathlib import Path

from tfmon.api import program
from tfmon.cli.main import main
from tfmon.lanes import watchdog
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.watchdog import Watchdog

CHILD = Path(__file__).parents[1] / "lanes" / "children" / "trainer.py"

if __name__ == "__main__":
    script = Path(os.environ.get("TFMON_TEST_CHILD", CHILD))
    program.LaneGroup = functools.partial(LaneGroup, script=script)
    least_s = float(os.environ.get("TFMON_TEST_STALL_S", watchdog.LEAST_S))
    program.Watchdog = functools.partial(Watchdog, least_s=least_s)
    main()
