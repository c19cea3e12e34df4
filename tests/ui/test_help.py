"""The help explains everything that the panes and the page of a lane show."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.ui import CPU_MACHINE, hosts_demo, racing_demo

from tfmon.model.events import BadLine
from tfmon.model.lane_events import KnobRefused
from tfmon.model.readings import HostSample
from tfmon.ui.keys import PAGE_KEYS, RACE_KEYS, STOP
from tfmon.ui.render import hosts
from tfmon.ui.render.rows import cells, plain
from tfmon.ui.screens.help import IN_PANE, ON_LANE_PAGE, SECTIONS, help_rows
from tfmon.ui.screens.lane import _of_gpu, _of_host, _of_lane, _of_machine

from .drawn import frame

SAYS_ITSELF = {"process", "versions", "name", "temperature", "for memory", "state", "processor", "installed"}
EXPLAINED_WITH = {"busy", "used by lane", "limited by", "link"}
"""Those of `gpu`, `gpu mem`, `clocks` and `PCIe`."""


@pytest.mark.parametrize("machine", [None, CPU_MACHINE])
def test_every_line_of_a_pane_is_explained(machine):
    demo = racing_demo(machine) if machine else racing_demo()
    first, last = demo.names[0], demo.names[-1]
    demo.session.accept(BadLine(lane=first, at_ns=demo.clock(), problem="x"))
    demo.session.accept(
        KnobRefused(lane=last, at_ns=demo.clock(), request=1, knob="prefetch", value=1, reason="no")
    )
    rows = plain(frame(demo, 160, 50).rows)
    labels = {match[1] for row in rows for match in re.finditer(r"│ ([a-z][a-z ]{0,9}?) {1,7}(?=\S)", row)}
    expected = "step time bottleneck loss done knobs cpu memory gpu note refused"
    assert set(expected.split()) <= labels
    assert labels <= {name for name, _ in IN_PANE}


def test_every_reading_on_the_page_of_a_lane_is_explained_or_says_itself_what_it_is():
    demo = racing_demo()
    snapshot = demo.session.snapshot()
    lane, gpu = replace(snapshot.lane("gpu:0"), computing_share=0.5, process=2), snapshot.gpus[0]
    host = HostSample(at_ns=0, cpu_pct=1.0, memory_used_bytes=1.0, memory_total_bytes=2.0)
    remote = hosts_demo().session.snapshot()
    there = (*hosts.lines(remote, remote.lanes[1]), *_of_machine(remote.machine_of(remote.lanes[1])))
    shown = {name for name, _ in (*_of_lane(lane), *_of_gpu(lane, gpu), *_of_host(host), *there)}
    assert {"cpu", "discarded", "clocks", "steal", "round trip"} <= shown
    names = [name for _, section in SECTIONS for name, _ in section]
    explained = set(names)
    assert len(explained) == len(names), "once"
    assert shown <= explained | SAYS_ITSELF | EXPLAINED_WITH
    assert {name for name, _ in ON_LANE_PAGE} <= shown
    assert not explained & SAYS_ITSELF


def test_the_help_lists_every_key_and_fits():
    for width in (24, 40, 80, 200):
        rows = help_rows({"quit": "ctrl+x"}, width)
        shown = plain(rows)
        for key in (*RACE_KEYS, *PAGE_KEYS, STOP):
            label = "Ctrl+X" if key.id == "quit" else key.label
            assert any(row.startswith(f"  {label} ") for row in shown), (width, key.id)
        assert width < 40 or max(map(cells, rows)) <= width
