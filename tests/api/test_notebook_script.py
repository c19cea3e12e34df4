"""A notebook as a script: cells that run, cells that are left out, and cells that are refused."""

import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tfmon.api import notebook
from tfmon.api.notebook import notebook_script
from tfmon.errors import UsageError

STEPS = """
%%time
from tfmon import report
from beside import EXAMPLES
for number in range(20):
    if number == 3:
        !ls
    report.step(examples=EXAMPLES, loss=1.0)
report?
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(notebook, "state_folder", lambda: tmp_path / "state")
    return tmp_path


def write(folder: Path, *cells: str) -> Path:
    path = folder / "train.ipynb"
    book = new_notebook(cells=[new_markdown_cell("# It trains"), *map(new_code_cell, cells)])
    nbformat.write(book, path)
    return path


def test_what_ipython_does_is_left_out_and_named(folder):
    path, skipped = notebook_script(
        write(folder, "%matplotlib inline\n!pip install -q x\na = 1", STEPS, "%%bash\nls")
    )
    assert skipped == [
        "cell 1: %matplotlib inline", "cell 1: !pip install -q x", "cell 2: %pinfo report", "cell 2: !ls",
        "cell 3: %%bash",
    ]  # fmt: skip
    assert path.stem == "train" and "# cell 2" in path.read_text()


@pytest.mark.parametrize(
    ("cell", "reason"),
    [("files = !ls", r"cell 1 uses the result of !ls"), ("a = (", r"cell 1, line 1: '\(' was never closed")],
)
def test_what_a_script_cannot_do_is_refused_with_its_cell(folder, cell, reason):
    with pytest.raises(UsageError, match=reason):
        notebook_script(write(folder, cell))


def test_what_is_no_notebook_and_a_missing_package_are_told(folder, monkeypatch):
    with pytest.raises(UsageError, match="No such file"):
        notebook_script(folder / "none.ipynb")
    (folder / "bad.ipynb").write_text("{")
    with pytest.raises(UsageError, match=r"bad\.ipynb is not a notebook"):
        notebook_script(folder / "bad.ipynb")
    monkeypatch.setitem(sys.modules, "nbformat", None)
    with pytest.raises(UsageError, match="needs nbformat") as raised:
        notebook_script(folder / "bad.ipynb")
    assert "tfmon[notebook]" in raised.value.hint


@pytest.mark.process
def test_a_notebook_is_watched(command, folder):
    (folder / "beside.py").write_text("EXAMPLES = 4\n")
    done = command("watch", "--no-record", "--headless", write(folder, STEPS))
    assert done.code == 0 and "20 steps, 80 examples" in done.out, done
    assert "train.ipynb: cell 1: %pinfo report; cell 1: !ls" in done.err
