"""Reads results of races from recordings and from JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tfmon.analysis.analysis import analyse
from tfmon.analysis.result import RaceResult
from tfmon.analysis.summarise import summarise
from tfmon.model import codec
from tfmon.model.header import JSON_SCHEMA
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.library import run_id
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import guard

LARGEST_BYTES = 64 * 2**20
WRITES_ONE = "tfmon race --json writes one of this version"
REPLACE = "compare the recording of the race, write the result again with tfmon replay RUN --json, or race again"


def read_recorded(path: Path) -> tuple[RaceResult, bool]:
    """Return a recorded race, and whether it is torn; raises RecordingError."""
    with guard(path):
        opened, end = play_all(path)
    return summarise(analyse(end), opened.header, run_id(path)), opened.torn


def read_race(path: Path) -> tuple[RaceResult, bool]:
    """Return the race of a recording or JSON, and whether it is torn; raises RecordingError."""
    if _is_result(path):
        return read_json(_load(path), path.name.removesuffix(".json"), str(path)), False
    return read_recorded(path)


def read_races(folder: Path) -> list[tuple[RaceResult, bool]]:
    """Return every race of a folder; raises RecordingError."""
    result = [path for path in sorted(folder.iterdir()) if path.name.endswith((".json", ".jsonl", ".jsonl.gz"))]
    if not result:
        raise RecordingError(
            f"the folder {folder} has no race", "it holds recordings, or results of tfmon race --json"
        )
    return [read_race(path) for path in result]


def read_json(document: Any, id: str, where: str) -> RaceResult:  # noqa: ANN401 - whatever a file holds
    """Return the race of a parsed result; raises RecordingError."""
    if isinstance(document, dict) and isinstance(document.get("result"), dict):
        document = document["result"]
    if not isinstance(document, dict) or "lanes" not in document or "verdict" not in document:
        raise RecordingError(f"{where} is JSON, but no result of a race", WRITES_ONE)
    if document.get("schema") != JSON_SCHEMA:
        by = f"schema {document.get('schema')!r}, by tfmon {document.get('tfmon')!r}"
        raise RecordingError(f"{where} has {by}; this tfmon reads schema {JSON_SCHEMA}", REPLACE)
    try:
        result: RaceResult = codec.read(document, RaceResult)
    except codec.CodecError as error:
        raise RecordingError(f"{where} is not a result that can be compared: {error}", WRITES_ONE) from None
    return replace(result, id=id)


def _is_result(path: Path) -> bool:
    if path.name.endswith((".jsonl", ".gz")):
        return False
    try:
        with path.open("rb") as file:
            start = file.read(256).lstrip()
    except OSError:
        return False
    return path.name.endswith(".json") or start.startswith((b"{\n", b"{\r\n"))


def _load(path: Path) -> object:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise RecordingError(f"{path} is too large for a result of tfmon")
        return json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path} is not a JSON result: {error}", "it may be cut off") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a figure")
