"""JSON results of races, as `tfmon race --json` prints them: one side of a comparison, without its recording."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tfmon.analysis.means import Center
from tfmon.model.hosts import HostState
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import ABSENT, DONE, FAILED, LaneState, Trouble
from tfmon.model.lane_statistics import Measurements, WindowSums
from tfmon.model.naming import named
from tfmon.model.race import BetweenProcesses, Machine, Race
from tfmon.model.readings import Missing, Reading
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.recordings import header as recorded
from tfmon.recordings.change import Measured
from tfmon.recordings.compare import Lead, Side
from tfmon.recordings.header import Header, RecordingError

SCHEMA = 2
"""Of the results that are read; the same as `reports.SCHEMA`."""
LARGEST_BYTES = 64 * 2**20
"""A larger file is not a result."""
Made = TypeVar("Made", BetweenProcesses, Center)


def is_result(path: Path) -> bool:
    """Return whether a file is a JSON object over several lines or its name says so, and no recording."""
    if path.name.endswith((".jsonl", ".gz")):
        return False
    try:
        with path.open("rb") as file:
            start = file.read(256).lstrip()
    except OSError:
        return False
    return path.name.endswith(".json") or start.startswith((b"{\n", b"{\r\n"))


def side_of_result(path: Path) -> Side:
    """Return the race of a JSON result, or of what `tfmon export --json` wrote.

    Raises:
        RecordingError: the file cannot be read, or is not a result.
    """
    return side_of_json(_load(path), path.name.removesuffix(".json"), str(path))


def side_of_json(told: object, id: str, where: str) -> Side:
    """Return the race of a JSON result that is read already.

    Args:
        told: The JSON object.
        id: What the race is called.
        where: What it is called where it cannot be used.

    Raises:
        RecordingError: it is not a result.
    """
    if isinstance(told, dict) and isinstance(told.get("result"), dict):
        told = told["result"]
    if not isinstance(told, dict) or "lanes" not in told or "verdict" not in told:
        raise RecordingError(f"{where} is JSON, but no result of a race", "tfmon race --json writes one")
    if told.get("schema") != SCHEMA:
        by = f"schema {told.get('schema')!r}, by tfmon {told.get('tfmon')!r}"
        raise RecordingError(f"{where} has {by}; this tfmon reads schema {SCHEMA}", "race again with this version")
    try:
        return _side(id, told)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RecordingError(
            f"{where} is not a result that can be compared: {what}", "tfmon race --json writes one of this version"
        ) from None


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


def _side(id: str, told: Mapping[str, Any]) -> Side:
    between = _made(BetweenProcesses, told["between_processes"]) if told["between_processes"] else None
    machine = _machine(told["machine"])
    race = Race(scenario=_text(told["scenario"]), mode=_text(told["mode"]), between=between)
    lanes = named(tuple(_lane(one) for one in told["lanes"]), race)
    measured = {lane.spec.name: _measured(one) for lane, one in zip(lanes, told["lanes"], strict=True)}
    first = lanes[0] if lanes else None
    header = Header(
        schema=recorded.SCHEMA,
        tfmon=_text(told["tfmon"]),
        python=first.python if first else "",
        tensorflow=first.tensorflow if first else None,
        started=_text(told["started"] or ""),
        started_ns=0,
        scenario=race.scenario,
        title="",
        source=_text((told["lanes"][0]["source"] if first else None) or ""),
        mode=race.mode,
        lanes=tuple(lane.spec for lane in lanes),
        knobs={},
        machine=machine,
        environment={_text(name): _text(value) for name, value in (told["environment"] or {}).items()},
        between=between,
    )
    verdict = told["verdict"]
    winner = next((lane.spec.name for lane in lanes if lane.spec.id == verdict["winner_id"]), None)
    low, high = map(_number, verdict["ratio_ci95"]) if verdict["ratio_ci95"] else (None, None)
    ratio = None if verdict["ratio"] is None else _number(verdict["ratio"])
    hosts = {_text(host): HostState(_machine(one["machine"])) for host, one in told["hosts"].items()}
    snapshot = Snapshot(at_ns=0, race=race, lanes=lanes, hosts={**hosts, "": HostState(machine)})
    return Side(id, header, snapshot, measured, Lead(winner, ratio, low, high))


def _lane(told: Mapping[str, Any]) -> LaneState:
    id, settings = _text(told["id"]), {_text(name): _knob(value) for name, value in told["knobs"].items()}
    versions = {name: _text(value or "") for name, value in told["versions"].items()}
    sums = WindowSums(examples=_whole(told["measured_examples"]), span_ns=_whole(told["measured_ns"]))
    return LaneState(
        LaneSpec(_text(told["device"]), settings, name=_text(told["name"]), id=id, host=_text(told["host"])),
        phase={"failed": FAILED, "absent": ABSENT}.get(told["state"], DONE),
        settings=settings,
        device_name=_text(told["device_name"] or ""),
        source=_text(told["source"] or ""),
        trouble=Trouble(_text(told["error"])) if told["error"] else None,
        measurements=Measurements(steady=sums),
        tensorflow=versions["tensorflow"],
        keras=versions["keras"],
        numpy=versions["numpy"],
        python=versions["python"],
    )


def _measured(told: Mapping[str, Any]) -> Measured:
    center = _made(Center, told["log_examples_per_s"]) if told["log_examples_per_s"] else None

    def share(name: str) -> Reading:
        value = told[name]
        return Missing(_text(told["missing"][name])) if value is None else _number(value) / 100

    return Measured(center, share("others_cpu_pct"), share("stolen_pct"))


def _machine(told: Mapping[str, Any]) -> Machine:
    return Machine(
        hostname=_text(told["hostname"]),
        system=_text(told["system"]),
        cpu_name=_text(told["cpu_name"]),
        cores=_whole(told["cores"]),
        usable_cores=_number(told["usable_cores"]),
        memory_bytes=_whole(told["memory_bytes"]),
        gpus=tuple(_text(one) for one in told["gpus"]),
        no_gpu=_text(told["no_gpu"] or ""),
    )


def _made(kind: type[Made], told: Mapping[str, Any]) -> Made:
    """Return a dataclass of numbers; whole ones where it has them."""
    found: dict[str, Any] = {}
    for one in fields(kind):
        found[one.name] = _whole(told[one.name]) if one.type == "int" else _number(told[one.name])
    return kind(**found)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _knob(value: object) -> KnobValue:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"{value!r} is not a value of a knob")
    return value
