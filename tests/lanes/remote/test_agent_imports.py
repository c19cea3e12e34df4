"""The code that is shipped to a host imports nothing that the host may lack."""

import ast
import subprocess
import sys

import pytest

from tfmon.lanes.remote.start_program import files

LIGHT = {"model", "system", "lanes", "trainer", "__init__"}


def test_what_is_shipped_has_all_that_it_imports_early_or_late():
    shipped = files()
    assert {"pynvml.py", "tfmon/hooks/site/sitecustomize.py", "tfmon/report.py"} <= shipped.keys()
    assert not [name for name in shipped if name.startswith(("tfmon/ui/", "tfmon/cli/", "tfmon/api/"))]
    del shipped["tfmon/__init__.py"]  # which offers names to a user's program alone
    for name, path in shipped.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tfmon."):
                module = str(node.module).replace(".", "/")
                assert {f"{module}.py", f"{module}/__init__.py"} & shipped.keys(), f"{name} imports {module}"


@pytest.mark.process
def test_the_shipped_code_answers_by_itself(tmp_path):
    """Without psutil and everything else that is installed here: `-S -I` leaves the standard library."""
    for name, path in files().items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    code = f"""
import sys, time
sys.path.insert(0, {str(tmp_path)!r})
import tfmon.lanes.remote.agent
early = sorted(name for name in sys.modules if name.startswith("tfmon."))
from tfmon.lanes.remote.questions import answer, start_readings
for question, words in (("machine", {{}}), ("gpus", {{}}), ("doctor", {{"imports": False, "folder": "/"}})):
    assert "error" not in answer(question, words), answer(question, words)
lines = []
tickers = start_readings(lambda: {{}}, lines.append, every_s=0.01)
while not lines:
    time.sleep(0.01)
for ticker in tickers:
    ticker.close()
assert not {{"psutil", "numpy", "click", "textual"}} & set(sys.modules)
print(*early)
"""
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not [name for name in done.stdout.split() if name.split(".")[1] not in LIGHT]
