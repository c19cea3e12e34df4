"""`tfmon.race` in a notebook, run by a kernel of its own: progress below the cell, the table as its result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.waiting import HANGS_S

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytestmark = [pytest.mark.process, pytest.mark.tensorflow]
ROOT = Path(__file__).parents[2]

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
    cells = [nbformat.v4.new_code_cell(source) for source in (RACE, IN_THE_LOOP)]
    book = nbformat.v4.new_notebook(cells=cells)
    shown = []
    client = nbclient.NotebookClient(
        book, timeout=HANGS_S, startup_timeout=HANGS_S, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.process_message = spy(client.process_message, shown)
    client.execute()
    first, second = book.cells
    progress, result = first.outputs
    assert progress.data["text/plain"] == "", "the line is cleared at the end"
    assert "cpu batch_size=64" in result.data["text/html"] and result.data["text/html"].startswith("<pre>")
    assert "examples/s" in result.data["text/html"] and any("left" in line for line in shown)
    assert second.outputs[0].text.strip() == "finished"


def spy(process, shown):
    """Note every line that is displayed below a cell, also those that another replaces."""

    def noting(message, *args, **more):
        content = message.get("content", {})
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.append(content["data"].get("text/plain", ""))
        return process(message, *args, **more)

    return noting
