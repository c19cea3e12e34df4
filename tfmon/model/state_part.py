"""The base class of the parts of a state."""

from __future__ import annotations

from typing import TypeVar

Part = TypeVar("Part", bound="StatePart")


class StatePart:
    """A part of the state. Copies share the containers, which never change."""

    def copy(self: Part) -> Part:
        """Return a shallow copy."""
        result: Part = object.__new__(type(self))
        vars(result).update(vars(self))
        return result
