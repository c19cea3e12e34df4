"""Remembers which of a script's datasets are trained from: others, such as for validation, stay as they are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

from tfmon.script.looking import users_frame
from tfmon.script.sources import nothing

_READ = "_tfmon_read"


class Reads:
    """The datasets that were iterated over, and the places in the script where that began.

    Thread: the one that trains.
    """

    def __init__(self) -> None:
        self.any = False
        """Whether anything is known to be trained from."""
        self._places: set[Hashable] = set()
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self.latest: Callable[[], Any] = nothing
        """Returns the iterator that was opened last."""

    def place(self) -> Hashable:
        """Return the script's instruction that is running now."""
        frame = users_frame()
        return id(frame.f_code), frame.f_lasti

    def opened(self, iterator: Any, dataset: Any, place: Hashable) -> None:  # noqa: ANN401
        """Record what an iterator was made of, and where."""
        self._seen.add(dataset)
        setattr(iterator, _READ, (dataset, place))
        self.latest = weakref.ref(iterator)

    def dataset_of(self, iterator: Any) -> Any:  # noqa: ANN401
        """Return the script's dataset that an iterator was made of; None if that is not known."""
        read = getattr(iterator, _READ, None)
        return read[0] if read is not None else None

    def trains(self, iterator: Any) -> None:  # noqa: ANN401
        """Record that what an iterator gives is trained from."""
        read = getattr(iterator, _READ, None)
        if read is None:
            return
        self.any = True
        self._trained.add(read[0])
        self._places.add(read[1])

    def trains_from(self, dataset: Any, place: Hashable) -> bool | None:  # noqa: ANN401
        """Return whether a dataset is trained from where it is iterated over; None if that is not known."""
        if dataset in self._trained:
            return True
        if not self.any:
            return None
        if dataset in self._seen:
            return False
        return True if place in self._places else None
