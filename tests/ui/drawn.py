"""The race screen as it is drawn, without an app."""

from __future__ import annotations

from support.ui import Demo

from tfmon.analysis.analysis import analyse
from tfmon.ui.render.race import RaceFrame, draw
from tfmon.ui.render.rows import plain
from tfmon.ui.source import Display


def frame(demo: Demo, width: int = 120, height: int = 36, **view) -> RaceFrame:
    return draw(analyse(demo.session.snapshot()), Display(**view), width, height)


def text(shown: RaceFrame) -> str:
    return "\n".join(plain(shown.rows))
