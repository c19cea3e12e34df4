"""A lane that the kernel itself kills for lack of memory; skipped unless `make oom` runs it.

It needs a limit that somebody else has set, for this process and all that it starts. Where all processes of a
group are killed together (`memory.oom.group`), as some containers are set up, it would take the tests along.
"""

import os

import pytest
from support.waiting import wait_for

from tfmon.model.lane_events import LOWER_THE_BATCH, OUT_OF_MEMORY
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.system.limits import GROUP_KILLS, limited_memory

MOST_BYTES = 2 * 2**30


pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif("TFMON_TEST_OOM" not in os.environ, reason="it runs out of memory: make oom asks for that"),
    pytest.mark.skipif(limited_memory(MOST_BYTES, 0)[0] == MOST_BYTES, reason="no limit on memory is set here"),
]


@pytest.mark.parametrize("mode", [CONCURRENT, TURNS])
def test_a_lane_that_the_kernel_kills_for_memory_is_named_as_such(faulty_group, mode):
    faulty_group.race_with("eats_memory", mode=mode)
    wait_for(lambda: faulty_group.faulty.end.event, what="its end")
    faulty = faulty_group.faulty
    assert (faulty.end.event.signal, faulty.end.event.requested) == ("SIGKILL", False)
    assert faulty.trouble.kind == OUT_OF_MEMORY
    assert faulty.trouble.message.startswith("out of memory, it seems: the lane was ended by SIGKILL, and ")
    assert GROUP_KILLS.format("a process") + "; its limit is " in faulty.trouble.message
    assert faulty.trouble.hint == LOWER_THE_BATCH
    assert faulty.points, "what was measured before stays"
    faulty_group.wait_for_steps("cpu", 100)
