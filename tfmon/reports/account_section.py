"""The account as a section of a report."""

from __future__ import annotations

from tfmon.analysis.result import LaneResult, RaceResult
from tfmon.analysis.run_account import Account, account_lines
from tfmon.model.account import GROUPS
from tfmon.reports import Chart, Section, Table, charts

HEADING = "Where the time of the run went"


def section(result: RaceResult) -> Section:
    """Return the section, long for scenarios."""
    accounts = [(lane, lane.account) for lane in result.lanes if lane.account is not None]
    long = not any(lane.command for lane in result.lanes)
    tables = [_table(lane.label, account) for lane, account in accounts]
    return Section(HEADING, ((*tables, _chart(accounts)) if accounts else ()), long=long)


def _table(name: str, account: Account) -> Table:
    until = "" if account.over else ", up to the last report"
    about = f"{name}: {account.wall_s:.1f} s from the start of its command to its exit{until}"
    return Table([[name, "time", "share", "line"], *account_lines(account)], about, left=(0, 3))


def _chart(accounts: list[tuple[LaneResult, Account]]) -> Chart:
    bars = [
        (lane.id or lane.name, lane.name, group, seconds)
        for lane, account in accounts
        for group, seconds in account.groups.items()
    ]
    shown = [group for group in GROUPS if any(bar[2] == group for bar in bars)]
    legend = [(f"var(--part{GROUPS.index(group)})", group) for group in shown]
    about = "The wall time of each run in seconds."
    spec = charts.bars(bars, GROUPS, f"{HEADING}. {about}", title="s", share=False)
    return Chart(HEADING, about, spec, legend=legend)
