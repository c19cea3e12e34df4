"""`tfmon doctor`: why TensorFlow uses no GPU, and whether a race would be fair."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

import click

from tfmon.cli import options


@click.command(short_help="Say why TensorFlow uses no GPU here.")
@options.as_json
@click.option("-v", "--verbose", is_flag=True, help="Also show the evidence, and checks that do not apply.")
@click.option("--no-import", is_flag=True, help="Do not import TensorFlow, which takes seconds.")
@options.python
def doctor(as_json: bool, verbose: bool, no_import: bool, python: str | None) -> NoReturn:
    """Say why TensorFlow uses no GPU here, and whether a race would be fair.

    Exit codes: 0 all fine, 1 warnings, 2 no usable GPU (or wrong usage), 3 TensorFlow unusable.
    """
    from tfmon.doctor.report import run_checks
    from tfmon.reports.doctor import to_json, to_text
    from tfmon.runner import variance
    from tfmon.runner.settings import ascii_only

    report = run_checks(options.interpreter(python), imports=not no_import)
    if as_json:
        click.echo(json.dumps({**to_json(report), "between_processes": variance.lines()}, indent=2))
        sys.exit(report.exit_code)
    colours = {} if os.environ.get("NO_COLOR") else {"ok": "green", "warning": "yellow", "broken": "red"}

    def paint(text: str, status: str) -> str:
        return click.style(text, fg=colours[status]) if status in colours else text

    if verbose:
        click.echo(f"{learnt_text()}\n")
    click.echo(to_text(report, verbose=verbose, ascii_only=ascii_only(), paint=paint))
    sys.exit(report.exit_code)


def learnt_text() -> str:
    """Return what races told of how much equal processes differ."""
    from tfmon.runner import variance

    known = variance.lines() or ["nothing yet; races of a minute and more without a screen find it out"]
    heading = f"Equal processes, as earlier races found ({variance.path()}):"
    return "\n".join([heading, *(f"  {line}" for line in known)])
