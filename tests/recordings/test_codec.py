"""Events as lines: each comes back as it was, and nothing else comes back at all."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmon.model.codec import LARGEST_INT, CodecError, clean, encode, parse, plain, read
from tfmon.model.events import BadLine, Event, ExperimentChanged, KnobRequested, LaneEnded
from tfmon.model.lane_events import Window
from tfmon.model.race import CrossoverState
from tfmon.recordings.header import Closed, Header

KINDS = [*get_args(Event), Header, Closed]
TEXT = st.text(max_size=20).map(clean)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return any values of a type, the strangest ones included."""
    if kind is str:
        return TEXT
    if kind is int:
        return st.integers(-LARGEST_INT, LARGEST_INT)
    if kind is float:
        return st.floats() | st.integers(-LARGEST_INT, LARGEST_INT)
    if kind in (bool, type(None)):
        return st.booleans() if kind is bool else st.none()
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{part.name: values_of(hints[part.name]) for part in dataclasses.fields(kind)})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values_of(one) for one in arguments])
    if origin is tuple and arguments[1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is dict:
        return st.dictionaries(*map(values_of, arguments), max_size=3)
    return st.sampled_from(arguments)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_comes_back_as_it_was(kind):
    @settings(deadline=None)
    @given(values_of(kind))
    def check(event: Any) -> None:
        line = encode(event)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        back = read(parse(line), kind)
        assert type(back) is kind
        # Compared as lines: there 1 is not 1.0, True is not 1, and nan is nan.
        assert encode(back) == line

    check()


def test_the_line_of_an_event_is_read_as_any_event():
    event = BadLine(lane="cpu", at_ns=1, problem="not JSON")
    assert read(parse(encode(event)), Event) == event


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_what_is_no_event_is_refused_in_words(value):
    with pytest.raises(CodecError):
        read(value, Event)


def test_a_whole_number_stays_one_where_a_float_may_stand():
    told = ExperimentChanged(
        at_ns=1, experiment=CrossoverState("width", ("a", "b"), (8, 16.0, "auto", True), left_s=42)
    )
    back = read(parse(encode(told)), Event)
    assert [type(value) for value in back.experiment.values] == [int, float, str, bool]
    assert type(back.experiment.left_s) is int


def test_keys_that_are_no_text_and_numbers_that_json_lacks_survive():
    told = ExperimentChanged(
        at_ns=1,
        experiment=CrossoverState("k", ("a", "b"), (), refused={256: "no", "auto": "nor"}, left_s=math.inf),
    )
    back = read(parse(encode(told)), Event)
    assert back.experiment.refused == {256: "no", "auto": "nor"}
    assert back.experiment.left_s == math.inf


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "Windows"}, "unknown type 'Windows'"),
        ({"lane": 3}, "KnobRequested.lane: 3 is no text"),
        ({"at_ns": "now"}, "KnobRequested.at_ns: 'now' is no whole number"),
        ({"at_ns": True}, "KnobRequested.at_ns: True is no whole number"),
        ({"at_ns": 10**30}, "is no whole number"),
        ({"value": [1]}, "KnobRequested.value: [1] is not possible here"),
        ({"value": None}, "KnobRequested.value: None is not possible here"),
        ({"more": 1}, "KnobRequested has no 'more'"),
    ],
)
def test_a_wrong_field_is_named(change, problem):
    body = plain(KnobRequested(lane="cpu", at_ns=1, request=1, knob="batch_size", value=2))
    with pytest.raises(CodecError) as caught:
        read({**body, **change}, Event)
    assert problem in str(caught.value)


def test_a_field_that_is_not_there_takes_its_default_or_is_named():
    body = plain(LaneEnded(lane="cpu", at_ns=1, exit_code=0, signal=None, requested=True, output_tail=("bye",)))
    del body["output_tail"]
    assert read(body, Event).output_tail == ()
    del body["asked"]
    with pytest.raises(CodecError, match="LaneEnded without asked"):
        read(body, Event)


def test_all_text_is_made_safe_to_show():
    bad = "\x1b]0;title\x07\x1b[31mred\u202e"
    ended = LaneEnded(lane=bad, at_ns=1, exit_code=0, signal=bad, requested=True, output_tail=(bad, bad))
    back = read(parse(encode(ended)), Event)
    assert (back.lane, back.signal, back.output_tail) == ("red", "red", ("red", "red"))
    asked = KnobRequested(lane="a", at_ns=1, request=1, knob=bad, value=bad)
    assert read(parse(encode(asked)), Event).value == "red"
    window = {**plain(_window()), "settings": {bad: bad}}
    assert read(window, Event).settings == {"red": "red"}


def _window() -> Window:
    zeros = dict.fromkeys(
        ("input_ns", "call_ns", "sync_ns", "report_ns", "longest_ns", "steps", "examples", "step"), 0
    )
    return Window(lane="a", at_ns=1, span_ns=1, histogram={}, loss=None, settings={}, **zeros)


@pytest.mark.parametrize("line", [b"", b"{", b"\xff\n", b"[" * 100_000, b"9" * 5_000])
def test_what_is_no_json_is_refused(line):
    with pytest.raises(CodecError, match="not JSON"):
        parse(line)
