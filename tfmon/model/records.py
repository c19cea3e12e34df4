"""A quick `dataclasses.replace`: a window replaces seven records, of which the largest has fifty fields."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

__all__ = ["replace"]

if TYPE_CHECKING:  # so that fields and their types are checked
    from dataclasses import replace
else:

    def replace(value: Any, /, **changes: Any) -> Any:  # noqa: ANN401 - of any type
        """Return a copy of a dataclass with other values in some fields, as `dataclasses.replace` does."""
        return _copier(type(value))(value, changes)


@functools.cache
def _copier(kind: type) -> Callable[[Any, Mapping[str, Any]], Any]:
    """Return a function that copies values of a type, through the slots where it has slots and checks nothing."""
    names = [field.name for field in dataclasses.fields(kind)]
    members = [getattr(kind, name, None) for name in names]
    if len(names) < 2 or hasattr(kind, "__post_init__") or not all(map(_is_slot, members)):
        return lambda value, changes: dataclasses.replace(value, **changes)
    read_all = operator.attrgetter(*names)
    setters = [member.__set__ for member in members if member is not None]
    by_name = dict(zip(names, setters, strict=True))

    def copy(value: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of that type
        made: Any = object.__new__(kind)
        for put, item in zip(setters, read_all(value), strict=True):
            put(made, item)
        for name, item in changes.items():
            if name not in by_name:
                raise TypeError(f"{kind.__name__} has no field {name}")
            by_name[name](made, item)
        return made

    return copy


def _is_slot(member: object) -> bool:
    return type(member).__name__ == "member_descriptor"
