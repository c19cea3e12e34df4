"""`tfmon doctor`, `hosts` and `config`: this machine, other machines, and the settings."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from tfmon.api import settings
from tfmon.api.options import RaceOptions
from tfmon.cli import flags
from tfmon.errors import EXIT_FINE, EXIT_UNUSABLE_HOST, EXIT_USAGE, UsageError
from tfmon.model.codec import clean

PYTHON = RaceOptions.declaration("python")


@click.command
@flags.as_json
@click.option("-v", "--verbose", is_flag=True, help="Also show the evidence, and checks that do not apply.")
@click.option("--no-import", is_flag=True, help="Do not import TensorFlow, which takes seconds.")
@click.option("--host", metavar="HOST", help="Examine another machine: one that ssh or the settings file knows.")
@click.option("--python", metavar="PATH", help=PYTHON.help)
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
    from tfmon.doctor.diagnosis import Diagnosis
    from tfmon.doctor.facts import gather_facts
    from tfmon.lanes.remote.connection import examine
    from tfmon.reports.findings import to_json, to_text

    host_entry = {} if host is None else {"host": host}
    with flags.errors_as_json(as_json, **host_entry):
        if host is None:
            local = flags.interpreter_of(python and PYTHON.rule.convert(python, None, None))
            report = Diagnosis(gather_facts(local, imports=not no_import))
        else:
            report = examine(settings.find_host(host), python or "", imports=not no_import)
    if as_json:
        written = {**to_json(report), **host_entry}
        click.echo(json.dumps(written, indent=2))
        sys.exit(report.exit_code)
    colours = {} if os.environ.get("NO_COLOR") else {"ok": "green", "warning": "yellow", "broken": "red"}

    def paint(text: str, status: str) -> str:
        return click.style(text, fg=colours[status]) if status in colours else text

    if host is not None:
        click.echo(f"On {host}, with {clean(report.facts.python.executable)}:\n")
    flags.echo(to_text(report, verbose=verbose, paint=paint))
    sys.exit(report.exit_code)


@click.command
@click.argument("names", nargs=-1, metavar="[HOST]...")
@click.option(
    "--ray",
    "address",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help="List the nodes of a Ray cluster instead: the one at HOST:PORT, by default RAY_ADDRESS, otherwise the "
    "cluster on this machine.",
)
@flags.ray_python
@flags.as_json
def hosts(names: tuple[str, ...], address: str | None, ray_python: str | None, as_json: bool) -> NoReturn:
    """Say what other machines have: Python, TensorFlow, GPUs, cores, round trip, offset of the clock.

    A HOST is a destination of ssh, such as me@gpu2, or a name under [hosts] in the settings file; without any, all
    of these. Nothing is installed there, and nothing is left behind.

    With --ray the nodes of a Ray cluster are listed: their CPUs and GPUs, and how many are free.

    Exit codes: 0 all can be used, 1 one cannot, 2 wrong usage.

    \b
    For example:
      tfmon hosts me@gpu2 gpu3
      tfmon hosts --ray
    """
    from tfmon.api.options import ray_cluster
    from tfmon.reports.findings import hosts_to_json, hosts_to_text, nodes_to_json, nodes_to_text

    if address is not None:
        if names:
            raise UsageError("--ray lists the nodes of a cluster alone", f"tfmon hosts {names[0]} asks a host")
        with flags.errors_as_json(as_json):
            nodes = ray_cluster(address, ray_python).nodes()
        flags.echo(json.dumps(nodes_to_json(nodes), indent=2) if as_json else nodes_to_text(nodes))
        sys.exit(EXIT_FINE)
    from tfmon.lanes.remote.connection import survey
    from tfmon.model.spec import SpecError, check_host
    from tfmon.probes.machine import read_machine

    wanted = tuple(dict.fromkeys(names or settings.config_file().hosts))
    if not wanted:
        raise UsageError("no host is named, and the settings file has none", "for example: tfmon hosts me@gpu2")
    try:
        for name in wanted:
            check_host(name)
    except SpecError as error:
        raise UsageError(str(error), "for example: tfmon hosts me@gpu2") from error
    result = survey([settings.find_host(name) for name in wanted])
    local = read_machine()
    flags.echo(json.dumps(hosts_to_json(result, local), indent=2) if as_json else hosts_to_text(result, local))
    unusable = any(host.error or not host.machine.tensorflow for host in result)
    sys.exit(EXIT_UNUSABLE_HOST if unusable else EXIT_FINE)


@click.command
@click.option("--init", is_flag=True, help="Write a settings file for you to edit, with everything in comments.")
@flags.as_json
@flags.settings
def config(init: bool, as_json: bool, **flags: object) -> NoReturn:
    """Show the settings in effect, and where each comes from.

    A flag goes before an environment variable such as TFMON_THEME, a variable before the settings file, and the
    file before the built-in value. TFMON_CONFIG names another file.

    \b
    For example:
      tfmon config
      tfmon config --init
    """
    path = settings.config_path()
    if init:
        _write_settings(path)
        click.echo(f"wrote {path}; all of it is in comments, so nothing has changed yet")
        sys.exit(EXIT_FINE)
    result = settings.read_file(path)
    mistakes = list(result.mistakes)
    rows: dict[str, dict[str, Any]] = {}
    for option in settings.SETTINGS:
        resolved = settings.Resolved(option.default, "default")
        try:
            resolved = settings.resolve(option.setting, flags.get(option.setting), result)
        except UsageError as error:
            mistakes.append(error.message)
        rows[option.setting] = {"value": resolved.value, "source": resolved.source}
    if as_json:
        report = {"path": str(path), "exists": result.exists, "settings": rows}
        hosts = {
            host.name: {"run": list(host.run) or None, "python": host.python} for host in result.hosts.values()
        }
        click.echo(json.dumps({**report, "keys": {**result.keys}, "hosts": hosts, "mistakes": mistakes}, indent=2))
    else:
        click.echo(_settings_text(result, rows))
    for mistake in mistakes:
        click.echo(f"tfmon: {mistake}", err=True)
    sys.exit(EXIT_USAGE if mistakes else EXIT_FINE)


def _settings_text(config: settings.ConfigFile, rows: dict[str, dict[str, Any]]) -> str:
    note = "" if config.exists else "   (not there; tfmon config --init writes it)"
    lines = [f"{config.path}{note}", ""]
    shown = {name: json.dumps(row["value"]) for name, row in rows.items()}
    width = max(map(len, shown.values()))
    lines += [f"{name:<16}{shown[name]:<{width}}  {row['source']}" for name, row in rows.items()]
    lines += ["", "[keys]", *(f"{name:<16}{keys}" for name, keys in config.keys.items())] if config.keys else []
    for name, host in config.hosts.items():
        lines += ["", f"[hosts.{name}]", f"{'run':<16}{shlex.join(host.run) or 'ssh'}"]
        lines += [f"{'python':<16}{host.python or 'python3'}"]
    return "\n".join(lines)


def _write_settings(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(settings.template())
    except FileExistsError:
        raise UsageError(f"{path} is there already, and stays as it is", "edit it, or move it away") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
