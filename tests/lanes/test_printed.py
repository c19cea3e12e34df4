"""What a child prints is told in whole lines, seldom, safe to show, and never without bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from tfmon.lanes.pipes import LINE_CHARACTERS, NEWS_BYTES, TAIL_BYTES, TELL_EVERY_NS, ChildOutput
from tfmon.model.events import LanePrinted

LATER = TELL_EVERY_NS + 1


def told(*chunks: bytes) -> list[LanePrinted]:
    output, news = ChildOutput("cpu"), []
    for number, chunk in enumerate(chunks, 1):
        output.take(chunk)
        news.append(output.news(number * LATER))
    news.append(output.news(0, last=True))
    return [one for one in news if one is not None]


def lines(*chunks: bytes) -> list[str]:
    return [line for one in told(*chunks) for line in one.lines]


def test_lines_are_told_once_they_are_whole():
    output = ChildOutput("cpu")
    output.take(b"one\ntw")
    assert output.news(LATER).lines == ("one",)
    assert output.news(2 * LATER) is None
    output.take(b"o\n")
    assert output.news(3 * LATER).lines == ("two",)


def test_news_are_told_a_few_times_a_second_at_most():
    output = ChildOutput("cpu")
    output.take(b"one\n")
    assert output.news(LATER)
    output.take(b"two\n")
    assert output.news(LATER + TELL_EVERY_NS // 2) is None
    assert output.news(2 * LATER).lines == ("two",)


def test_the_end_is_told_at_once_with_a_line_that_has_none():
    assert lines(b"one\ntwo") == ["one", "two"]


def test_of_a_line_that_was_written_over_the_last_is_told():
    assert lines(b" 1/10\r 2/10\r10/10\r\n") == ["10/10"]


def test_lines_are_safe_and_short():
    assert lines(b"\x1b[31mred\x1b[0m\x07 \xff\n\n   \n") == ["red \ufffd"]
    (line,) = lines(b"x" * 10_000 + b"\n")
    assert len(line) == LINE_CHARACTERS


def test_of_a_flood_the_newest_is_told_and_how_much_is_not():
    flood = b"".join(b"line %d\n" % number for number in range(100_000))
    (news,) = told(flood)
    assert news.lines[-1] == "line 99999"
    assert sum(map(len, news.lines)) <= NEWS_BYTES
    kept = sum(len(line) + 1 for line in news.lines)
    assert news.dropped_bytes == len(flood) - kept


def test_a_line_without_end_is_not_kept():
    output = ChildOutput("cpu")
    for _ in range(100):
        output.take(b"x" * 65_536)
    assert len(output._news) <= NEWS_BYTES and len(output._tail) <= TAIL_BYTES
    assert output.news(LATER).dropped_bytes > 6_000_000


@given(some.lists(some.binary(max_size=60), max_size=20))
def test_however_it_is_cut_the_same_lines_are_told(chunks):
    assert lines(*chunks) == lines(b"".join(chunks))
