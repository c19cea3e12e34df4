"""The server of the Model Context Protocol, by which an agent reads runs and tries patches."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.analysis.result import RaceResult
from tfmon.errors import TfmonError, UsageError
from tfmon.model.codec import to_json
from tfmon.recordings.library import find
from tfmon.recordings.results import read_recorded
from tfmon.version import __version__

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTRUCTIONS = (
    "tfmon measures TensorFlow training. Call `why` and `causes` for a recorded run, and write a patch for the "
    "line of a cause. `try` races the script with the patch against the script as it is, and answers keep, refuse "
    "with a reason, or not known yet."
)
NO_RUNS = "this server only reads: it was started without --allow-runs"
FIGURES = (
    "id", "name", "state", "error", "command", "examples_per_s", "examples_per_s_ci95", "step_ms", "steps",
    "examples", "loss", "peak_private_bytes", "bottleneck_text",
)  # fmt: skip
MOST_SECONDS = 3_600.0
END_S = 60.0
"""Longest wait for the end of a cancelled try."""


def make_server(folder: Path, *, allow_runs: bool) -> MCPServer[Any]:
    """Return the server for a folder; raises TfmonError without the SDK."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations
    except ImportError:
        raise TfmonError("tfmon mcp needs the package mcp", "pip install 'tfmon[mcp]'") from None
    server: MCPServer[Any] = MCPServer("tfmon", version=__version__, instructions=INSTRUCTIONS)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    runs = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)

    def recorded(run: str) -> RaceResult:
        try:
            _inside(run, folder)
            return read_recorded(find(run))[0]
        except TfmonError as error:
            raise ToolError(error.line) from None

    def why(run: str = "last") -> dict[str, Any]:
        """Say why a recorded run is slow: bottleneck, causes, and where the time of the whole run went."""
        race = recorded(run)
        return {
            "run": race.id,
            "verdict": race.verdict.text,
            "lanes": [
                {
                    "name": lane.name,
                    "bottleneck": lane.bottleneck_text,
                    "notes": list(lane.bottleneck_notes),
                    "causes": [cause.text or cause.advice for cause in lane.causes],
                    "account_s": lane.account.groups if lane.account is not None else None,
                }
                for lane in race.lanes
            ],
        }

    def causes(run: str = "last") -> list[dict[str, Any]]:
        """Return the causes of slow training in a recorded run, each with its line and the code to write."""
        race = recorded(run)
        return [{"lane": lane.name, **to_json(cause)} for lane in race.lanes for cause in lane.causes]

    def result(run: str = "last") -> dict[str, Any]:
        """Return the verdict and the main figures of each lane of a recorded run. `last~1` is the one before."""
        race = recorded(run)
        lanes = [{name: to_json(getattr(lane, name)) for name in FIGURES} for lane in race.lanes]
        return {"run": race.id, "started": race.started, "verdict": to_json(race.verdict), "lanes": lanes}

    async def try_(patch: str, command: list[str], seconds: float = 120.0) -> dict[str, Any]:
        """Judge a patch: race the script with it against the script as it is. No file is changed.

        `patch` is a unified diff of files in the folder, `command` the script with its arguments, such as
        ["python", "train.py"], and `seconds` the longest time of the race. If both sides end in it, each runs
        three more times by itself. The answer is keep, refuse, not known yet, or failed.
        """
        try:
            if not allow_runs:
                raise UsageError(NO_RUNS, "start it as: tfmon mcp --allow-runs")
            if not command or not 0 < seconds <= MOST_SECONDS:
                raise UsageError(f"command and seconds up to {MOST_SECONDS:.0f} are needed")
            for word in command[1:]:
                _inside(word.rpartition("=")[2], folder)
            return await _try(patch, command, seconds, folder)
        except TfmonError as error:
            raise ToolError(error.line) from None

    for tool in (why, causes, result):
        server.add_tool(tool, annotations=reads)
    server.add_tool(try_, name="try", annotations=runs)
    return server


def _inside(word: str, folder: Path) -> None:
    """Raise UsageError for a path outside of the folder."""
    path = Path(word).expanduser()
    if (os.sep in word or word == ".." or (folder / path).is_symlink()) and not (
        (folder / path).resolve().is_relative_to(folder.resolve())
    ):
        raise UsageError(f"{word} is outside of {folder}", "paths are restricted to the folder of the server")


async def _try(patch: str, command: list[str], seconds: float, folder: Path) -> dict[str, Any]:
    """Return the JSON object of `tfmon try`, without the race. A cancelled call ends the command."""
    with tempfile.TemporaryFile() as file:  # unnamed, so that a killed server leaves no file
        file.write(patch.encode())
        file.seek(0)
        argv = ["try", f"/dev/fd/{file.fileno()}", "--json", "--seconds", str(seconds), "--", *command]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tfmon", *argv),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=[file.fileno()],
        )
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await asyncio.shield(asyncio.wait_for(process.wait(), END_S))
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        raise TfmonError((errors or output).decode(errors="replace").strip() or "tfmon try ended") from None
    if "error" in answer:
        raise TfmonError(answer["error"], answer.get("hint") or "")
    recording = (answer.pop("race", None) or {}).get("recording")
    return {**answer, "run": Path(recording).name.partition(".jsonl")[0] if recording else None}
