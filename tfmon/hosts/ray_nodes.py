"""The nodes of a Ray cluster: what they have, and which of them a reservation could be on.

Used by the bridge, so it imports the standard library only and stays readable for Python 3.9.
"""

from __future__ import annotations

import contextlib
from typing import Any

BY_LETTER = "AEFHILMNORSX"
"""Letters whose names begin with a vowel."""


class Refusal(Exception):
    """Why there can be no reservation, and what to do."""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.error, self.hint = error, hint


def list_nodes(ray: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return the nodes that are alive, with what they have and what of it is free."""
    free: dict[str, dict[str, float]] = {}
    with contextlib.suppress(Exception):  # it is no public part of Ray
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
    found = []
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        has = node["Resources"]
        left = free.get(node["NodeID"])
        found.append(
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
    return sorted(found, key=lambda node: (node["name"], node["id"]))


def matching(nodes: list[dict[str, Any]], words: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes that a reservation could be on; raises Refusal where there is none."""
    word, gpus, cpus = words["word"], words["gpus"], words["cpus"]
    if words["node"]:
        nodes = [node for node in nodes if node["id"] == words["node"]]
        if not nodes:
            raise Refusal("the node of this lane is no longer in the cluster", "a new race finds another")
    found = nodes
    if word:
        called = [node for node in nodes if word in (node["name"], node["address"], node["hostname"], node["id"])]
        found = called or [node for node in nodes if word.lower() in map(str.lower, node["kinds"])]
    have = have_text(nodes)
    if not found:
        what = f"has {'an' if word[0].upper() in BY_LETTER else 'a'} {word}"
        raise Refusal(f"no node {what if gpus else f'is called {word} or has such a GPU'}; {have}")
    for what, amount, key in (("GPU", gpus, "gpus"), ("CPU", cpus, "cpus")):
        found = [node for node in found if node[key] >= amount]
        if not found:
            needed = f"a {what}" if amount == 1 else f"{amount:g} {what}s"
            raise Refusal(f"no node{' ' + word if word else ''} has {needed}; {have}")
    return found


def have_text(nodes: list[dict[str, Any]]) -> str:
    """Say what a cluster has, such as "there are: 2 × A100, 64 CPUs"."""
    kinds: dict[str, float] = {}
    for node in nodes:
        if node["gpus"]:
            kind = "/".join(node["kinds"]) or "GPU"
            kinds[kind] = kinds.get(kind, 0) + node["gpus"]
    words = [f"{number:g} × {kind}" for kind, number in sorted(kinds.items())]
    cpus = sum(node["cpus"] for node in nodes)
    return "there are: " + ", ".join([*words, f"{cpus:g} CPU{'' if cpus == 1 else 's'}"])


def lacking(nodes: list[dict[str, Any]], words: dict[str, Any], waited_s: float) -> Refusal:
    """Return why a reservation got no room for so long.

    Args:
        nodes: Those that it could be on, as they are now.
    """
    for key, unit in (("gpus", "GPU"), ("cpus", "CPU")):
        amount = words[key]
        if amount and all((node["free_" + key] or 0) < amount for node in nodes):
            free, total = (sum(node[name] or 0 for node in nodes) for name in ("free_" + key, key))
            needed = f"a free {unit}" if amount == 1 else f"{amount:g} free {unit}s"
            waited = f"after {waited_s:.0f} s of waiting {free:g} of {total:g} {unit}s are free"
            return Refusal(f"no node has {needed} now: {waited}", "`tfmon hosts --ray` says what is used")
    return Refusal(f"Ray started no process within {waited_s:.0f} s", "`ray status` says what it waits for")
