"""A `dataclass` for values that is created in a quarter of the time.

The standard decorator writes and compiles six methods for each frozen class, some 0.6 ms. The monitor loads 200
such classes before its first paint, and so does each lane before it trains. Here only `__init__` is compiled; the
others are shared. `frozen=True` is a promise that the type checker keeps: nothing checks it at run time, so new
objects are cheaper as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        eq: bool = True,
        repr: bool = True,
    ) -> object:
        """Make a class a data class. The arguments mean what they mean for the standard decorator."""

        def made(cls: type) -> type:
            shared = {"__eq__": _equal, "__hash__": _hash if frozen else None} if eq else {}
            if repr:
                shared["__repr__"] = _text
            for name, method in shared.items():
                if name not in vars(cls):
                    setattr(cls, name, method)
            cls = dataclasses.dataclass(eq=False, repr=False, slots=slots, kw_only=kw_only)(cls)
            parts = dataclasses.fields(cls)
            cls._compared = _getter([part.name for part in parts if part.compare])
            cls._hashed = _getter(
                [part.name for part in parts if (part.compare if part.hash is None else part.hash)]
            )
            return cls

        return made if cls is None else made(cls)

    def _equal(self: object, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        compared = self.__class__._compared
        return compared(self) == compared(other)

    def _hash(self: object) -> int:
        return hash(self.__class__._hashed(self))

    def _text(self: object) -> str:
        shown = (f"{part.name}={getattr(self, part.name)!r}" for part in dataclasses.fields(self) if part.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def _getter(names: list[str]) -> Callable[[object], object]:
        return attrgetter(*names) if names else lambda _: ()
