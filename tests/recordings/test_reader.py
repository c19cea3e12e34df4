"""Reading: torn files are repaired, and hostile files get one clear line."""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.recordings import RECORDED
from support.results import to_json

import tfmon
from tfmon.analysis.analysis import analyse
from tfmon.errors import EXIT_USAGE
from tfmon.model.header import SCHEMA
from tfmon.recordings import reader
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import guard
from tfmon.reports.race_report import to_text
from tfmon.ui.render.race_frame import draw
from tfmon.ui.source import Display

LINES = RECORDED.read_bytes().splitlines(keepends=True)


def write(folder: Path, *lines: bytes) -> Path:
    path = folder / "race.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def problem_of(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        play_all(path)
    assert caught.value.exit_code == EXIT_USAGE
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("cut", [1, 20, len(LINES[-3]) - 1])
def test_a_torn_last_line_is_dropped(tmp_path, cut):
    opened, _ = play_all(write(tmp_path, *LINES[:-3], LINES[-3][:-cut]))
    assert opened.torn is (cut > 1)  # only its end of line is gone: nothing is lost
    assert len(opened) == len(LINES) - 3 - (cut > 1)
    assert opened.closed is None


@pytest.mark.parametrize("schema", [1, SCHEMA + 1])
def test_another_schema_is_refused_and_both_are_named(tmp_path, schema):
    line = json.dumps({"type": "Header", "schema": schema, "tfmon": "9.9", "unknown": 1}).encode() + b"\n"
    with pytest.raises(RecordingError) as caught:
        play_all(write(tmp_path, line, *LINES[1:]))
    this = f"this is tfmon {tfmon.__version__}, which reads schema {SCHEMA}"
    path = tmp_path / "race.jsonl"
    assert caught.value.message == f"{path} is a recording of schema {schema}, by tfmon 9.9; {this}"
    assert caught.value.hint == "replay it with the tfmon that wrote it, or race again"


def test_what_is_no_file_or_has_no_event_is_told_so(tmp_path):
    assert problem_of(tmp_path).endswith("is not a file")
    assert problem_of(tmp_path / "none").endswith("is not a file")
    assert "line 2: no event" in problem_of(write(tmp_path, LINES[0]))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nonsense\n", "line 3: not JSON"),
        (b'{"type":"Rocket","at_ns":1}\n', "line 3: unknown type 'Rocket'"),
        (b'{"type":"Finished","at_ns":1e99,"steps":1}\n', "is not a time"),
        (b'{"type":"KnobApplied","at_ns":1}\n', "line 3: KnobApplied without"),
        (b'{"type":"Finished","at_ns":1,"steps":1,"more":1}\n', "Finished has no 'more'"),
        (b'{"type":"Finished","at_ns":1,"steps":"all"}\n', "event 2: Finished.steps: 'all' is not a whole number"),
        (b"[" * 200_000 + b"\n", "line 3: not JSON (RecursionError)"),
        (b"x" * (2**24 + 10), "line 3: a line of more than 16 MiB"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path, line, problem):
    assert problem in problem_of(write(tmp_path, *LINES[:2], line, *LINES[2:]))


def test_a_newer_tfmon_is_named_where_it_wrote_what_this_one_does_not_know(tmp_path):
    header = json.dumps({**json.loads(LINES[0]), "tfmon": "9.9"}).encode() + b"\n"
    with pytest.raises(RecordingError) as caught:
        play_all(write(tmp_path, header, LINES[1], b'{"type":"Rocket","at_ns":1}\n'))
    assert caught.value.hint == f"it was written by tfmon 9.9; this is {tfmon.__version__}"


def test_a_gzip_bomb_is_stopped_and_a_damaged_archive_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "LARGEST_BYTES", 2 * 2**20)
    path = tmp_path / "race.jsonl.gz"
    path.write_bytes(gzip.compress(LINES[0] + b"\0" * (16 * 2**20)))
    assert "too large" in problem_of(path)
    packed = bytearray(gzip.compress(b"".join(LINES)))
    packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)
    assert "too large" not in problem_of(path)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_makes_more_than_a_clear_error(tmp_path, data):
    """Lines are dropped, copied, changed, cut and written over."""
    random_ = random.Random(data.draw(st.integers()))
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 6))):
        at, other = random_.randrange(len(lines)), random_.choice(lines)
        place = random_.randrange(len(other))
        changed = other[:place] + bytes([random_.randrange(256)]) + other[place + 1 :]
        noise = data.draw(st.binary(max_size=40)) + b"\n"
        written = data.draw(st.sampled_from(([], [other], [changed], [other[: place + 1]], [noise])))
        lines[at : at + data.draw(st.integers(0, 1))] = written
    path = write(tmp_path, *lines)
    try:
        with guard(path):
            opened, end = play_all(path)
            json.dumps(to_json(analyse(end)), allow_nan=False)
            to_text(analyse(end))
        draw(analyse(end), Display(), 120, 36)
    except RecordingError as error:
        assert error.message.isprintable()
    else:
        assert len(opened)
