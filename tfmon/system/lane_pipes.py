"""How a process finds its lane: by inherited descriptors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping

from tfmon.model.fast_dataclass import dataclass

VARIABLE = "TFMON_PIPES"
LANE, NUMBER, LANES = "TFMON_LANE", "TFMON_LANE_NUMBER", "TFMON_LANES"
"""For the script: the lane's id, its number from 0, and the lanes' number."""
PORTS = "TFMON_PORTS"
"""Folder in which lanes exchange ports."""
USES = "_tfmon_used_files"
"""Name of `hooks.used_files`, loaded before the script's modules."""
SETTINGS = "TFMON_SETTINGS"
"""Knobs as a JSON object."""
ANY = "any"
HOLDER = "TFMON_HOLDER"
"""Process id of the first Python, because a launcher may close descriptors in children."""


@dataclass(frozen=True, slots=True)
class LanePipes:
    """The lane of a process."""

    metric_fd: int
    knob_fd: int
    lock_fd: int
    """The process that locked it is the lane."""
    token: str
    """Distinguishes lanes with equal descriptors."""
    device: str

    @property
    def kind(self) -> str:
        """`cpu`, `gpu` or `any`."""
        return self.device.rpartition("x")[2]

    @property
    def devices(self) -> int:
        """The number of devices."""
        count = self.device.rpartition("x")[0]
        return int(count) if count.isdecimal() else 1

    def text(self) -> str:
        """Return the value of the environment variable that `read_pipes` reads."""
        return f"{self.metric_fd}:{self.knob_fd}:{self.lock_fd}:{self.token}:{self.device}"


def read_pipes(environment: Mapping[str, str]) -> LanePipes | None:
    """Return the lane in the environment, if any."""
    parts = environment.get(VARIABLE, "").split(":")
    if len(parts) != 5 or not all(part.isdecimal() for part in parts[:3]):
        return None
    return LanePipes(int(parts[0]), int(parts[1]), int(parts[2]), parts[3], parts[4])


def is_open(pipes: LanePipes) -> bool:
    """Return whether the descriptors are the lane's."""
    try:
        os.fstat(pipes.metric_fd)
        os.fstat(pipes.knob_fd)
        return os.pread(pipes.lock_fd, len(pipes.token), 0).decode(errors="replace") == pipes.token
    except OSError:
        return False


def reopened(pipes: LanePipes, holder: str) -> LanePipes | None:
    """Return the lane with descriptors of another process, or `None`."""
    opened: list[int] = []
    try:
        for fd, flags in (
            (pipes.metric_fd, os.O_WRONLY), (pipes.knob_fd, os.O_RDONLY), (pipes.lock_fd, os.O_RDWR),
        ):  # fmt: skip
            opened.append(os.open(f"/proc/{int(holder)}/fd/{fd}", flags | os.O_CLOEXEC))
    except (OSError, ValueError):
        result = None
    else:
        result = LanePipes(opened[0], opened[1], opened[2], pipes.token, pipes.device)
        if is_open(result):
            return result
    for fd in opened:
        os.close(fd)
    return None


SURROUNDINGS = "TFMON_SURROUNDINGS"
"""Expected surroundings as JSON. For example, Ray starts processes with nice 15."""
INHERITED = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")
_CHECKED = (*INHERITED, "CUDA_VISIBLE_DEVICES")
_NICE = "nice"


def expected(nice: int, monitor: Mapping[str, str], lane: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the variable with the expected surroundings."""
    values = {_NICE: nice, **{key: lane.get(key, monitor.get(key)) for key in _CHECKED}}
    return {SURROUNDINGS: json.dumps(values)}


def differences(variables: MutableMapping[str, str]) -> tuple[str, ...]:
    """Return differences, such as "nice value 15 in place of 0"."""
    expected_json = variables.pop(SURROUNDINGS, "")
    if not expected_json:
        return ()
    result = []
    for name, required in json.loads(expected_json).items():
        actual = os.getpriority(os.PRIO_PROCESS, 0) if name == _NICE else variables.get(name)
        if actual != required:
            title = "nice value" if name == _NICE else name
            result.append(f"{title} {_shown(actual)} in place of {_shown(required)}")
    return tuple(result)


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)
