"""`tfmon doctor`: why TensorFlow uses no GPU, and whether a race would be fair."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from tfmon.cli import options
from tfmon.errors import TfmonError
from tfmon.model.codec import clean
from tfmon.reports import head

if TYPE_CHECKING:
    from tfmon.doctor.report import Report


@click.command(short_help="Say why TensorFlow uses no GPU here.")
@options.as_json
@click.option("-v", "--verbose", is_flag=True, help="Also show the evidence, and checks that do not apply.")
@click.option("--no-import", is_flag=True, help="Do not import TensorFlow, which takes seconds.")
@click.option("--host", metavar="HOST", help="Examine another machine: one that ssh or the settings file knows.")
@options.python
def doctor(as_json: bool, verbose: bool, no_import: bool, host: str | None, python: str | None) -> NoReturn:
    """Say why TensorFlow uses no GPU here, and whether a race would be fair.

    With --host, the checks run on another machine; --python then names an interpreter there.

    Exit codes: 0 all fine, 1 warnings, 2 no usable GPU (or wrong usage), 3 TensorFlow unusable.

    \b
    For example:
      tfmon doctor
      tfmon doctor -v --python ~/tf/bin/python
      tfmon doctor --host me@gpu2
    """
    from tfmon.reports.checks import to_json, to_text

    where = {} if host is None else {"host": host}
    try:
        report = _examine(host, python, imports=not no_import)
    except TfmonError as error:
        if host is None or not as_json:
            raise
        click.echo(json.dumps({**head(), **where, "error": error.message, "hint": error.hint or None}, indent=2))
        sys.exit(error.exit_code)
    if as_json:
        written = {**to_json(report), **where}
        click.echo(json.dumps(written, indent=2))
        sys.exit(report.exit_code)
    colours = {} if os.environ.get("NO_COLOR") else {"ok": "green", "warning": "yellow", "broken": "red"}

    def paint(text: str, status: str) -> str:
        return click.style(text, fg=colours[status]) if status in colours else text

    if host is not None:
        click.echo(f"On {host}, with {clean(report.python)}:\n")
    click.echo(to_text(report, verbose=verbose, ascii_only=options.ascii_only(), paint=paint))
    sys.exit(report.exit_code)


def _examine(host: str | None, python: str | None, *, imports: bool) -> Report:
    """Return the report of this machine, or of another.

    Raises:
        TfmonError: the interpreter, or the host, cannot be used.
    """
    if host is None:
        from tfmon.doctor.report import run_checks

        return run_checks(options.interpreter(python), imports=imports)
    from tfmon.api.settings import find_host
    from tfmon.lanes.remote.connection import examine

    named = click.get_current_context().get_parameter_source("python") is ParameterSource.COMMANDLINE
    return examine(find_host(host), python if named and python else "", imports=imports)
