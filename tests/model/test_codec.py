"""JSON lines: written values are read back unchanged, and everything else is a CodecError."""

import json
import math
import types
import unicodedata
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.events import WINDOW

from tfmon.model.codec import (
    LARGEST_INT,
    CodecError,
    clean,
    decode_event,
    decode_request,
    encode,
    encode_message,
    parse,
    read,
)
from tfmon.model.event_base import Event, LaneEvent, kinds
from tfmon.model.header import Closed, Header
from tfmon.model.lane_events import PROTOCOL, Finished, KnobApplied, SliceEnded, Window
from tfmon.model.requests import Request, Run, RunSlice

MESSAGES = (*kinds(LaneEvent), *get_args(Request))


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return any values of a type, the strangest ones included."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is str:
        return st.text(max_size=20).map(clean)
    if kind is int:
        return st.integers(-LARGEST_INT, LARGEST_INT)
    if kind is float:
        return st.floats() | st.integers(-LARGEST_INT, LARGEST_INT)
    if kind in (bool, type(None)):
        return st.booleans() if kind is bool else st.none()
    if origin is Annotated:
        low, high = arguments[1].low, arguments[1].high
        return st.integers(low, high) if arguments[0] is int else st.floats(low, high)
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        built = st.builds(kind, **{part.name: values_of(hints[part.name]) for part in fields(kind)})
        return built.map(possible) if kind is Window else built
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is tuple and arguments[1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is dict:
        return st.dictionaries(*map(values_of, arguments), max_size=3)
    return st.sampled_from(arguments)


def possible(window: Window) -> Window:
    parts = ("input_ns", "call_ns", "sync_ns", "report_ns")
    return replace(window, span_ns=10**17, **{name: getattr(window, name) // 4 for name in parts})


def line_of(sent: Any, /, **changes: Any) -> bytes:
    """Return the line of a message with some keys changed; a value of ... leaves the key out."""
    body = {**json.loads(encode_message(sent)), **changes}
    return json.dumps({key: value for key, value in body.items() if value is not ...}).encode()


@settings(max_examples=60)
@given(st.one_of([values_of(kind) for kind in (*kinds(Event), *get_args(Request), Header, Closed)]))
def test_everything_comes_back_as_it_was(value):
    kind = type(value)
    ways = [(encode, lambda line: read(parse(line), Event if kind in kinds(Event) else kind))]
    if kind in MESSAGES:
        decode = decode_request if kind in get_args(Request) else lambda line: decode_event(line, "cpu")
        ways.append((encode_message, decode))
    for write, decode in ways:
        line = write(value)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        back = decode(line)
        assert type(back) is kind
        assert write(back) == line, "as lines, 1 is not 1.0, True is not 1, and nan is nan"


class TestMessages:
    @pytest.mark.parametrize(
        ("message", "wrong", "said"),
        [
            (WINDOW, {"span_ns": 0}, "Window.span_ns: 0 is not from 1 to 1e.17"),
            (WINDOW, {"steps": 1.0}, "Window.steps: 1.0 is not a whole number"),
            (WINDOW, {"steps": True}, "Window.steps: True is not a whole number"),
            (WINDOW, {"examples": 10**18}, "Window.examples: 10+ is not from 0"),
            (WINDOW, {"input_ns": 10**9}, "Window: its parts take 1180000000 ns of 200000000"),
            (WINDOW, {"histogram": [[99_999, 1]]}, "Window.histogram: 99999 is not from 0 to 4096"),
            (WINDOW, {"histogram": {"1": 1}}, "Window.histogram: '1' is not a whole number"),
            (WINDOW, {"computing_share": "nan"}, "Window.computing_share: nan is not from 0 to 1"),
            (WINDOW, {"settings": {"rate": math.nan}}, "Window.settings: nan is not"),
            (WINDOW, {"loss": "much"}, "Window.loss: 'much' is no"),
            (SliceEnded(at_ns=1, round=1), {"at_ns": -(10**18)}, "SliceEnded.at_ns: -1000000000000000000 is not"),
            (Finished(at_ns=1, steps=1), {"steps": -1}, "Finished.steps: -1 is not"),
            (
                KnobApplied(at_ns=1, request=1, knob="k", value=1, step=1, gap_ns=1),
                {"value": -math.inf}, "KnobApplied.value: -inf is not",
            ),
        ],
    )  # fmt: skip
    def test_a_figure_that_cannot_be_is_refused_by_name(self, message, wrong, said):
        with pytest.raises(CodecError, match=said):
            decode_event(line_of(message, **wrong), "cpu")

    @pytest.mark.parametrize(
        ("said", "lines"),
        [
            (rf"protocol .*expected {PROTOCOL}", [line_of(Run(), v=one) for one in (1, 3, "2", None, True, [2])]),
            ("type", [line_of(Run(), type=one) for one in ("Nothing", None, 3, ["Run"], "Hello", ...)]),
            ("not", [b"", b"\n", b"{", b"\xff\xfe", b"[1]", b'"Run"', b"null", b"[" * 100_000, b"9" * 5_000]),
        ],
    )
    def test_what_is_no_request_is_refused(self, said, lines):
        for line in lines:
            with pytest.raises(CodecError, match=said):
                decode_request(line)


NUMBERS = st.integers(-(10**400), 10**400) | st.floats()
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=30)
@given(st.binary(max_size=200), JSON, st.sampled_from([WINDOW, RunSlice(round=1, seconds=1.0)]), st.data())
def test_any_line_is_read_or_refused(binary, value, message, data):
    body = json.loads(encode_message(message))
    changed = {name: data.draw(JSON) for name in data.draw(st.sets(st.sampled_from(sorted(body))))}
    for line in (binary, json.dumps(value).encode(), json.dumps({**body, **changed}).encode()):
        for decode in (decode_request, lambda text: decode_event(text, "cpu")):
            try:
                assert isinstance(decode(line), MESSAGES)
            except CodecError:
                continue


class TestText:
    @pytest.mark.parametrize(
        ("dirty", "shown"),
        [
            ("\x1b[2J\x1b[10;20Hgone", "gone"),
            ("\x9b31mred", "red"),
            ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x9d0;title\x9ctext", "text"),
            ("\x1bPq#0\x1b\\text", "text"),
            ("\x1b(Btext\x1b7\x1bM\x1bc", "text"),
            ("\x1b]0;no end\nthe error", "\nthe error"),
            ("text\x1b[31", "text"),
            ("a\x00b\x07c\rd\x7fe\x85f", "abcdef"),
            ("one\ntwo\tthree", "one\ntwo    three"),
            ("safe\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069exe", "safeexe"),
            ("a\ud800b\udcff", "ab"),
            ("Größe 大きさ × שלום 🙂", "Größe 大きさ × שלום 🙂"),
        ],
    )
    def test_what_steers_a_terminal_goes_and_other_text_stays(self, dirty, shown):
        assert clean(dirty) == shown

    @given(
        st.text(st.characters(), max_size=60) | st.text("\x1b[]P0;m\x07\\\n\x9b\x9d\x9c\u202e\ud800a", max_size=30)
    )
    def test_any_text_is_safe_and_short_enough(self, text):
        shown = clean(text, limit=50)
        shown.encode()
        assert len(shown) <= 50
        assert not {one for one in shown if unicodedata.category(one) == "Cc"} - {"\n"}
        assert clean(shown, limit=50) == shown
        assert clean("x" * 11, limit=10) == "x" * 9 + "…"
