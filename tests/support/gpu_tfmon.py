"""Runs tfmon with lanes that train nothing; the driver is the library that LD_LIBRARY_PATH finds.

A GPU lane is played by a child on the CPU that claims the GPU it was started for. LANE names another script to
play the lanes. For tests only.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from tfmon.cli.main import main
from tfmon.lanes.group import LaneGroup
from tfmon.runner import program

CHILD = Path(os.environ.get("LANE", Path(__file__).parents[1] / "lanes" / "children" / "trainer.py"))

if __name__ == "__main__":
    program.LaneGroup = functools.partial(LaneGroup, script=CHILD)
    main()
