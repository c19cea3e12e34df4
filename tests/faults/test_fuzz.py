"""Whatever lanes say, in whatever order: the session takes it, and every page can be drawn."""

import itertools
import json
from dataclasses import fields
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from support.gpu_profile import gpu_profile
from support.results import to_json
from support.ui import START, Demo

from tfmon.analysis.analysis import analyse
from tfmon.model.account import TimePart
from tfmon.model.codec import CodecError, decode_event, plain
from tfmon.model.lane_events import PROTOCOL, FromLane, Profiled, Window
from tfmon.model.lane_state import PHASES
from tfmon.model.readings import SliceLoad
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
KNOBS = st.one_of(st.booleans(), INTS, FLOATS, TEXT)
VALUES = {
    "int": INTS,
    "bool": st.booleans(),
    "float": FLOATS,
    "str": TEXT | st.sampled_from(PHASES),
    "KnobValue": KNOBS,
    "tuple[KnobValue, ...]": st.lists(KNOBS, max_size=3),
    "dict[str, str]": st.dictionaries(TEXT, TEXT, max_size=3),
    "dict[str, Amount]": st.dictionaries(TEXT, INTS, max_size=3),
    "dict[str, float]": st.dictionaries(TEXT, FLOATS, max_size=3),
    "tuple[str, ...]": st.lists(TEXT, max_size=3),
    "dict[str, KnobValue]": st.dictionaries(TEXT, KNOBS, max_size=3),
    "dict[Bin, Amount]": st.dictionaries(st.integers(-1, 5_000).map(str), st.integers(-1, 9), max_size=3),
}
VALUES |= dict.fromkeys(("Amount", "Stamp", "Annotated[int, Range(1, 10 ** 17)]"), INTS)
VALUES |= dict.fromkeys(("FiniteFloat", "Annotated[float, Range(0, 1)]"), FLOATS)


def parts_of(kind) -> dict[str, st.SearchStrategy]:
    """Values for each field of a record, of the right type and otherwise anything."""
    parts = {}
    for part in fields(kind):
        annotation = str(part.type)
        values = VALUES[annotation.removesuffix(" | None")]
        parts[part.name] = st.none() | values if annotation.endswith(" | None") else values
    return parts


PROFILE = plain(gpu_profile())
VALUES["Profile"] = st.fixed_dictionaries({}, optional={name: FLOATS | INTS for name in PROFILE}).map(
    PROFILE.__or__
)
VALUES["SliceLoad"] = st.fixed_dictionaries(parts_of(SliceLoad))
VALUES["tuple[TimePart, ...]"] = st.lists(st.fixed_dictionaries(parts_of(TimePart)), max_size=3)


def lines_of(kind) -> st.SearchStrategy[bytes]:
    """Lines of this kind of event whose fields are of the right type and otherwise anything."""
    parts = parts_of(kind)
    parts.pop("lane", None)
    return st.fixed_dictionaries({"v": st.just(PROTOCOL), "type": st.just(kind.__name__), **parts}).map(
        lambda body: json.dumps(body).encode()
    )


WINDOW = {
    "at_ns": START + 10**9, "span_ns": 10**9, "steps": 4, "examples": 40, "step": 4, "input_ns": 7, "call_ns": 7,
    "sync_ns": 7, "report_ns": 7, "longest_ns": 7, "histogram": {"1280": 4}, "loss": 0.5, "settings": {},
}  # fmt: skip
NEARLY_RIGHT = st.tuples(lines_of(Window), st.sets(st.sampled_from(sorted(WINDOW)), max_size=12)).map(
    lambda drawn: json.dumps(
        {**json.loads(drawn[0]), **{name: WINDOW[name] for name in WINDOW if name not in drawn[1]}}
    )
)
"""Windows with some fields that are anything: most of the others are refused."""
LINES = st.lists(
    st.tuples(
        st.sampled_from(["cpu", "gpu:0"]),
        st.one_of(NEARLY_RIGHT.map(str.encode), *map(lines_of, get_args(FromLane))),
    ),
    max_size=30,
)


@settings(max_examples=60)
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
        for row in itertools.chain(*frame.parts.values(), *frame.panes.values()):
            assert not {id for text, _ in row for id in text if id < " " or "\x7f" <= id < "\xa0"}
    for lane in snapshot.lanes:
        assert lane_rows(analyse(snapshot), lane, 100)
    json.dumps(to_json(analyse(snapshot)), allow_nan=False)
    assert "\x1b" not in to_text(analyse(snapshot))
