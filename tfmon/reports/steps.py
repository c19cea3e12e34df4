"""The parts of a step, and the account of the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.bottleneck_rules import Shares
from tfmon.analysis.result import RaceResult
from tfmon.analysis.run_account import account_lines
from tfmon.model.account import GROUPS
from tfmon.model.lane_events import BINS_PER_OCTAVE
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, known
from tfmon.reports import DASH, Block, Chart, Section, Table, charts
from tfmon.reports.charts import Bar, Point, Series

INPUT, COPY, DISPATCH, BOTH = "waiting for batches", "copying to the device", "dispatch", "compute"
PARTS = (INPUT, COPY, DISPATCH, BOTH, "tracing", "reading the loss", "tfmon itself", "other Python")
"""`page.css` has their colours."""
ACCOUNT = "Where the time of the run went"
BINS = 80
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def section(analysis: Analysis) -> Section:
    """Return the section about the steps."""
    return Section("Steps", (_step_times(analysis), _where_time_goes(analysis)), long=True)


def share_lines(analysis: Analysis) -> Iterator[str]:
    """Yield each lane's parts of a step."""
    for lane in analysis.lanes:
        if lane.bottleneck is not None:
            parts = [f"{part} {share:.1f} %" for part, share in _parts(lane.bottleneck.shares).items() if share]
            yield f"{analysis.snapshot.called(lane.lane)}: time of a step: {', '.join(parts)}"


def key_of(lane: LaneState) -> str:
    """Return the id in charts."""
    return lane.spec.id or lane.spec.name


def full_name(lane: LaneState) -> str:
    """Return such as `C cpu batch 64`."""
    return f"{lane.spec.id} {lane.title}".strip()


def _step_times(analysis: Analysis) -> Chart | None:
    snapshot = analysis.snapshot
    counted = [lane for lane in snapshot.lanes if lane.steady.histogram]
    if not counted:
        return None
    low = min(min(lane.steady.histogram) for lane in counted)
    high = max(max(lane.steady.histogram) for lane in counted)
    width = (high - low) // BINS + 1
    rows = [["lane", *(f"p{100 * share:.0f}" for share in QUANTILES), "steps"]]
    series = []
    for index, lane in enumerate(snapshot.lanes):
        if lane in counted:
            times = [lane.steady.step_ms(share) for share in QUANTILES]
            cells = [DASH if time_ is None else units.milliseconds(time_) for time_ in times]
            rows.append([snapshot.called(lane), *cells, units.count(lane.steady.steps)])
            points = list(_binned(lane, low, high, width))
            series.append(Series(key_of(lane), full_name(lane), index, points))
    about = "From the end of a step to the end of the next, in steady state; the axis is logarithmic."
    spec = charts.distribution(series, "step time, ms", f"Step times. {about}")
    return Chart("Step times", about, spec, Table(rows))


def _binned(lane: LaneState, low: int, high: int, width: int) -> Iterator[Point]:
    """Yield the share of steps in each bin, with empty bins at both ends."""
    total = sum(lane.steady.histogram.values())
    counts: dict[int, int] = {}
    for index, amount in lane.steady.histogram.items():
        counts[(index - low) // width] = counts.get((index - low) // width, 0) + amount
    for bin_index in range(-1, (high - low) // width + 2):
        share = 100 * counts.get(bin_index, 0) / total
        bins = (low + (bin_index + side) * width for side in (0, 1))
        edges = [2.0 ** (bin_ / BINS_PER_OCTAVE) / 1e6 for bin_ in bins]
        note = f"{units.milliseconds(edges[0])} to {units.milliseconds(edges[1])}"
        yield float(f"{(edges[0] * edges[1]) ** 0.5:.5g}"), round(share, 4), f"{share:.2g} %", note


def _where_time_goes(analysis: Analysis) -> Chart | None:
    attributed = [(lane.lane, lane.bottleneck.shares) for lane in analysis.lanes if lane.bottleneck is not None]
    if not attributed:
        return None
    bars: list[Bar] = []
    split = [(lane, analysis.snapshot.called(lane), _parts(shares)) for lane, shares in attributed]
    for lane, name, parts in split:
        bars += [(key_of(lane), name, part, value) for part, value in parts.items() if value]
    about = "Parts of the time of a step in steady state."
    if any(isinstance(shares.device_pct, Missing) for _, shares in attributed):
        about += f" If dispatch and computing cannot be separated, both count as {BOTH}."
    chart = _stacked("Where the time goes", about, bars, PARTS)
    rows = [["lane", *(part for _, part in chart.legend)]]
    for _, name, parts in split:
        sizes = [parts[part] for _, part in chart.legend]
        rows.append([name, *(DASH if size is None else f"{size:.1f} %" for size in sizes)])
    return replace(chart, table=Table(rows))


def _stacked(title: str, about: str, bars: Sequence[Bar], parts: Sequence[str], *, share: bool = True) -> Chart:
    legend = [(f"var(--part{at})", part) for at, part in enumerate(parts) if any(bar[2] == part for bar in bars)]
    return Chart(title, about, charts.bars(bars, parts, f"{title}. {about}", share=share), legend=legend)


def _parts(shares: Shares) -> dict[str, float | None]:
    split = not isinstance(shares.device_pct, Missing) and not isinstance(shares.dispatch_pct, Missing)
    values = (
        known(shares.input_pct), known(shares.copy_pct), known(shares.dispatch_pct) if split else None,
        known(shares.device_pct) if split else shares.step_pct, shares.retrace_pct, shares.sync_pct,
        shares.report_pct, shares.other_pct,
    )  # fmt: skip
    return dict(zip(PARTS, values, strict=True))


def account(result: RaceResult) -> Section:
    """Return the section about the whole run's time."""
    accounts = [(lane, lane.account) for lane in result.lanes if lane.account is not None]
    long = not any(lane.command for lane in result.lanes)
    blocks: list[Block] = []
    bars: list[Bar] = []
    for lane, account in accounts:
        until = "" if account.over else ", up to the last report"
        about = f"{lane.label}: {account.wall_s:.1f} s from the start of its command to its exit{until}"
        blocks.append(Table([[lane.label, "time", "share", "line"], *account_lines(account)], about, left=(0, 3)))
        key = lane.id or lane.name
        bars += [(key, lane.name, group, seconds) for group, seconds in account.groups.items()]
    if bars:
        blocks.append(_stacked(ACCOUNT, "The wall time of each run in seconds.", bars, GROUPS, share=False))
    return Section(ACCOUNT, blocks, long=long)
