"""`tfmon.race` and `tfmon.watch` in a notebook with its kernel: the output below the cells."""

import os
import re
from pathlib import Path

import pytest
from support.waiting import HANGS_S

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytestmark = [pytest.mark.process, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SCRIPTED = f"""
import functools, pathlib
from tfmon.api import program
from tfmon.lanes.group import LaneGroup
child = pathlib.Path({str(ROOT / "tests" / "lanes" / "children" / "trainer.py")!r})
program.LaneGroup = functools.partial(LaneGroup, script=child)
"""
"""Lanes that train nothing."""

RACE = """
import tfmon
result = tfmon.race("small-dense", lanes=["cpu,batch_size=10", "cpu,batch_size=64"], seconds=3, record=False)
result
"""
IN_THE_LOOP = """
import asyncio
result = await asyncio.to_thread(tfmon.race, "small-dense", lanes=["cpu"], seconds=1, record=False, progress=False)
print(result.lanes[0].state)
"""


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Run a notebook of these cells; return their outputs, without what libraries write to stderr."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    def run(*sources: str) -> list[list]:
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        client = nbclient.NotebookClient(
            book, timeout=HANGS_S, startup_timeout=HANGS_S, resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
        return [[output for output in cell.outputs if output.get("name") != "stderr"] for cell in book.cells]

    return run


def test_a_race_in_a_notebook(execute):
    _, first, second = execute(SCRIPTED, RACE, IN_THE_LOOP)
    progress, result = first
    assert progress.data["text/plain"] == "", "the line is cleared at the end"
    assert "cpu batch_size=64" in result.data["text/html"] and result.data["text/html"].startswith("<pre>")
    assert "examples/s" in result.data["text/html"]
    assert second[0].text.strip() == "finished"


FIT = """
import keras, numpy as np, tensorflow as tf
rng = np.random.default_rng(0)
x, y = rng.random((2_048, 16)).astype("float32"), rng.random((2_048, 1)).astype("float32")
doubled = lambda x, y: (tf.ensure_shape(tf.numpy_function(lambda x: x * 2, [x], tf.float32), (16,)), y)
data = tf.data.Dataset.from_tensor_slices((x, y)).map(doubled).batch(16)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32), keras.layers.Dense(1)])
model.compile("sgd", "mse")
"""
BLOCK = """
import tfmon
with tfmon.watch() as w:
    model.fit(data, epochs=12, verbose=0)
print(w.result.state, w.result.steps, w.result.bottleneck)
"""
MAGIC = """%%tfmon again
history = model.fit(data, epochs=12, verbose=0)
len(history.history["loss"])
"""


@pytest.mark.tensorflow
def test_fit_is_watched_twice_in_one_kernel(execute):
    outputs = execute(FIT, BLOCK, "%load_ext tfmon", MAGIC, "again.result.steps", "again")
    _, block, loaded, magic, steps, shown = outputs
    panel, printed = block
    assert panel.output_type == "display_data" and printed.text.split()[:2] == ["finished", str(12 * 128)]
    assert loaded == []
    assert magic[1].data["text/plain"] == "12" and steps[0].data["text/plain"] == str(12 * 128)
    for html in (panel.data["text/html"], magic[0].data["text/html"], shown[0].data["text/html"]):
        assert html.startswith('<div class="tfmon">') and "<script" not in html
        assert "epoch 12/12 · cpu: " in html and "What limits the lanes" in html and "<polyline" in html
        shares = [float(one) for one in re.findall(r"style=\"width:([\d.]+)%", html)]
        assert sum(shares) == pytest.approx(100, abs=0.1)
    assert "examples/s" in panel.data["text/plain"]
