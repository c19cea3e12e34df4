"""How another machine is reached."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.spec import SpecError, check_host
from tfmon.system.lane_pipes import INHERITED

RAY = "ray"
BRIDGE = Path(__file__).with_name("ray_bridge.py")
HOSTS_TEMPLATE = (
    "# Another machine, for lanes such as gpu2/gpu:0. A host without a table is reached by ssh, by its name.",
    "#[hosts.gpu2]",
    "# Its Python, with TensorFlow; without it the python3 that it finds.",
    '#python = "~/tf/bin/python"',
    "# Instead of ssh, any command that runs another there and passes stdin and stdout on.",
    '#run = ["ssh", "-p", "2222", "gpu2"]',
)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A request to Ray: `ray/gpu`, a kind `ray:H100/gpu`, on a node `ray:node7/cpu`, another `ray:2/gpu`."""

    python: str
    address: str = ""
    """Empty for RAY_ADDRESS, or the local cluster."""
    word: str = ""
    """A kind of GPU or a node."""
    gpus: int = 0
    cpus: float = 1
    wait_s: float = 30
    node: str = ""
    """The lanes stay on this node."""
    visible: str | None = None
    nice: int | None = None
    name: str = ""

    def command(self, subcommand: str) -> list[str]:
        """Return the bridge's command line."""
        reservation = json.dumps({**asdict(self), "variables": INHERITED})
        return [self.python, str(BRIDGE), subcommand, reservation]

    def placed(self, error_lines: Sequence[str]) -> Reservation:
        """Return the reservation as reported."""
        result = last_report(error_lines).get("placed", {})
        if not result:
            return self
        return replace(self, **{key: result[key] for key in ("node", "visible", "nice", "name")})


def last_report(error_lines: Sequence[str]) -> Mapping[str, Any]:
    """Return the bridge's last report."""
    from tfmon.lanes.remote.ray_cluster import SIGN  # every command loads this module

    for line in reversed(error_lines):
        if line.startswith(SIGN + "{"):
            with contextlib.suppress(ValueError):
                return dict(json.loads(line[len(SIGN) :]))
    return {}


@dataclass(frozen=True, slots=True)
class Host:
    """A machine for lanes."""

    name: str
    """A destination of ssh, or a table `[hosts.NAME]`."""
    run: tuple[str, ...] = ()
    """A command that runs another there, or empty for ssh."""
    python: str = ""
    """The interpreter there, or empty for `python3`."""
    settings: str = field(default="the settings file", compare=False)
    ray: Reservation | None = None

    @property
    def called(self) -> str:
        """The name in messages, with Ray's node."""
        node = self.ray.name if self.ray is not None and not self.ray.word else ""
        return f"{self.name} on {node}" if node else self.name


def is_ray(host: str) -> bool:
    """Return whether Ray reaches a host."""
    return host.partition(":")[0] == RAY


def word_of(host: str) -> str:
    """Return the kind of GPU or the node."""
    _, *parts = host.split(":")
    return ":".join(word for word in parts if word and not word.isdigit())


def read_hosts(table: object) -> tuple[Mapping[str, Host], list[str]]:
    """Return the hosts, and the errors."""
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
