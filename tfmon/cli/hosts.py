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
@click.option(
    "--ray",
    "address",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help="List the nodes of a Ray cluster instead: the one at HOST:PORT, by default RAY_ADDRESS, else the one "
    "that runs here.",
)
@options.ray_python
@options.as_json
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
    if address is not None:
        if names:
            raise UsageError("--ray lists the nodes of a cluster alone", f"tfmon hosts {names[0]} asks a host")
        _list_nodes(address, ray_python, as_json)
    from tfmon.api.settings import config_file, find_host
    from tfmon.lanes.remote.connection import survey
    from tfmon.model.spec import SpecError, check_host
    from tfmon.probes.machine import read_machine
    from tfmon.reports.checks import hosts_to_json, hosts_to_text

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
    plain = options.ascii_only()
    text = (
        json.dumps(hosts_to_json(found, here), indent=2)
        if as_json
        else hosts_to_text(found, here, ascii_only=plain)
    )
    click.echo(text)
    unusable = any(one.error or not one.machine.tensorflow for one in found)
    sys.exit(EXIT_UNUSABLE_HOST if unusable else EXIT_FINE)


def _list_nodes(address: str, python: str | None, as_json: bool) -> NoReturn:
    from tfmon.api.planner import ray_cluster
    from tfmon.reports.checks import nodes_to_json, nodes_to_text

    with options.errors_as_json(as_json):
        cluster = ray_cluster(address, python, 1.0)
        assert cluster is not None
        nodes = cluster.nodes()
    text = nodes_to_text(nodes, ascii_only=options.ascii_only())
    click.echo(json.dumps(nodes_to_json(nodes), indent=2) if as_json else text)
    sys.exit(EXIT_FINE)
