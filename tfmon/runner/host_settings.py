"""The tables `[hosts.NAME]` of the settings file: how other machines are reached, and their Python."""

from __future__ import annotations

from collections.abc import Mapping

from tfmon.lanes.remote.host import Host
from tfmon.model.spec import SpecError, check_host

HOSTS_TEMPLATE = (
    "# Another machine, for lanes such as gpu2/gpu:0. A host without a table is reached by ssh, by its name.",
    "#[hosts.gpu2]",
    "# Its Python, with TensorFlow; without it the python3 that it finds.",
    '#python = "~/tf/bin/python"',
    "# Instead of ssh, any command that runs another there and passes stdin and stdout on.",
    '#run = ["ssh", "-p", "2222", "gpu2"]',
)
"""What `tfmon config --init` writes about them."""


def read_hosts(table: object) -> tuple[Mapping[str, Host], list[str]]:
    """Return the hosts, and what is wrong with them."""
    if not isinstance(table, dict):
        return {}, ['hosts: these are tables; below [hosts.gpu2] write for example python = "~/tf/bin/python"']
    hosts: dict[str, Host] = {}
    mistakes: list[str] = []
    for name, entry in table.items():
        wrong = _wrong_with_host(name, entry)
        if wrong:
            mistakes.append(f"hosts.{name}: {wrong}")
        else:
            hosts[name] = Host(name, run=tuple(entry.get("run", ())), python=entry.get("python", ""))
    return hosts, mistakes


def _wrong_with_host(name: str, entry: object) -> str:
    """Return the error in the settings of one host, or ""."""
    try:
        check_host(name)
    except SpecError as error:
        return str(error)
    if not isinstance(entry, dict):
        return 'this is a table; below it write for example run = ["srun", "--gpus=1"]'
    unknown = sorted(entry.keys() - {"run", "python"})
    if unknown:
        return f"there is no {unknown[0]!r}; there are run and python"
    run, python = entry.get("run", ["ssh"]), entry.get("python", "")
    if not isinstance(run, list) or not run or not all(isinstance(word, str) and word for word in run):
        return f'run: {run!r} is not a list of words, such as ["srun", "--gpus=1"]'
    return "" if isinstance(python, str) else f"python: {python!r} is not text in quotes"
