"""The code that is shipped to a host imports nothing that the host may lack."""

import ast
from pathlib import Path

import pytest
from support.processes import run_python

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
def test_the_agent_loads_little_before_it_is_asked():
    code = "import sys, tfmon.lanes.remote.agent; print(*(name for name in sys.modules if name[:6] == 'tfmon.'))"
    loaded = run_python("-S", "-c", code, folder=Path(__file__).parents[3]).stdout.split()
    assert loaded and {name.split(".")[1] for name in loaded} <= LIGHT
