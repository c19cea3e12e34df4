"""Objects of Python that become more and more are named by their kind; those of a script that lets go are not."""

from __future__ import annotations

import pytest

from tfmon.script import object_causes
from tfmon.script.causes import Causes
from tfmon.script.object_causes import LOOKS, ObjectWatch


class Held:
    """What a script keeps of each step."""

    def __init__(self) -> None:
        self.more = [1.5]


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
def test_the_kind_that_grows_is_told_only_while_it_grows(monkeypatch, keeps):
    seen, watch, kept = Causes(), ObjectWatch(), []
    monkeypatch.setattr(object_causes, "causes", seen)
    for look in range(2 * LOOKS):
        kept = [*(kept if keeps else ()), *(Held() for _ in range(10_000))]
        watch._next_ns = 0
        watch.look(100 * look)
    told = [(one.cause, one.subject) for one in seen.news()]
    assert told == ([("memory_objects", "Held")] if keeps else [])
