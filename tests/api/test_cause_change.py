"""The code of a cause is applied to its line if that is one certain edit."""

import contextlib
from pathlib import Path

import pytest

from tfmon.analysis.cause_kinds import KINDS, OBSERVED
from tfmon.analysis.causes import Cause
from tfmon.api import cause_change
from tfmon.api.cause_change import edited
from tfmon.errors import TfmonError, UsageError
from tfmon.model.lane_events import FITS, MOVABLE, SHUFFLED

KEPT = Path(__file__).parents[1] / "contract" / "kept" / "failed.jsonl.gz"
TF = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    ("id", "before", "after"),
    [
        ("step_eager", 'm.compile("adam", run_eagerly=True)', 'm.compile("adam")'),
        ("step_eager", "m.compile(a, run_eagerly=not F, xla=False)", "m.compile(a, xla=False)"),
        ("step_eager", 'm.compile("adam",\n    run_eagerly=True,\n)', 'm.compile("adam",\n)'),
        ("step_eager", "tf.config.run_functions_eagerly(True)", "tf.config.run_functions_eagerly(False)"),
        ("step_eager", "model.fit(x)", None),
        ("trace_unrolled", "for i in range(400): pass", "for i in tf.range(400): pass"),
        ("trace_unrolled", "for i in moments: pass", None),
        ("trace_unrolled", "l = LSTM(8, unroll=True)", "l = LSTM(8)"),
        ("adapt_slow", "layer.adapt(source.batch(1))", "layer.adapt(source.batch(1_024))"),
        ("adapt_slow", "layer.adapt(texts)", None),
        ("input_sequential_map", "d = d.map(f)", "d = d.map(f, num_parallel_calls=tf.data.AUTOTUNE)"),
        ("input_sequential_map", "d = d.map(f, num_parallel_calls=2)", None),
        ("input_sequential_map", "d = d.map(f).map(g)", None),
        ("input_no_prefetch", "d = d.batch(8)", "d = d.batch(8).prefetch(tf.data.AUTOTUNE)"),
        ("input_no_cache", "d = d.map(é).batch(2)  # é", "d = d.map(é).cache().batch(2)  # é"),
        ("input_dropped", "d = d.map(f).skip(3)", "d = d.skip(3).map(f)"),
        ("input_dropped", "d = d.map(f).shuffle(3).skip(3)", None),
        ("input_dropped", "p.skip(3)", None),
        ("input_cache_discarded", "d = d.cache().take(5)", "d = d.take(5).cache()"),
        ("input_map_before_batch", "d = d.map(f).batch(8)", "d = d.batch(8).map(f)"),
        ("step_metrics", 'm.compile("adam", metrics=[a, b])', None),
        ("step_eager", "this is no Python", None),
    ],
)  # fmt: skip
def test_a_line_is_edited_or_left(id, before, after):
    wanted = None if after is None else f"{TF}{after}\n".encode()
    assert edited(id, f"{TF}{before}\n".encode(), 2) == wanted


@pytest.mark.parametrize(
    ("line", "before", "after"),
    [
        (2, "d = e.map(f)\nd = d.filter(g)\n", "d = e.filter(g)\nd = d.map(f)\n"),
        (3, "if x:\n    d = e.map(f)\n    d = d.filter(g)\n", "if x:\n    d = e.filter(g)\n    d = d.map(f)\n"),
        (3, "d = e.map(f)\nd = d.batch(2)\nd = d.filter(g)\n", None),
        (3, "p = e.map(f)\nv = p.take(3)\nt = p.skip(3)\n", "p = e.map(f)\nv = p.take(3)\nt = e.skip(3).map(f)\n"),
        (4, "e = 3\np = e.map(f)\ne = e.take(2)\nt = p.skip(3)\n", None),
        (3, "p = e.map(f)\np = p.batch(2)\nt = p.skip(3)\n", None),
        (4, "t = (\n    e\n    .map(f)\n    .skip(3)\n)\n", "t = (\n    e\n    .skip(3)\n    .map(f)\n)\n"),
    ],
)
def test_two_calls_change_places_across_lines(line, before, after):
    result = edited("input_dropped", before.encode(), line)
    assert result == (None if after is None else after.encode())


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A user's folder, and a recording of `fails.py` with causes."""
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / KEPT.name).write_bytes(KEPT.read_bytes())
    monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path / "recordings"))
    (tmp_path / "project" / "lib").mkdir(parents=True)
    (tmp_path / "project" / ".venv").mkdir()
    (tmp_path / "project" / "fails.py").write_text("model.fit(x, y, verbose=0)\n")
    return tmp_path / "project"


