"""A recording for other programs: it has the numbers of the events."""

from dataclasses import replace

from support.events import gpu_sample

from tfmon.model.lane_events import KnobApplied
from tfmon.model.readings import HostSample, Missing
from tfmon.reports.recorded_numbers import samples_of


def test_numbers_of_other_events():
    sample = gpu_sample(
        "G", 1, at_ns=5, busy_pct=50.0, used_bytes=2.0,
        total_bytes=Missing("no"), power_w=3.0, power_limit_w=4.0, temperature_c=5.0, busy_by_pid={1: 2.0},
    )  # fmt: skip
    found = {(one.subject, one.name): one.value for one in samples_of(sample)}
    assert found["gpu:1", "busy_pct"] == 50.0
    assert {one.subject for one in samples_of(replace(sample, hidden=True))} == {"hidden gpu:1"}
    assert not {name for _, name in found} & {"total_bytes", "index", "every_s", "at_ns", "busy_by_pid", "unified"}
    applied = KnobApplied(lane="cpu", at_ns=1, request=1, knob="xla", value=True, step=9, gap_ns=1)
    assert [(one.name, one.value, one.step) for one in samples_of(applied)] == [("knob/xla", True, 9)]
    host = HostSample(at_ns=1, cpu_pct=Missing("first"), memory_used_bytes=1.0, memory_total_bytes=2.0)
    assert "cpu_pct" not in {one.name for one in samples_of(host)}
