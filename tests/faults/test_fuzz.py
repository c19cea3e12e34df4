"""Whatever lanes say, in whatever order: the session takes it, and every page can be drawn."""

import itertools
import json
from dataclasses import fields, replace
from typing import get_type_hints

from hypothesis import given, settings
from hypothesis import strategies as st
from support.events import START, window
from support.gpu_profile import gpu_profile
from support.results import to_json
from support.ui import Demo

from tfmon.analysis.analysis import analyse
from tfmon.model.codec import CodecError, decode_event, plain
from tfmon.model.event_base import LaneEvent, kinds
from tfmon.model.lane_events import PROTOCOL, Profiled, Window
from tfmon.model.lane_state import PHASES
from tfmon.model.profile import Profile
from tfmon.reports.profile_report import to_text as profile_text
from tfmon.reports.race_report import to_text
from tfmon.ui.render.race_frame import draw
from tfmon.ui.screens.lane_page import lane_rows
from tfmon.ui.source import Display

TEXT = st.sampled_from(["batch_size", "prefetch", "graph", "", "\x1b[2J", "x" * 50, "é\u202e", "[bold]", "\ud800"])
INTS = st.one_of(
    st.integers(-3, 40), st.integers(START, START + 10**10), st.sampled_from([10**17, -(2**63), 2**63])
)
FLOATS = st.floats(allow_nan=True) | st.sampled_from([0.0, -1.0, 1e308])


FIGURES = [part.name for part in fields(Profile) if part.name.endswith("_ns") or part.name == "steps"]
PROFILES = st.fixed_dictionaries({}, optional=dict.fromkeys(FIGURES, FLOATS | INTS)).map(
    lambda changes: replace(gpu_profile(), **changes)
)
for kind, values in {int: INTS, float: FLOATS, str: TEXT | st.sampled_from(PHASES), Profile: PROFILES}.items():
    st.register_type_strategy(kind, values)


def lines_of(kind) -> st.SearchStrategy[bytes]:
    """Lines of this kind of event whose fields are of the right type and otherwise anything."""
    parts = {name: st.from_type(part) for name, part in get_type_hints(kind).items() if name != "lane"}
    return st.fixed_dictionaries(parts).map(
        lambda body: json.dumps({"v": PROTOCOL, "type": kind.__name__, **plain(body)}).encode()
    )


WINDOW = {name: value for name, value in plain(window(START + 10**9)).items() if name != "lane"}
NEARLY_RIGHT = st.tuples(lines_of(Window), st.sets(st.sampled_from(sorted(WINDOW)), max_size=12)).map(
    lambda drawn: json.dumps(
        {**json.loads(drawn[0]), **{name: WINDOW[name] for name in WINDOW if name not in drawn[1]}}
    )
)
"""Windows with some fields that are anything: most of the others are refused."""
LINES = st.lists(
    st.tuples(
        st.sampled_from(["cpu", "gpu:0"]),
        st.one_of(NEARLY_RIGHT.map(str.encode), *map(lines_of, kinds(LaneEvent))),
    ),
    max_size=30,
)


@settings(max_examples=40)
@given(LINES)
def test_any_events_in_any_order_can_be_taken_shown_and_told(lines):
    demo = Demo(mode="turns").go().race(2)
    for lane, line in lines:
        try:
            event = decode_event(line, lane)
        except CodecError:
            continue
        demo.session.accept(event)
        if isinstance(event, Profiled):
            assert "\x1b" not in profile_text(event.profile)
    snapshot = demo.session.snapshot()
    for width, height in ((120, 36), (60, 14), (30, 3)):
        frame = draw(analyse(snapshot), Display(), width, height)
        for row in itertools.chain(frame.above, frame.below, *frame.panes.values()):
            assert not {id for text, _ in row for id in text if id < " " or "\x7f" <= id < "\xa0"}
    for lane in snapshot.lanes:
        assert lane_rows(analyse(snapshot), lane, 100)
    json.dumps(to_json(analyse(snapshot)), allow_nan=False)
    assert "\x1b" not in to_text(analyse(snapshot))
