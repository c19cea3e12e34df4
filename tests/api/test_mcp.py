"""`tfmon mcp`, with the client of the SDK over stdin and stdout."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.processes import gone
from support.waiting import HANGS_S, wait_for

mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

# Only the environment of the slow tests has the extra.
pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "contract" / "kept" / "watch.jsonl.gz"
SCRIPT = """
import time
from tfmon import report
for step in range(300):
    time.sleep(0.01)
    report.step(examples=4, loss=1 / (step + 1))
"""
PATCH = """--- a/train.py
+++ b/train.py
@@ -4,2 +4,2 @@
 for step in range(300):
-    time.sleep(0.01)
+    time.sleep(0.003)
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "kept.jsonl.gz").write_bytes(KEPT.read_bytes())
    (tmp_path / "project" / "train.py").write_text(SCRIPT)
    return tmp_path / "project"


@pytest.fixture
def session(folder) -> Callable[..., Any]:
    """Return a function that runs a coroutine with a client of a server in the folder."""

    def session(use: Callable[[Any], Any], *words: str) -> Any:
        async def run() -> Any:
            environment = {
                **os.environ, "TFMON_RECORDINGS": str(folder.parent / "recordings"), "PYTHONPATH": str(ROOT),
                "TFMON_STATE": str(folder.parent / "state"),
            }  # fmt: skip
            server = mcp.StdioServerParameters(
                command=sys.executable, args=["-m", "tfmon", "mcp", *words], env=environment, cwd=folder
            )
            async with mcp.Client(server) as client:
                return await asyncio.wait_for(use(client), HANGS_S)

        return asyncio.run(run())

    return session


def of(result: Any) -> Any:
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


def test_an_agent_reads_a_run(session):
    async def use(client):
        tools = await client.list_tools()
        why, result = await client.call_tool("why", {}), await client.call_tool("result", {"run": "kept"})
        causes = await client.call_tool("causes", {})
        return tools, of(why), of(result), causes

    tools, why, result, causes = session(use)
    assert [tool.name for tool in tools.tools] == ["why", "causes", "result", "try"]
    assert all(tool.description for tool in tools.tools)
    assert why["run"] == result["run"] == "kept"
    assert why["lanes"][0]["bottleneck"]
    assert result["lanes"][0]["steps"] > 0
    assert not causes.is_error


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("why", {"run": "absent"}, "there is no recording absent"),
        ("result", {"run": "/etc/passwd"}, "outside of"),
        ("causes", {"run": "../recordings/kept.jsonl.gz"}, "outside of"),
        ("try", {"patch": PATCH, "command": ["python", "train.py"]}, "without --allow-runs"),
    ],
)
def test_it_reads_only_runs_and_runs_nothing_unless_it_is_allowed(session, tool, arguments, why):
    result = session(lambda client: client.call_tool(tool, arguments))
    assert result.is_error
    assert why in result.content[0].text


def test_an_agent_tries_a_patch(session, folder):
    async def use(client):
        arguments = {"patch": PATCH, "command": [sys.executable, "train.py"]}
        tried = of(await client.call_tool("try", arguments))
        refused = of(await client.call_tool("try", {**arguments, "patch": PATCH.replace("0.01", "0.1")}))
        outside = await client.call_tool("try", {**arguments, "command": [sys.executable, "/etc/train.py"]})
        return tried, refused, outside, of(await client.call_tool("result", {}))

    tried, refused, outside, result = session(use, "--allow-runs")
    assert tried["answer"] in ("keep", "not known yet"), tried
    assert tried["steps"] == [300, 300]
    assert result["run"] == tried["run"]
    assert refused["text"].startswith("refuse: the patch does not apply: patch failed: train.py:")
    assert outside.is_error
    assert "outside of" in outside.content[0].text
    assert (folder / "train.py").read_text() == SCRIPT
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"]


def test_a_client_that_leaves_ends_what_it_began(session, folder):
    (folder / "train.py").write_text(SCRIPT.replace("300", "30_000"))

    async def use(client):
        arguments = {"patch": PATCH.replace("300", "30_000"), "command": [sys.executable, "train.py"]}
        call = asyncio.ensure_future(client.call_tool("try", arguments))
        while not any("train.py" in child.cmdline() for child in psutil.Process().children(recursive=True)):
            await asyncio.sleep(0.1)
        began = psutil.Process().children(recursive=True)
        call.cancel()
        return began

    began = session(use, "--allow-runs")
    wait_for(lambda: all(gone(process.pid) for process in began), what="all processes are gone")
