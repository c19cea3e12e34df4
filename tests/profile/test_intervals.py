"""Sets of time, held against sets of whole numbers."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tfmon.profile.trace import both, total, unite, without

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def moments(times) -> set[int]:
    return {moment for start, end in times for moment in range(start, end)}


@given(spans, spans)
def test_they_behave_as_sets(left, right):
    a, b = unite(left), unite(right)
    assert moments(a) == moments(left)
    assert moments(both(a, b)) == moments(left) & moments(right)
    assert moments(without(a, b)) == moments(left) - moments(right)
    assert total(a) == len(moments(left))


@given(spans, spans)
def test_they_are_sorted_and_do_not_touch(left, right):
    a, b = unite(left), unite(right)
    assert all(start < end for start, end in a)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(a))
    for times in (both(a, b), without(a, b)):
        assert all(start < end for start, end in times)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


def test_intervals_that_touch_become_one():
    assert unite([(3, 5), (1, 3)]) == [(1, 5)]
