"""Recordings and JSON results of a schema can be read until the schema is raised."""

import dataclasses
import json
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ui import Demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.result import RaceResult
from tfmon.analysis.summarise import summarise
from tfmon.model import codec
from tfmon.model.event_base import Event, kinds
from tfmon.model.header import JSON_SCHEMA, SCHEMA, Closed, Header
from tfmon.recordings.header_lines import Known

FOLDER = Path(__file__).parent


def classes_in(kind: object) -> Iterator[type]:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        yield kind
    for part in typing.get_args(kind):
        yield from classes_in(part)


def fields_of(*kinds: type) -> dict[str, dict[str, str]]:
    """Return the types of the fields of some types, and of all types in them."""
    known: dict[str, dict[str, str]] = {}
    waiting = [*kinds]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ in known:
            continue
        hints = typing.get_type_hints(kind)
        known[kind.__name__] = {field.name: str(field.type) for field in dataclasses.fields(kind)}
        waiting += [inner for field in dataclasses.fields(kind) for inner in classes_in(hints[field.name])]
    return known


FILES = [
    (FOLDER / "schema.json", SCHEMA, [*kinds(Event), Header, Known, Closed]),
    (FOLDER / "json_schema.json", JSON_SCHEMA, [RaceResult]),
]
"""The kept fields of every recorded type and of every type in a JSON result, by the schema they belong to."""


@pytest.mark.parametrize(("path", "schema", "kinds"), FILES)
def test_no_field_has_gone_or_changed_since_the_schema_was_raised(path, schema, kinds):
    """Else raise the schema, and write the files again: `python tests/recordings/test_schema.py`."""
    kept, now = json.loads(path.read_text()), fields_of(*kinds)
    assert kept["schema"] == schema
    for name, fields in kept["types"].items():
        assert fields.items() <= now.get(name, {}).items(), name


def test_a_json_object_has_the_fields_of_the_result(header):
    result = summarise(analyse(Demo(mode="turns").go().race(20).session.snapshot()), header)
    written = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert codec.to_json(codec.read(written, RaceResult)) == written
    assert codec.read(written, RaceResult) == result


if __name__ == "__main__":
    for path, schema, kinds in FILES:
        body = {"schema": schema, "types": fields_of(*kinds)}
        path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n")
