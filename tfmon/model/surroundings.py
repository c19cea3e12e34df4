"""What of a lane's surroundings changes its speed: what it ought to be, and how a process finds that it is not so.

A launcher may change it on the way: Ray starts what it runs with a nice value of 15 and with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping

VARIABLE = "TFMON_SURROUNDINGS"
"""Tells a lane's first process what its surroundings ought to be; a JSON object."""
INHERITED = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")
"""Variables that a lane has as the monitor has them."""
_CHECKED = (*INHERITED, "CUDA_VISIBLE_DEVICES")
_NICE = "nice"


def expected(nice: int, monitor: Mapping[str, str], lane: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the variable by which a lane's process is told its surroundings.

    Args:
        nice: The nice value that lanes here have.
        monitor: The monitor's variables.
        lane: Those that the lane has besides.
    """
    words = {_NICE: nice, **{key: lane.get(key, monitor.get(key)) for key in _CHECKED}}
    return {VARIABLE: json.dumps(words)}


def differences(variables: MutableMapping[str, str]) -> tuple[str, ...]:
    """Return in what the calling process has not what it ought to, such as "nice value 15 in place of 0".

    Args:
        variables: Those of the process; the one that tells what they ought to be is taken out.
    """
    told = variables.pop(VARIABLE, "")
    if not told:
        return ()
    found = []
    for name, ought in json.loads(told).items():
        has = os.getpriority(os.PRIO_PROCESS, 0) if name == _NICE else variables.get(name)
        if has != ought:
            what = "nice value" if name == _NICE else name
            found.append(f"{what} {_shown(has)} in place of {_shown(ought)}")
    return tuple(found)


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)
