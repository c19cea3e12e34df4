"""`tfmon mcp`: serves tfmon to agents."""

from __future__ import annotations

from pathlib import Path

import click


@click.command
@click.option("--allow-runs", is_flag=True, help="Also run scripts of this folder, for the tool `try`.")
def mcp(allow_runs: bool) -> None:
    """Serve tfmon to an agent over the Model Context Protocol, on standard input and output.

    The tools are `why`, `causes` and `result` of recorded runs, and `try` for a patch. Paths are restricted to the
    folder in which the server starts.

    \b
    For example:
      tfmon mcp
      tfmon mcp --allow-runs
    """
    from tfmon.api.mcp import make_server

    make_server(Path.cwd(), allow_runs=allow_runs).run("stdio")
