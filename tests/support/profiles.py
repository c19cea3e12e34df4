"""Profiles whose parts are given."""

from __future__ import annotations

from collections.abc import Mapping

from tfmon.model.profile import Input, Part, Profile
from tfmon.model.readings import Missing

INPUT = ("waiting for input", "")
NOT_HERE = Missing("not in this test")


def profile(times: Mapping[tuple[str, str], float], *, device: str = "CPU", steps: int = 20) -> Profile:
    """Return a profile of parts, by their names and types, with their time of a step in ns."""
    parts = [
        Part(name, kind, device if kind else "", time, time if kind else 0.0, steps if kind else 0)
        for (name, kind), time in times.items()
    ]
    return Profile(
        steps=steps,
        step_ns=sum(times.values()),
        longest_ns=sum(times.values()),
        mode="graph",
        input=Input(times.get(INPUT, NOT_HERE), (), NOT_HERE),
        call=NOT_HERE,
        sync_ns=NOT_HERE,
        other_ns=0.0,
        drain_ns=0.0,
        devices=(),
        ops=NOT_HERE,
        retraced_steps=0,
        retraces=(),
        compiles=(),
        bottleneck=NOT_HERE,
        host_only=False,
        notes=(),
        parts=tuple(parts),
    )
