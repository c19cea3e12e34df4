"""A Ray cluster, for Python 3.9 without other packages."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfmon.system.threads import call_later

SIGN = "tfmon: "
CONNECT_S = 25.0
"""Ray tries silently for minutes."""
REACH_S = 4.0
MOST_NAMES = 8
NODE_GONE_HINT = "a new race finds another"
TOKEN = "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE name it"  # noqa: S105 - a hint
NONE_RUNS = (
    "no Ray cluster runs on this machine, and RAY_ADDRESS names none",
    "`ray start --head` starts one, --ray HOST:PORT names one",
)


class Refusal(Exception):
    """Why there can be no reservation."""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.error, self.hint = error, hint


def connect(fail: Callable[[Refusal], object], reservation: dict[str, Any]) -> Any:
    """Return Ray, connected; `fail` ends the process if it does not answer."""
    configured = reservation["address"] or os.environ.get("RAY_ADDRESS", "")
    address = "" if configured == "auto" else configured
    cluster = f"the Ray cluster at {address}" if address else "the Ray cluster of this machine"
    slow = Refusal(f"{cluster} did not answer within {CONNECT_S:.0f} s", "`ray status` on its head says how it is")
    watch = call_later("tfmon-connect", CONNECT_S, lambda: fail(slow), lambda why: fail(Refusal(why)))
    if address:
        reach(address)
    elif (stale := _last_started()) and why_silent(stale):
        raise Refusal(*NONE_RUNS)
    ray = load()
    try:
        ray.init(address=address or "auto", log_to_driver=False, configure_logging=False, namespace="tfmon")
    except ConnectionError as error:
        if not address:
            raise Refusal(*NONE_RUNS) from error
        # Perhaps Ray lacks its token.
        raise Refusal(f"{cluster} cannot be used: {first_line(error)}", f"if it wants a token, {TOKEN}") from error
    except Exception as error:
        raise refused(cluster, error) from error
    watch.cancel()
    return ray


def reach(address: str) -> None:
    """Raise Refusal if nothing listens at an address."""
    if not re.fullmatch(r"[^/]+:\d+", address):
        raise Refusal(
            f"{address} is not an address of a Ray cluster that lanes can be started on",
            "name HOST:PORT of its head, such as 10.0.0.5:6379, on a machine that is part of it",
        )
    if why := why_silent(address):
        raise Refusal(
            f"no Ray cluster answers at {address}: {why}",
            "/tmp/ray/ray_current_cluster on its head has the address; `ray start --head` starts one",
        )


def why_silent(address: str) -> str:
    """Return why nothing listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:
        pass
    return ""


