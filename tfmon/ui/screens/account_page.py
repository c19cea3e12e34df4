"""The page of the account of a lane's time."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from tfmon.analysis.run_account import Account, account_lines, account_of
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, crop, indented, meter
from tfmon.ui.render.style import STRONG
from tfmon.ui.screens.page import OneLanePage, closer
from tfmon.ui.screens.text_pages import ScrollPage

NAME_CELLS, BAR_CELLS = 26, 16
NONE = "not known before the first step: a lane reports its account while it trains"


class AccountPage(ScrollPage, OneLanePage):
    """Shows the account of a lane; Tab goes to the next one."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("account")]
    title_text = "Account"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        lane = self.lane
        if lane is None:
            return [BLANK, *indented("there is no lane yet", TEXT, width)]
        self.title_text = f"Account of lane {lane.spec.id}: {lane.title}"
        account = account_of(lane)
        return [BLANK, *(indented(NONE, TEXT, width) if account is None else _account_rows(account, width))]


def _account_rows(account: Account, width: int) -> list[Row]:
    until = "its exit" if account.over else "its last report"
    rows = [*indented(f"From the start of the command to {until}", TEXT, width), BLANK]
    for part, time, share, place in account_lines(account):
        style = DIM if part.startswith("·") else STRONG
        line = f"  {crop(part, NAME_CELLS):<{NAME_CELLS}}{time:>9} {share:>6}  "
        if style == STRONG:
            rows.append(((line, style), *(meter(float(share[:-2]) / 100, BAR_CELLS, TEXT) if share else ())))
        else:
            rows.append(((line, style), (crop(place, max(0, width - len(line) - 2)), TEXT)))
    return rows
