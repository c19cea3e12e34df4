"""The result of a race as Markdown: the verdict, a table, and what it was measured on. Pure."""

from __future__ import annotations

import re

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.analysis.finish import finish_lines
from tfmon.errors import TfmonError
from tfmon.recordings.header import Header
from tfmon.reports.html.private import hider, keep, strangers_in
from tfmon.reports.html.report import Wanted

_HEADS = ("lane", "examples/s", "95 % CI", "step p50", "p95", "loss", "memory", "CPU", "bottleneck")
_SPECIAL = re.compile(r"([\\`*\[\]<>|~#]|(?<![^\W_])_|_(?![^\W_]))")
"""What Markdown would take for markup; not `_` within a word."""


def to_markdown(found: Analysis, header: Header, wanted: Wanted) -> str:
    """Return the result as Markdown; without names of hosts and users, unless everything is wanted."""
    snapshot, verdict = found.snapshot, found.verdict
    hide = keep if wanted.everything else hider({snapshot.machine.hostname}, strangers_in(snapshot))

    def text(words: str) -> str:
        return _SPECIAL.sub(r"\\\1", hide(" ".join(words.split())))

    rows = [_HEADS, tuple("---" if place in (0, 8) else "---:" for place in range(len(_HEADS)))]
    rows += [tuple(map(text, _cells(lane))) for lane in found.lanes]
    lines = [
        f"**{text(verdict.text)}**",
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        *(
            f"- {text(note)}"
            for note in (verdict.note, *finish_lines(snapshot), snapshot.race.interrupted)
            if note
        ),
        *(f"- {text(f'{one.lane.title}: {one.lane.trouble.message}')}" for one in found.lanes if one.lane.trouble),
        f"- {text(_measured(found))}",
        f"- {text(header.recorded_on)}",
    ]
    try:
        again = hide(wanted.again(snapshot))
    except TfmonError as error:
        again, lines = "", [*lines, f"- no command line repeats it: {text(error.line)}"]
    if again:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", again)), default=0))
        lines += ["", fence, again, fence]
    return "\n".join(lines) + "\n"


def _cells(found: LaneAnalysis) -> tuple[str, ...]:
    lane, speed = found.lane, found.speed
    rate, p50, p95 = lane.steady.examples_per_s, lane.steady.step_ms(0.5), lane.steady.step_ms(0.95)
    losses = [units.loss(one) for one in (lane.first_loss, lane.last_loss) if one is not None]
    cpu = lane.racing_cpu_pct.value
    return (
        f"{lane.spec.id} {lane.title}".strip(),
        "n/a" if rate is None else units.rate(rate),
        "n/a" if speed is None else f"{units.rate(speed.low)} to {units.rate(speed.high)}",
        "n/a" if p50 is None else units.milliseconds(p50),
        "n/a" if p95 is None else units.milliseconds(p95),
        " → ".join(losses) or "n/a",
        "n/a" if not isinstance(lane.private_bytes, float | int) else units.memory(lane.private_bytes),
        "n/a" if cpu is None else units.percent(cpu),
        found.bottleneck.text if found.bottleneck else "n/a",
    )


def _measured(found: Analysis) -> str:
    """Say how it was measured."""
    race = found.snapshot.race
    parts = [
        f"{one.lane.spec.id or one.lane.title} measured for {units.seconds(one.lane.steady.span_ns / 1e9)}, "
        f"{units.discarded(one.lane.discarded_shares)}"
        for one in found.lanes
    ]
    return f"{race.scenario}, lanes in mode {race.mode}; {'; '.join(parts)}"
