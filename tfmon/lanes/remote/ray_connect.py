"""The way into a Ray cluster that is there, or the one line that says why there is none.

Used by the bridge, so it imports the standard library only and stays readable for Python 3.9.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfmon.lanes.remote.ray_nodes import Refusal
from tfmon.model.threads import call_later

CONNECT_S = 25.0
"""How long connecting may take: Ray itself would try for minutes, in silence."""
REACH_S = 4.0
TOKEN = "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE name it"
NONE_RUNS = (
    "no Ray cluster runs on this machine, and RAY_ADDRESS names none",
    "`ray start --head` starts one, --ray HOST:PORT names one",
)


def connect(fail: Callable[[Refusal], object], words: dict[str, Any]) -> Any:  # noqa: ANN401 - Ray, which has no types here
    """Return Ray, connected to a cluster that is there.

    Args:
        fail: Called in another thread where Ray does not answer, and ends the process.
        words: Those of the reservation.

    Raises:
        Refusal: There is none, or it does not take this process.
    """
    given = words["address"] or os.environ.get("RAY_ADDRESS", "")
    address = "" if given == "auto" else given
    named = f"the Ray cluster at {address}" if address else "the Ray cluster of this machine"
    slow = Refusal(f"{named} did not answer within {CONNECT_S:.0f} s", "`ray status` on its head says how it is")
    watch = call_later("tfmon-connect", CONNECT_S, lambda: fail(slow), lambda why: fail(Refusal(why)))
    if address:
        reach(address)
    elif (stale := last_started()) and why_silent(stale):
        raise Refusal(*NONE_RUNS)
    ray = load()
    try:
        ray.init(address=address or "auto", log_to_driver=False, configure_logging=False, namespace="tfmon")
    except ConnectionError as error:
        if not address:
            raise Refusal(*NONE_RUNS) from error
        # Ray says no more than that to who has not its token.
        raise Refusal(f"{named} cannot be used: {first_line(error)}", f"if it wants a token, {TOKEN}") from error
    except Exception as error:
        raise refused(named, error) from error
    watch.cancel()
    return ray


def last_started() -> str:
    """Return the address of the cluster that was started last on this machine, as Ray notes it; empty for none."""
    try:
        return (Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def why_silent(address: str) -> str:
    """Return why nothing listens at HOST:PORT; empty where something does, and for what cannot be read."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:
        pass
    return ""


def load() -> Any:  # noqa: ANN401
    """Return Ray; raises Refusal where this Python has none."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError as error:
        if error.name != "ray":
            raise Refusal(f"Ray cannot be loaded by {sys.executable}: {error}") from error
        hint = "pip install 'tfmon[ray]', or --ray-python names a Python that has it"
        raise Refusal(f"{sys.executable} has no Ray", hint) from error
    return ray


def reach(address: str) -> None:
    """Raise Refusal where nothing listens at an address."""
    _, colon, port = address.rpartition(":")
    if "//" in address or not colon or not port.isdigit():
        raise Refusal(
            f"{address} is not an address of a Ray cluster that lanes can be started on",
            "name HOST:PORT of its head, such as 10.0.0.5:6379, on a machine that is part of it",
        )
    if why := why_silent(address):
        raise Refusal(
            f"no Ray cluster answers at {address}: {why}",
            "`ray status` on its head says where it is; `ray start --head` starts one",
        )


def refused(named: str, error: Exception) -> Refusal:
    """Return the reason for which a cluster did not take this process."""
    text = str(error)
    found = re.findall(r"Ray: (\S+)\s+Python: (\S+)", text)
    if len(found) == 2:
        (theirs, their_python), (ours, our_python) = found
        return Refusal(
            f"{named} runs Ray {theirs} with Python {their_python}; this is Ray {ours} with Python {our_python}",
            "--ray-python names a Python with the cluster's versions; the lanes keep theirs",
        )
    if "token" in text.lower():
        return Refusal(f"{named} did not take the token, or there is none", TOKEN)
    return Refusal(f"{named} cannot be used: {first_line(error)}")


def first_line(error: Exception) -> str:
    """Return the first line of one of Ray's errors that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    facts = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:")
    told = [line for line in lines if not line.startswith(facts)]
    return (told or [type(error).__name__])[0][:200]