def _last_started() -> str:
    try:
        return (Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def load() -> Any:
    """Return Ray, or raise Refusal."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError as error:
        if error.name != "ray":
            raise Refusal(f"Ray cannot be loaded by {sys.executable}: {error}") from error
        hint = "pip install 'tfmon[ray]', or --ray-python names a Python that has it"
        raise Refusal(f"{sys.executable} has no Ray", hint) from error
    return ray


def refused(cluster: str, error: Exception) -> Refusal:
    """Return why a cluster refused this process."""
    text = str(error)
    result = re.findall(r"Ray: (\S+)\s+Python: (\S+)", text)
    if len(result) == 2:
        (theirs, their_python), (ours, our_python) = result
        return Refusal(
            f"{cluster} runs Ray {theirs} with Python {their_python}; this is Ray {ours} with Python {our_python}",
            "--ray-python names a Python with the cluster's versions; the lanes keep theirs",
        )
    if "token" in text.lower():
        return Refusal(f"{cluster} did not take the token, or there is none", TOKEN)
    return Refusal(f"{cluster} cannot be used: {first_line(error)}")


def first_line(error: Exception) -> str:
    """Return the first meaningful line of Ray's error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    facts = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:")
    meaningful = [line for line in lines if not line.startswith(facts)]
    return (meaningful or [type(error).__name__])[0][:200]


def has_left(ray: Any, node_id: str) -> bool:
    """Return whether a node is dead: Ray notices later than its port."""
    node = next((node for node in ray.nodes() if node["NodeID"] == node_id), None)
    if node is None or not node["Alive"]:
        return True
    return bool(why_silent(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"))


def list_nodes(ray: Any) -> list[dict[str, Any]]:
    """Return the living nodes, with their resources."""
    free: dict[str, dict[str, float]] = {}
    with contextlib.suppress(Exception):  # private API of Ray
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
    result = []
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        has = node["Resources"]
        left = free.get(node["NodeID"])
        result.append(
            {
                "type": "RayNode",
                "id": node["NodeID"],
                "name": node.get("NodeName") or node["NodeManagerAddress"],
                "address": node["NodeManagerAddress"],
                "hostname": node.get("NodeManagerHostname", ""),
                "kinds": sorted(key.partition(":")[2] for key in has if key.startswith("accelerator_type:")),
                "cpus": has.get("CPU", 0),
                "gpus": has.get("GPU", 0),
                "memory_bytes": int(has.get("memory", 0)),
                "free_cpus": left.get("CPU", 0) if left is not None else None,
                "free_gpus": left.get("GPU", 0) if left is not None else None,
            }
        )
    return sorted(result, key=lambda node: (node["name"], node["id"]))


def matching(nodes: Sequence[Mapping[str, Any]], reservation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the possible nodes, or raise Refusal."""
    word, gpus, cpus = reservation["word"], reservation["gpus"], reservation["cpus"]
    have = _resources_text(nodes)
    result = [node for node in nodes if reservation["node"] in ("", node["id"])]
    if not result:
        raise Refusal("the node of this lane is no longer in the cluster", NODE_GONE_HINT)
    if word:
        called = [node for node in result if word in (node["name"], node["address"], node["hostname"], node["id"])]
        # Ray selects only one node by its name.
        called.sort(key=lambda node: node["free_gpus" if gpus else "free_cpus"] or 0)
        result = called[-1:] or [node for node in result if word.lower() in map(str.lower, node["kinds"])]
        if not result:
            names = ", ".join(list(dict.fromkeys(node["name"] for node in nodes))[:MOST_NAMES])
            raise Refusal(f"no node is called {word} or has such a GPU; {have} on {names}")
    for unit, amount, key in (("GPU", gpus, "gpus"), ("CPU", cpus, "cpus")):
        result = [node for node in result if node[key] >= amount]
        if not result:
            needed = f"a {unit}" if amount == 1 else f"{amount:g} {unit}s"
            raise Refusal(f"no node{' ' + word if word else ''} has {needed}; {have}")
    return result


def _resources_text(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return the resources, such as "there are: 2 × A100, 64 CPUs"."""
    kinds: dict[str, float] = {}
    for node in nodes:
        if node["gpus"]:
            kind = "/".join(node["kinds"]) or "GPU"
            kinds[kind] = kinds.get(kind, 0) + node["gpus"]
    parts = [f"{number:g} × {kind}" for kind, number in sorted(kinds.items())]
    cpus = sum(node["cpus"] for node in nodes)
    return "there are: " + ", ".join([*parts, f"{cpus:g} CPU{'' if cpus == 1 else 's'}"])


def free_rooms(nodes: Sequence[Mapping[str, Any]], reservation: Mapping[str, Any]) -> int:
    """Return how many such reservations fit, on the CPU one a node."""
    rooms = 0
    for node in matching(nodes, reservation):
        room = int(node["gpus"]) if reservation["gpus"] else 1
        for key in ("gpus", "cpus"):
            free = node[key] if node["free_" + key] is None else node["free_" + key]
            if reservation[key]:
                room = min(room, int(free / reservation[key]))
        rooms += room
    return rooms


def lacking(nodes: Sequence[Mapping[str, Any]], reservation: Mapping[str, Any], waited_s: float) -> Refusal:
    """Return why a reservation got no room."""
    for key, unit in (("gpus", "GPU"), ("cpus", "CPU")):
        amount = reservation[key]
        known = [node["free_" + key] for node in nodes if node["free_" + key] is not None]
        if amount and len(known) == len(nodes) and all(free < amount for free in known):
            free, total = sum(known), sum(node[key] for node in nodes)
            needed = f"a free {unit}" if amount == 1 else f"{amount:g} free {unit}s"
            waited = f"after {waited_s:.0f} s of waiting {free:g} of {total:g} {unit}s are free"
            return Refusal(f"no node has {needed} now: {waited}", "`tfmon hosts --ray` says what is used")
    return Refusal(f"Ray started no process within {waited_s:.0f} s", "`ray status` says what it waits for")
