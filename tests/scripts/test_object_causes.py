"""Growing numbers of Python objects are reported by their type; objects that a script frees are not."""

import pytest

from tfmon.hooks import object_causes
from tfmon.hooks.cause_reports import Causes
from tfmon.hooks.object_causes import LOOKS, ObjectGrowth


class Held:
    """An object that a script keeps for each step."""

    def __init__(self) -> None:
        self.more = [1.5]


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
def test_the_kind_that_grows_is_told_only_while_it_grows(monkeypatch, keeps):
    seen, watch, kept = Causes(), ObjectGrowth(), []
    monkeypatch.setattr(object_causes, "causes", seen)
    for look in range(2 * LOOKS):
        kept = [*(kept if keeps else ()), *(Held() for _ in range(10_000))]
        watch._next_ns = 0
        watch.look(100 * look)
    told = [(new.cause, new.subject) for new in seen.news()]
    assert told == ([("memory_objects", "Held")] if keeps else [])