def cause(place: str) -> Cause:
    return Cause("step_eager", "", ("model.compile(a)",), place=place)


@pytest.mark.parametrize(
    ("line", "text"), [(2, 'm.compile("adam", run_eagerly=True)'), (2, 'm.compile("a'), (9, 'm.compile("adam", r')]
)
def test_the_line_is_found_by_its_text_in_the_files_of_the_folder(folder, line, text):
    content = f'{TF}m.compile("adam", run_eagerly=True)\n'
    for path in (".venv/train.py", "lib/train.py"):
        (folder / path).write_text(content)
    change = cause_change.change_of(cause(f"train.py:{line} `{text}`"), "kept", folder)
    wanted = f'{TF}m.compile("adam")\n'.encode()
    assert change.sides == (("as it is", {}), ("changed", {"lib/train.py": wanted}))
    assert change.originals == {"lib/train.py": content.encode()}
    assert change.title == "step_eager of kept"


@pytest.mark.parametrize(
    "place", ["", "train.py:2 `m.compile(b)`", "other.py:1 `m.compile(a)`", "cell:2 `m.fit(a)`"]
)
def test_other_places_are_refused_with_the_proposed_code(folder, place):
    (folder / "train.py").write_text(f"{TF}m.compile(a, run_eagerly=True)\n")
    with pytest.raises(UsageError, match="step_eager cannot be applied to") as error:
        cause_change.change_of(cause(place), "kept", folder)
    assert error.value.hint == "write it yourself, and try the patch: model.compile(a)"
    assert "\n" not in error.value.line


@pytest.mark.parametrize(
    ("id", "traits", "applies"),
    [
        ("input_no_cache", {FITS}, True),
        ("input_no_cache", {FITS, SHUFFLED}, False),
        ("input_no_cache", set(), False),
        ("input_dropped", {"of filter", MOVABLE}, True),
        ("input_dropped", {"of filter"}, False),
    ],
)
def test_a_remedy_with_a_caveat_is_not_applied(folder, id, traits, applies):
    (folder / "train.py").write_text("d = d.map(f).filter(g)\n")
    seen = Cause(id, *KINDS[id].advice({OBSERVED, *traits}), place="train.py:1 `d = d.map(f).filter(g)`")
    with contextlib.nullcontext() if applies else pytest.raises(UsageError, match="cannot be applied"):
        assert cause_change.change_of(seen, "kept", folder).paths == ("train.py",)


@pytest.mark.parametrize(
    ("id", "run", "script", "why"),
    [
        ("input_arrays", "", "fails.py", r"input_arrays cannot be applied to fails\.py:11 .*from_tensor_slices"),
        ("input_arrays", "failed", "other.py", "input_arrays cannot be applied to"),
        ("no_cause", "", "fails.py", "failed has no cause no_cause · known causes: input_arrays, "),
        ("input_arrays", "", "other.py", r"no recording of other\.py"),
        ("input_arrays", "absent", "fails.py", "no recording absent"),
    ],
)  # fmt: skip
def test_causes_are_of_the_newest_recording_of_the_script_or_a_named_one(folder, id, run, script, why):
    with pytest.raises(TfmonError, match=why):
        cause_change.change_of_cause(id, run, script, folder)
