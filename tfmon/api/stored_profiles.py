"""Stored profiles, and merging of two traces."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tfmon.analysis.compare_profiles import ProfiledSide, side_of
from tfmon.errors import TfmonError
from tfmon.model import codec
from tfmon.model.lane_events import Profiled, ProfileFailed
from tfmon.probes.interpreter import NO_CWD
from tfmon.system.programs import run_program

MOST_TRACES = 10
READ_TIMEOUT_S = 300.0
_ROOT = Path(__file__).resolve().parents[2]
_READ = (
    NO_CWD
    + """
sys.path.insert(0, sys.argv[1])
from tfmon.profile import kept
kept.main(sys.argv[2], sys.argv[3:])
"""
)
_KEEP = "tfmon profile NAME --keep DIR keeps traces; P in a race has its profiles recorded"


def kept_side(id: str, word: str, python: Path, chrome: str = "") -> ProfiledSide:
    """Return the profiles of a recording (`last:B`) or folder; raises TfmonError."""
    path = Path(word)
    if path.is_dir() or word.endswith(".xplane.pb"):
        return ProfiledSide(id, word, tuple(_traces(path, python, chrome)))
    if chrome:
        raise TfmonError(f"--chrome needs traces, and {word} is a recording", "leave it out")
    return _recorded(id, word)


def _recorded(id: str, word: str) -> ProfiledSide:
    from tfmon.recordings.library import find, run_id
    from tfmon.recordings.player import play_all

    run, _, lane_id = word.partition(":")
    path = find(word if Path(word).is_file() else run)
    _, end = play_all(path)
    lanes = [lane for lane in end.lanes if not lane_id or lane_id in (lane.spec.id, lane.spec.name)]
    for lane in lanes:
        side = side_of(lane)
        if side.profiles:
            title = f"{run_id(path)}, {side.title}"
            return ProfiledSide(id, title, side.profiles, side.step_ns, side.examples)
    raise TfmonError(f"{word} has no profile to compare", _KEEP)


def _traces(path: Path, python: Path, chrome: str) -> Iterator[Any]:
    files = sorted(path.glob("**/*.xplane.pb")) if path.is_dir() else [path]
    if not files:
        raise TfmonError(f"the folder {path} has no trace: no file that ends in .xplane.pb", _KEEP)
    command = [str(python), "-c", _READ, str(_ROOT), chrome, *map(str, files[-MOST_TRACES:])]
    try:
        done = run_program(command, READ_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TfmonError(f"{python} did not read {path}: {error}", "--python names another") from None
    answers = [codec.decode_event(line.encode(), "") for line in done.stdout.splitlines() if line.startswith("{")]
    for answer in answers:
        if isinstance(answer, ProfileFailed):
            raise TfmonError(f"{answer.folder}: {answer.reason}")
        if isinstance(answer, Profiled):
            yield answer.profile
    if not answers:
        reason = codec.clean((done.stderr.strip().splitlines() or ["no output"])[-1])
        raise TfmonError(f"{python} cannot read traces: {reason}", "--python names one that has TensorFlow")


_MORE = 10_000
"""Trace viewers merge equal process numbers."""


def merge_traces(traces: Sequence[tuple[str, Path]], target: Path) -> None:
    """Write traces into one file; raises TfmonError."""
    try:
        with target.open("w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
            first = True
            for index, (title, path) in enumerate(traces):
                steps = (event["ts"] for event in _events(path) if "step_num" in event.get("args", ()))
                began_us = min(steps, default=0.0)
                for event in _events(path):
                    event["pid"] += index * _MORE
                    if event["name"] == "process_name":
                        event["args"]["name"] = f"{title}: {event['args']['name']}"
                    if "ts" in event:
                        event["ts"] -= began_us
                    file.write("" if first else ",\n")
                    json.dump(event, file, separators=(",", ":"), allow_nan=False)
                    first = False
            file.write("\n]}\n")
    except (OSError, ValueError) as error:
        raise TfmonError(f"{target} cannot be written: {error}") from error


def _events(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            text = line.rstrip(",\n")
            if text.startswith('{"ph"'):
                yield json.loads(text)
