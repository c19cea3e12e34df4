import dataclasses

import pytest

from tfmon.model import fast_dataclass


@pytest.mark.parametrize("slots", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_it_does_what_the_standard_decorator_does(frozen, slots):
    def objects(decorator):
        @decorator(frozen=frozen, slots=slots)
        class Point:
            x: int
            y: int = 2
            z: list[int] = dataclasses.field(default_factory=list, hash=False, repr=False)
            name: str = dataclasses.field(default="", compare=False, repr=False)

        return [Point(1), Point(1, name="a"), Point(2), dataclasses.replace(Point(1), y=3), "Point(x=1, y=2)"]

    ours, theirs = objects(fast_dataclass.dataclass), objects(dataclasses.dataclass)
    assert [[one == other for other in ours] for one in ours] == [[a == b for b in theirs] for a in theirs]
    assert [repr(one).split(".")[-1] for one in ours] == [repr(one).split(".")[-1] for one in theirs]
    if frozen:
        assert len(set(ours)) == len(set(theirs)) == 4
    else:
        with pytest.raises(TypeError, match="unhashable"):
            hash(ours[0])
