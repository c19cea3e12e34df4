"""`tfmon.race` in a notebook, run by a kernel of its own: progress below the cell, the table as its result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.waiting import HANGS_S

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytestmark = pytest.mark.process
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


def test_a_race_in_a_notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    cells = [nbformat.v4.new_code_cell(source) for source in (SCRIPTED, RACE, IN_THE_LOOP)]
    book = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        book, timeout=HANGS_S, startup_timeout=HANGS_S, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    _, first, second = book.cells
    progress, result = first.outputs
    assert progress.data["text/plain"] == "", "the line is cleared at the end"
    assert "cpu batch_size=64" in result.data["text/html"] and result.data["text/html"].startswith("<pre>")
    assert "examples/s" in result.data["text/html"]
    assert second.outputs[0].text.strip() == "finished"
