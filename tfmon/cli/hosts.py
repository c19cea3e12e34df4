"""`tfmon hosts`: whether other machines can be raced on, and what they have."""

from __future__ import annotations

import json
import sys
from typing import NoReturn

import click

from tfmon.cli import options
from tfmon.errors import EXIT_FINE, EXIT_UNUSABLE_HOST, UsageError


@click.command(short_help="Say what other machines have, and whether they answer.")
@click.argument("names", nargs=-1, metavar="[HOST]...")
@options.as_json
def hosts(names: tuple[str, ...], as_json: bool) -> NoReturn:
    """Say what other machines have: Python, TensorFlow, GPUs, cores, round trip, offset of the clock.

    A HOST is a destination of ssh, such as me@gpu2, or a name under [hosts] in the settings file; without any, all
    of these. Nothing is installed there, and nothing is left behind.

    Exit codes: 0 all can be used, 1 one cannot, 2 wrong usage.
    """
    from tfmon.hosts.survey import survey
    from tfmon.model.spec import SpecError, check_host
    from tfmon.probes.machine import read_machine
    from tfmon.reports.hosts import to_json, to_text
    from tfmon.runner.settings import ascii_only, config_file, find_host

    wanted = tuple(dict.fromkeys(names or config_file().hosts))
    if not wanted:
        raise UsageError("no host is named, and the settings file has none", "for example: tfmon hosts me@gpu2")
    try:
        for name in wanted:
            check_host(name)
    except SpecError as error:
        raise UsageError(str(error), "for example: tfmon hosts me@gpu2") from error
    found = survey([find_host(name) for name in wanted])
    here = read_machine()
    text = json.dumps(to_json(found, here), indent=2) if as_json else to_text(found, here, ascii_only=ascii_only())
    click.echo(text)
    sys.exit(EXIT_UNUSABLE_HOST if any(one.error for one in found) else EXIT_FINE)
