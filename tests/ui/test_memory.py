"""What was on the screen once is let go of: a monitor runs for days."""

from __future__ import annotations

import gc

import pytest
from support.ui import racing_demo
from textual.strip import Strip

from .test_app import app_of, press


def lines_kept() -> int:
    gc.collect()
    return sum(isinstance(thing, Strip) for thing in gc.get_objects())


@pytest.mark.parametrize("pages", [("enter", "question_mark", "k", "E", "c", "s", "l", "d"), ("colon",)])
async def test_pages_that_were_closed_leave_no_lines(pages):
    """Textual keeps those of every widget it ever drew, unless it is kept from doing so."""
    async with app_of(racing_demo()).run_test(size=(120, 36)) as pilot:
        kept = []
        for _ in range(3):
            for page in pages:
                await press(pilot, page)
                await pilot.pause()
                await press(pilot, "escape")
                await pilot.pause()
            kept.append(lines_kept())
    assert kept[-1] <= kept[0] + 5, kept
