"""`tfmon config`: where the settings file is, which settings are in effect, and where each comes from."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from tfmon.api.settings import SETTINGS, ConfigFile, Resolved, config_path, read_file, resolve, template
from tfmon.cli import options
from tfmon.errors import EXIT_FINE, EXIT_USAGE, UsageError


@click.command(short_help="Show the settings in effect.")
@click.option("--init", is_flag=True, help="Write a settings file for you to edit, with everything in comments.")
@options.as_json
@options.flags
def config(init: bool, as_json: bool, **flags: object) -> NoReturn:
    """Show the settings in effect, and where each comes from.

    A flag goes before an environment variable such as TFMON_THEME, a variable before the settings file, and the
    file before the built-in value. TFMON_CONFIG names another file.

    \b
    For example:
      tfmon config
      tfmon config --init
    """
    path = config_path()
    if init:
        _write(path)
        click.echo(f"wrote {path}; all of it is in comments, so nothing has changed yet")
        sys.exit(EXIT_FINE)
    found = read_file(path)
    mistakes = list(found.mistakes)
    rows: dict[str, dict[str, Any]] = {}
    for setting in SETTINGS:
        resolved = Resolved(setting.default, "default")
        try:
            resolved = resolve(setting.name, flags.get(setting.name), found)
        except UsageError as error:
            mistakes.append(error.message)
        rows[setting.name] = {"value": resolved.value, "source": resolved.source}
    if as_json:
        report = {"path": str(path), "exists": found.exists, "settings": rows}
        hosts = {one.name: {"run": list(one.run) or None, "python": one.python} for one in found.hosts.values()}
        click.echo(json.dumps({**report, "hosts": hosts, "mistakes": mistakes}, indent=2))
    else:
        click.echo(_text(found, rows))
    for mistake in mistakes:
        click.echo(f"tfmon: {mistake}", err=True)
    sys.exit(EXIT_USAGE if mistakes else EXIT_FINE)


def _text(found: ConfigFile, rows: dict[str, dict[str, Any]]) -> str:
    where = "" if found.exists else "   (not there; tfmon config --init writes it)"
    lines = [f"{found.path}{where}", ""]
    shown = {name: json.dumps(row["value"]) for name, row in rows.items()}
    width = max(map(len, shown.values()))
    lines += [f"{name:<14}{shown[name]:<{width}}  {row['source']}" for name, row in rows.items()]
    for name, host in found.hosts.items():
        lines += ["", f"[hosts.{name}]", f"{'run':<14}{shlex.join(host.run) or 'ssh'}"]
        lines += [f"{'python':<14}{host.python or 'python3'}"]
    return "\n".join(lines)


def _write(path: Path) -> None:
    """Write a new settings file that only its owner may read."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        raise UsageError(f"{path} is there already, and stays as it is", "edit it, or move it away") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
