"""`tfmon verify`: measures what is claimed about scenarios."""

from __future__ import annotations

import json
import sys

import click

from tfmon.cli import options
from tfmon.errors import EXIT_INTERRUPTED
from tfmon.runner.settings import Seconds


@click.command(short_help="Measure what is claimed about scenarios.")
@click.argument("scenarios", nargs=-1)
@click.option(
    "--seconds", type=Seconds(min=3), default=12.0, show_default=True, help="Length of a claim's race at most."
)
@options.as_json
@options.python
def verify(scenarios: tuple[str, ...], seconds: float, as_json: bool, python: str | None) -> None:
    """Measure what is claimed about SCENARIOS, by default about all of them.

    Each claim is a race of two lanes. A contradicted claim is a result, not a failure: the exit code is 0 unless
    the command is interrupted.
    """
    from tfmon.catalog import find_scenario, list_scenarios
    from tfmon.reports.verification import to_json, to_text
    from tfmon.runner.verification import verify_claims

    infos = [find_scenario(name) for name in scenarios] or list_scenarios()
    results, interrupted = verify_claims(infos, options.interpreter(python), seconds)
    click.echo(json.dumps(to_json(results, interrupted), indent=2) if as_json else to_text(results, interrupted))
    if interrupted:
        sys.exit(EXIT_INTERRUPTED)
