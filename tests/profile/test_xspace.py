"""The reader of traces: what was written comes back, and what is damaged says so and nothing worse."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from xspace_writer import Literal, Mark, Unsigned, blob, event, mark, number, plane, space, varint
from xspace_writer import Table as NameTable

from tfmon.profile import xspace
from tfmon.profile.breakdown import profile_of
from tfmon.profile.operations import tells
from tfmon.profile.trace import Space, TraceError
from tfmon.profile.xspace import decode, read_space

DATA = Path(__file__).parent / "data"
SMALL = space(plane("/host:CPU", {"python": [mark("train", 5, 2, step_num=3), mark("a:B", 5.5, 1, id="x")]}))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = (
    st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(0, (1 << 64) - 1).map(Unsigned)
    | st.floats(allow_nan=False)
    | texts
    | texts.map(Literal)
)
marks = st.builds(
    Mark,
    texts,
    st.integers(0, 10**6).map(float),
    st.integers(0, 10**6).map(float),
    st.dictionaries(texts, values, max_size=4),
)
planes = st.dictionaries(texts, st.dictionaries(texts, st.lists(marks, max_size=6), max_size=3), max_size=3)


def read_or_refuse(data: bytes) -> Space | None:
    """Decode; the one error that may happen is allowed."""
    try:
        return decode(data)
    except TraceError as error:
        assert error.message
        return None


def only(data: bytes):
    """Return the one event of a trace."""
    ((one,),) = ((line.events) for part in decode(data).planes for line in part.lines)
    return one


class TestRoundTrip:
    @settings(max_examples=40)
    @given(planes, st.booleans())
    def test_what_was_written_is_read(self, wanted, names_first):
        read = decode(space(*(plane(name, lines, names_first=names_first) for name, lines in wanted.items())))
        assert [part.name for part in read.planes] == list(wanted)
        for part, lines in zip(read.planes, wanted.values(), strict=True):
            assert [line.name for line in part.lines] == list(lines)
            for line, written in zip(part.lines, lines.values(), strict=True):
                ends = [
                    (round(one.start_us * 1e6), round((one.start_us + one.length_us) * 1e6)) for one in written
                ]
                expected = [(*span, one.name, one.stats) for span, one in zip(ends, written, strict=True)]
                assert list(map(tuple, line.events)) == sorted(expected, key=lambda one: (one[0], -one[1]))

    def test_bytes_are_skipped(self):
        assert only(space(plane("p", {"l": [mark("e", 0, 1, program=b"\xff" * 9, kept=1)]}))).stats == {"kept": 1}

    def test_a_name_that_is_no_text_is_read_all_the_same(self):
        names = blob(4, number(1, 1) + blob(2, blob(2, b"\xff\xfe")))
        assert only(blob(1, names + blob(3, blob(4, number(1, 1))))).name == "��"

    def test_an_event_whose_name_is_not_told_has_none(self):
        assert only(blob(1, blob(3, blob(4, number(1, 9) + number(3, 5))))).name == ""

    def test_equal_bytes_at_the_end_are_not_taken_for_equal_stats(self):
        # From the stats on the bytes are the same, but one event's only stat holds what is the other's second.
        events, stats = NameTable(1), NameTable(1000)
        first, second = number(1, stats.of("a")) + number(4, 7), blob(4, number(1, stats.of("b")) + number(4, 2))
        head = number(1, events.of("e"))
        holding = head + blob(4, first + second)
        following = head + blob(4, first) + second
        line = blob(3, blob(4, holding) + blob(4, following))
        read = decode(blob(1, line + events.encode(4) + stats.encode(5))).planes[0].lines[0].events
        assert [one.stats for one in read] == [{"a": 7}, {"a": 7, "b": 2}]


def test_events_that_are_not_wanted_are_not_read():
    both = [mark("a", 0, 1), mark("b", 1, 1)]
    data = space(plane("/host:CPU", {"python": both, "tf_data_private/7": both}))
    called = []

    def wanted(line: str, event: str, names) -> bool:
        assert set(names) == {"a", "b"}
        called.append((line, event))
        return line == "python" or event == "b"

    read = {line.name: [one.name for one in line.events] for line in decode(data, wanted).planes[0].lines}
    assert read == {"python": ["a", "b"], "tf_data_private/7": ["b"]}
    assert sorted(called) == sorted({(line, one.name) for line in read for one in both})
    assert decode(data, wanted).events == 4, "all of them were counted"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.xplane.pb")), ids=lambda path: path.stem)
def test_a_profile_says_the_same_without_the_events_that_it_does_not_want(path):
    assert profile_of(read_space(path, tells)) == profile_of(read_space(path))


class TestTime:
    def test_lines_count_from_their_own_beginning(self):
        read = decode(
            space(plane("p", {"early": [mark("a", 1, 1)], "late": [mark("b", 1, 1)]}, {"early": 500, "late": 700}))
        )
        (early,), (late,) = (line.events for line in read.planes[0].lines)
        assert (read.origin_ns, early.start_ps, late.start_ps) == (500, 1_000_000, 1_200_000)

    def test_outer_events_come_first(self):
        read = decode(space(plane("p", {"l": [mark("inner", 1, 1), mark("outer", 1, 5), mark("first", 0, 1)]})))
        assert [one.name for one in read.planes[0].lines[0].events] == ["first", "outer", "inner"]

    def test_events_that_only_count_have_no_place(self):
        counted = number(1, 1) + number(5, 12) + number(3, 9)
        assert decode(blob(1, blob(3, blob(4, counted)))).planes[0].lines[0].events == ()

    def test_an_event_that_ends_before_it_begins_is_damage(self):
        with pytest.raises(TraceError, match="damaged"):
            decode(blob(1, blob(3, blob(4, number(3, -1)))))


class TestDamage:
    @settings(max_examples=200)
    @given(st.binary(max_size=300))
    @example(b"\x0a")
    @example(b"\x80" * 11)
    @example(b"\x00")
    def test_any_bytes_are_read_or_refused(self, data):
        read_or_refuse(data)

    @settings(max_examples=200)
    @given(st.integers(0, len(SMALL) - 1), st.integers(0, 255))
    def test_a_wrong_byte_does_no_harm(self, at, byte):
        read_or_refuse(SMALL[:at] + bytes([byte]) + SMALL[at + 1 :])

    def test_a_torn_trace_is_refused_wherever_a_plane_is_cut(self):
        whole = blob(1, plane("p", {"l": [mark("e", 1, 1)]}))
        for length in range(1, len(whole)):
            with pytest.raises(TraceError, match="damaged"):
                decode(whole[:length])

    @pytest.mark.parametrize(
        "data",
        [b"\x08" + b"\xff" * 20, b"\x00\x01", b"\x0a" + varint((1 << 63) - 1) + b"xx"]
        + [varint(1 << 3 | wire) + b"\x00" for wire in (3, 4, 6, 7)],
        ids=["endless number", "no field number", "length beyond the end", "wire 3", "wire 4", "wire 6", "wire 7"],
    )
    def test_what_no_trace_has_is_refused(self, data):
        with pytest.raises(TraceError, match="damaged"):
            decode(data)

    def test_fields_of_later_versions_are_skipped(self):
        later = (
            number(900, 5) + blob(901, b"new") + varint(902 << 3 | 1) + bytes(8) + varint(903 << 3 | 5) + bytes(4)
        )
        assert decode(later + SMALL + later) == decode(SMALL)
        assert decode(number(1, 12) + SMALL) == decode(SMALL), "a known field of another type"


class TestLimits:
    def test_too_many_events_are_refused(self, monkeypatch):
        data = space(plane("p", {"l": [mark("e", at, 1) for at in range(20)]}))
        monkeypatch.setattr(xspace, "MOST_ITEMS", 23)
        assert decode(data).planes
        monkeypatch.setattr(xspace, "MOST_ITEMS", 22)
        with pytest.raises(TraceError, match="too large") as refused:
            decode(data)
        assert "fewer steps" in refused.value.hint

    def test_stats_count_too_and_those_shared_by_events_count_once(self, monkeypatch):
        monkeypatch.setattr(xspace, "MOST_ITEMS", 60)
        same = [mark("e", at, 1, a=1, b=2, c=3) for at in range(20)]
        decode(space(plane("p", {"l": same})))
        with pytest.raises(TraceError, match="too large"):
            decode(space(plane("p", {"l": [mark("e", at, 1, a=at, b=2, c=3) for at in range(20)]})))

    def test_a_large_file_is_refused_before_it_is_read(self, monkeypatch, tmp_path):
        path = tmp_path / "big.xplane.pb"
        path.write_bytes(bytes(100))
        monkeypatch.setattr(xspace, "MOST_BYTES", 99)
        monkeypatch.setattr(Path, "read_bytes", lambda _path: pytest.fail("it was read"))
        with pytest.raises(TraceError, match="too large"):
            read_space(path)

    def test_no_file_a_folder_and_an_empty_file_are_refused_in_words(self, tmp_path):
        (tmp_path / "empty").touch()
        words = {tmp_path / "none": "No such file", tmp_path: "directory", tmp_path / "empty": "empty"}
        for path, word in words.items():
            with pytest.raises(TraceError, match=word):
                read_space(path)


def test_the_encoder_of_these_tests_writes_fields_as_protobuf_does():
    """Bytes written out by hand: 300 is ac 02 in the encoding guide, and field 2 of type text is 12."""
    assert varint(300) == b"\xac\x02"
    assert blob(2, "testing") == b"\x12\x07testing"
    assert event(NameTable(1), NameTable(9), mark("e", 0, 0.000001)) == b"\x08\x01\x10\x00\x18\x01"
