"""What a recording of the present schema holds can be read for as long as the schema stays."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from pathlib import Path

from tfmon.model.events import Event
from tfmon.recordings.header import SCHEMA, Closed, Header, Known

KEPT = Path(__file__).with_name("schema.json")
"""The fields of every recorded type, by the schema that they belong to."""


def classes_in(kind: object) -> Iterator[type]:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        yield kind
    for part in typing.get_args(kind):
        yield from classes_in(part)


def recorded_fields() -> dict[str, dict[str, str]]:
    """Return the types of the fields of all that a recording may hold, and whether each has a default."""
    known: dict[str, dict[str, str]] = {}
    waiting = [*classes_in(Event), Header, Known, Closed]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ in known:
            continue
        hints = typing.get_type_hints(kind)
        known[kind.__name__] = {one.name: str(one.type) for one in dataclasses.fields(kind)}
        waiting += [inner for one in dataclasses.fields(kind) for inner in classes_in(hints[one.name])]
    return known


def test_no_recorded_field_has_gone_or_changed_since_the_schema_was_raised():
    """Else raise SCHEMA, and write the file again: `python tests/recordings/test_schema.py`."""
    kept, now = json.loads(KEPT.read_text()), recorded_fields()
    assert kept["schema"] == SCHEMA
    lost = [
        f"{name}.{field}: {kind}"
        for name, fields in kept["types"].items()
        for field, kind in fields.items()
        if now.get(name, {}).get(field) != kind
    ]
    assert lost == []


if __name__ == "__main__":
    KEPT.write_text(json.dumps({"schema": SCHEMA, "types": recorded_fields()}, indent=1, sort_keys=True) + "\n")
