"""The output of a child arrives in whole lines, not too often, safe to show, and bounded."""

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
    return [new for new in news if new is not None]


def lines(*chunks: bytes) -> list[str]:
    return [line for one in told(*chunks) for line in one.lines]


def test_news_are_told_a_few_times_a_second_at_most():
    output = ChildOutput("cpu")
    output.take(b"one\n")
    assert output.news(LATER)
    output.take(b"two\n")
    assert output.news(LATER + TELL_EVERY_NS // 2) is None
    assert output.news(2 * LATER).lines == ("two",)


def test_lines_are_safe_and_short():
    assert lines(b"\x1b[31mred\x1b[0m\x07 \xff\n\n   \n") == ["red \ufffd"]
    (line,) = lines(b"x" * 10_000 + b"\n")
    assert len(line) == LINE_CHARACTERS


def test_a_line_without_end_is_not_kept():
    output = ChildOutput("cpu")
    for _ in range(100):
        output.take(b"x" * 65_536)
    assert len(output._news) <= NEWS_BYTES and len(output._tail) <= TAIL_BYTES
    assert output.news(LATER).dropped_bytes > 6_000_000


@given(some.lists(some.binary(max_size=60), max_size=20))
def test_however_it_is_cut_the_same_lines_are_told(chunks):
    assert lines(*chunks) == lines(b"".join(chunks))
