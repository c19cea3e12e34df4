"""The pipe's lines: what is written can be read back, and what cannot be read is a CodecError."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, fields, replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmon.model.codec import CodecError, decode_event, decode_request
from tfmon.model.lane_events import (
    PROTOCOL,
    Built,
    Finished,
    FromLane,
    Hello,
    KnobApplied,
    KnobOffered,
    LaneFailed,
    Progressed,
    Window,
)
from tfmon.model.requests import Assign, Request, Run, RunSlice, SetKnob

EVENTS, REQUESTS = get_args(FromLane), get_args(Request)
VALUES = {
    "int": 7,
    "bool": True,
    "float": 0.25,
    "str": "some words ×",
    "KnobValue": "auto",
    "tuple[str, ...]": ("warm-up", "knob change"),
    "dict[str, KnobValue]": {"batch_size": 32, "prefetch": "auto", "augment": True, "rate": 0.5},
    "dict[str, str]": {"CUDA_VISIBLE_DEVICES": "-1"},
    "dict[int, int]": {1280: 3, 1281: 1},
    "tuple[KnobValue, ...]": (16, 0.5, "auto", True),
    "dict[str, float]": {"loss": 0.5, "accuracy": 1.0},
}
WRONG = {
    "int": ["7", 7.0, True, None, [], {}, 10**400, -(10**19)],
    "bool": [0, 1, "True", None, []],
    "float": ["0.5", False, None, [], {}, 10**400],
    "str": [7, True, None, [], {}],
    "KnobValue": [None, [], {}, 10**400],
    "tuple[str, ...]": ["warm-up", [1], {}, None],
    "dict[str, KnobValue]": [[], "x", None, {"a": None}, {"a": []}],
    "dict[str, str]": [[], None, {"a": 1}, {"a": None}],
    "dict[int, int]": [[], None, {"a": 1}, {"1": "1"}, {"1": True}, {"1": 1.5}],
    "tuple[KnobValue, ...]": ["auto", [None], {}, None],
    "dict[str, float]": [[], None, {"a": "1"}, {"a": True}, {"a": None}],
}


def plain(part) -> str:
    return str(part.type).removesuffix(" | None")


def value_of(part):
    """A value of the part's type; a window's span is longer than its parts together."""
    return 700 if part.name == "span_ns" else VALUES[plain(part)]


def built(kind):
    return kind(**{part.name: value_of(part) for part in fields(kind)})


def decode(line: bytes, kind):
    return decode_event(line, VALUES["str"]) if kind in EVENTS else decode_request(line)


def body_of(kind) -> dict:
    return json.loads(encode(built(kind)))


def line_of(body) -> bytes:
    return json.dumps(body).encode()


def parts_of(kind):
    return [part for part in fields(kind) if part.name != "lane"]


EVERY_PART = [
    pytest.param(kind, part, id=f"{kind.__name__}.{part.name}")
    for kind in EVENTS + REQUESTS
    for part in parts_of(kind)
]


@pytest.mark.parametrize("kind", EVENTS + REQUESTS)
def test_every_message_comes_back_as_it_was_sent(kind):
    line = encode(built(kind))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode(line, kind) == built(kind)


@pytest.mark.parametrize("kind", EVENTS + REQUESTS)
def test_every_message_comes_back_with_its_defaults(kind):
    needed = {
        part.name: value_of(part)
        for part in fields(kind)
        if part.default is MISSING and part.default_factory is MISSING
    }
    body = {"v": PROTOCOL, "type": kind.__name__, **needed}
    body.pop("lane", None)
    expected = kind(**needed)
    assert decode(line_of(body), kind) == (replace(expected, lane=VALUES["str"]) if kind in EVENTS else expected)


@pytest.mark.parametrize(("kind", "part"), EVERY_PART)
def test_a_field_of_a_wrong_type_is_refused_by_name(kind, part):
    for wrong in WRONG[plain(part)]:
        if wrong is None and str(part.type).endswith(" | None"):
            continue
        with pytest.raises(CodecError, match=rf"{kind.__name__}\.{part.name} is not "):
            decode(line_of({**body_of(kind), part.name: wrong}), kind)


@pytest.mark.parametrize(("kind", "part"), EVERY_PART)
def test_null_is_read_only_where_none_is_allowed(kind, part):
    line = line_of({**body_of(kind), part.name: None})
    if str(part.type).endswith(" | None"):
        assert getattr(decode(line, kind), part.name) is None
    else:
        with pytest.raises(CodecError):
            decode(line, kind)


@pytest.mark.parametrize(("kind", "part"), EVERY_PART)
def test_a_missing_field_is_refused_unless_it_has_a_default(kind, part):
    body = body_of(kind)
    del body[part.name]
    if part.default is MISSING and part.default_factory is MISSING:
        with pytest.raises(CodecError, match=f"{kind.__name__} without {part.name}"):
            decode(line_of(body), kind)
    else:
        default = part.default_factory() if part.default is MISSING else part.default
        assert getattr(decode(line_of(body), kind), part.name) == default


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"span_ns": 0}, "span_ns is 0"),
        ({"span_ns": -1}, "span_ns is -1"),
        ({"steps": -5}, "steps is -5"),
        ({"examples": 10**18}, "examples is 1000000000000000000"),
        ({"input_ns": 10_000}, "the parts of a Window take 10021 ns of its 700"),
        ({"histogram": {"-1": 1}}, "histogram has 1 in bin -1"),
        ({"histogram": {"99999": 1}}, "histogram has 1 in bin 99999"),
        ({"histogram": {"1": -1}}, "histogram has -1 in bin 1"),
    ],
)
def test_a_window_that_cannot_be_is_refused(wrong, said):
    with pytest.raises(CodecError, match=said):
        decode_event(line_of({**body_of(Window), **wrong}), "cpu")


@pytest.mark.parametrize(
    ("kind", "part"),
    [(Progressed, "batch"), (Built, "examples"), (KnobApplied, "gap_ns"), (Finished, "steps")],
)
def test_a_count_below_nothing_is_refused(kind, part):
    with pytest.raises(CodecError, match=f"{kind.__name__}.{part} is -1"):
        decode_event(line_of({**body_of(kind), part: -1}), "cpu")


@pytest.mark.parametrize(
    ("kind", "part", "value"),
    [
        (Built, "settings", {"rate": math.inf}),
        (Window, "settings", {"rate": math.nan}),
        (KnobApplied, "value", -math.inf),
        (KnobOffered, "choices", [1, math.inf]),
    ],
)
def test_a_setting_that_is_no_number_is_refused(kind, part, value):
    line = json.dumps({**json.loads(line_of(body_of(kind))), part: value}).encode()
    with pytest.raises(CodecError, match=f"{kind.__name__}.{part} has a number that is none"):
        decode_event(line, "cpu")


def test_unknown_keys_are_ignored():
    assert decode_request(line_of({**body_of(RunSlice), "later": [1], "lane": "x"})) == built(RunSlice)


def test_the_reader_names_the_lane_whatever_the_child_says():
    assert decode_event(line_of({**body_of(Hello), "lane": "gpu:7"}), "cpu").lane == "cpu"
    assert "lane" not in body_of(Hello)


@pytest.mark.parametrize("version", [PROTOCOL + 1, 0, "1", None, True, [PROTOCOL]])
def test_another_protocol_version_is_refused(version):
    with pytest.raises(CodecError, match=rf"protocol .*expected {PROTOCOL}"):
        decode_request(line_of({"v": version, "type": "Run"}))


@pytest.mark.parametrize("kind", ["Nothing", None, 3, ["Run"], "Hello"])
def test_an_unknown_type_is_refused_and_events_are_no_requests(kind):
    with pytest.raises(CodecError, match="unknown type"):
        decode_request(line_of({"v": PROTOCOL, "type": kind}))


@pytest.mark.parametrize("line", [b"", b"\n", b"{", b"\xff\xfe", b"[1]", b'"Run"', b"null", b"[" * 60_000])
def test_what_is_no_json_object_is_refused(line):
    with pytest.raises(CodecError, match="not"):
        decode_request(line)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinities_travel_as_words_that_json_has(value):
    line = encode(RunSlice(round=1, seconds=value))
    assert json.loads(line, parse_constant=pytest.fail)["seconds"] == str(value)
    assert decode_request(line) == RunSlice(round=1, seconds=value)


def test_a_loss_that_is_not_a_number_comes_back_as_one():
    line = encode(replace(built(Window), loss=math.nan))
    json.loads(line, parse_constant=pytest.fail)
    event = decode_event(line, "cpu")
    assert isinstance(event, Window) and event.loss is not None and math.isnan(event.loss)


def test_whole_numbers_are_read_as_floats_where_a_float_is_wanted():
    seconds = decode_request(line_of({**body_of(RunSlice), "seconds": 1})).seconds
    assert seconds == 1.0 and isinstance(seconds, float)


def test_a_knob_keeps_the_type_of_its_value():
    for value in (True, 1, 1.5, "on"):
        request = decode_request(encode(SetKnob(request=1, knob="k", value=value)))
        assert request.value == value and type(request.value) is type(value)


def test_escape_sequences_are_cleaned_from_every_string():
    dirty = "a\x1b[31mb\x1b]0;t\x07\u202ec\ud800"
    body = {**body_of(LaneFailed), "message": dirty}
    assert decode_event(line_of(body), "cpu").message == "abc"
    window = decode_event(line_of({**body_of(Window), "marks": [dirty], "settings": {dirty: dirty}}), "cpu")
    assert (window.marks, window.settings) == (("abc",), {"abc": "abc"})
    assert decode_request(line_of({**body_of(SetKnob), "value": dirty})).value == "abc"


def test_a_line_end_in_a_text_does_not_end_the_line():
    request = Assign(scenario="a\nb", device="cpu")
    assert encode(request).count(b"\n") == 1
    assert decode_request(encode(request)) == request


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
NUMBERS = st.integers(-(10**400), 10**400) | st.floats()


def read_or_refuse(line: bytes) -> None:
    for read in (decode_request, lambda text: decode_event(text, "cpu")):
        try:
            message = read(line)
        except CodecError:
            continue
        assert type(message) in EVENTS + REQUESTS


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_read_or_refused(line):
    read_or_refuse(line)


@settings(deadline=None)
@given(JSON, st.sampled_from(EVENTS + REQUESTS), st.data())
def test_any_json_is_read_or_refused(value, kind, data):
    read_or_refuse(line_of(value))
    body = body_of(kind)
    for name in data.draw(st.sets(st.sampled_from(sorted(body)))):
        body[name] = data.draw(JSON | NUMBERS)
    read_or_refuse(line_of(body))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 30_000), st.sampled_from(["v", "type", "seconds", "later"]))
def test_deep_nesting_is_read_or_refused(depth, key):
    body = encode(RunSlice(round=1, seconds=1.0)).strip().removesuffix(b"}")
    read_or_refuse(body + f',"{key}":'.encode() + b"[" * depth + b"]" * depth + b"}")


def test_a_message_without_fields_is_its_type():
    assert json.loads(encode(Run())) == {"v": PROTOCOL, "type": "Run"}


@pytest.mark.parametrize("at_ns", [-1, 10**18])
def test_an_event_at_a_time_that_cannot_be_is_refused(at_ns):
    """A recording of it could not be read again."""
    line = json.dumps({"v": PROTOCOL, "type": "SliceEnded", "at_ns": at_ns, "turn": 1}).encode()
    with pytest.raises(CodecError, match=f"SliceEnded.at_ns is {at_ns}"):
        decode_event(line, "cpu")
