"""Writes a recording for other programs: CSV, JSON, and TensorBoard's event files by its own writer."""

from __future__ import annotations

import csv
import json
import re
import sys
import types
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from tfmon.recordings import codec
from tfmon.recordings.codec import RecordingError
from tfmon.recordings.reader import Recording
from tfmon.recordings.series import Sample, number, samples_of

COLUMNS = ("time", "seconds", "subject", "step", "name", "value", "note")
"""`time` is UTC; `seconds` counts from the first event; `value` is in the unit that `name` ends in."""


def write_csv(recording: Recording, target: TextIO) -> None:
    """Write one line for each number.

    Errors: RecordingError; OSError.
    """
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(COLUMNS)
    for sample in _samples(recording):
        row = _row(recording, sample)
        writer.writerow(["" if value is None else value for value in row.values()])


def write_json(recording: Recording, result: dict[str, Any], target: TextIO) -> None:
    """Write one object: the header, the result of the race, and every number.

    Errors: RecordingError; OSError.
    """
    target.write('{\n"header": ' + json.dumps(codec.plain(recording.header)))
    target.write(',\n"result": ' + json.dumps(result, allow_nan=False))
    target.write(',\n"samples": [')
    for place, sample in enumerate(_samples(recording)):
        row = _row(recording, sample)
        if isinstance(sample.value, float) and number(sample.value) is None:
            row["value"] = str(sample.value)
        target.write((",\n" if place else "\n") + json.dumps(row, allow_nan=False))
    target.write("\n]\n}\n")


def write_tensorboard(recording: Recording, folder: Path) -> list[Path]:
    """Write event files into a new folder for each lane and device, and return these folders.

    Errors: RecordingError where TensorBoard is not installed or a folder is there already; OSError.
    """
    make = _tensorboard_writer()
    if folder.exists():
        raise RecordingError(f"{folder} is there already", "name another folder, or remove it")
    writers: dict[str, Any] = {}
    try:
        for sample in _samples(recording):
            value = number(sample.value)
            if value is None:
                continue
            name = re.sub(r"[^A-Za-z0-9_.=-]+", "-", sample.subject).strip("-.") or "lane"
            if name not in writers:
                (folder / name).mkdir(parents=True)
                writers[name] = make(str(folder / name))
            step = sample.step
            if step is None:
                # TensorBoard needs a step: for what has none, whole seconds since the first event.
                step = round((sample.at_ns - recording.times_ns[0]) / 1e9)
            writers[name].add_scalar(sample.name, value, step, wall_time=recording.header.wall_s(sample.at_ns))
    finally:
        for writer in writers.values():
            writer.close()
    return [folder / name for name in writers]


def _tensorboard_writer() -> Any:  # noqa: ANN401 - TensorBoard has no types
    try:
        # Else TensorBoard loads all of TensorFlow, if only to write files; see tensorboard/compat/__init__.py.
        sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
        from tensorboard.summary import Writer
    except ImportError as error:
        raise RecordingError(
            f"TensorBoard is not installed here ({error})", f"{sys.executable} -m pip install tensorboard"
        ) from None
    return Writer


def _samples(recording: Recording) -> Iterator[Sample]:
    for event in recording.events():
        yield from samples_of(event)


def _row(recording: Recording, sample: Sample) -> dict[str, Any]:
    moment = datetime.fromtimestamp(recording.header.wall_s(sample.at_ns), timezone.utc)
    seconds = round((sample.at_ns - recording.times_ns[0]) / 1e9, 6)
    values = (moment.isoformat(), seconds, sample.subject, sample.step, sample.name, sample.value, sample.note)
    return dict(zip(COLUMNS, values, strict=True))
