"""`tfmon verify`: measures what is claimed about scenarios."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tfmon.cli import options
from tfmon.errors import EXIT_INTERRUPTED


@click.command()
@click.argument("scenarios", nargs=-1)
@click.option("--seconds", type=options.Seconds(min=3), default=12.0, show_default=True, help="Longest race.")
@options.as_json
@options.python
def verify(scenarios: tuple[str, ...], seconds: float, as_json: bool, python: str | None) -> None:
    """Measure what is claimed about SCENARIOS, or about all of them.

    Each claim is a race of two lanes. A claim that is contradicted is a finding, not a failure: the exit code
    is 0 unless the command itself is interrupted.
    """
    from tfmon.catalog import find_scenario, list_scenarios
    from tfmon.runner.planner import find_python
    from tfmon.runner.verification import Verification, to_json, to_text

    infos = [find_scenario(name) for name in scenarios] or list_scenarios()
    verification = Verification(infos, find_python(python) if python else Path(sys.executable), seconds)
    verification.run()
    click.echo(json.dumps(to_json(verification), indent=2) if as_json else to_text(verification))
    if verification.interrupted:
        sys.exit(EXIT_INTERRUPTED)
