"""The nodes of a Ray cluster: what they have, and which of them a reservation could be on.

Used by the bridge, too, so it imports the standard library only and stays readable for Python 3.9.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

SIGN = "tfmon: "
"""What the bridge's own words begin with."""
BY_LETTER = "AEFHILMNORSX"
"""Letters whose names begin with a vowel."""
MOST_NAMES = 8


class Refusal(Exception):
    """Why there can be no reservation, and what to do."""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.error, self.hint = error, hint


def list_nodes(ray: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return the nodes that are alive, with what they have and what of it is free."""
    free: dict[str, dict[str, float]] = {}
    with contextlib.suppress(Exception):  # not a public part of Ray
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


def matching(nodes: Sequence[Mapping[str, Any]], words: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the nodes that a reservation could be on; raises Refusal where there is none.

    Args:
        nodes: Those of the cluster, as `list_nodes` returns them.
        words: Those of the reservation.
    """
    word, gpus, cpus = words["word"], words["gpus"], words["cpus"]
    have = have_text(nodes)
    found = [node for node in nodes if words["node"] in ("", node["id"])]
    if not found:
        raise Refusal("the node of this lane is no longer in the cluster", "a new race finds another")
    if word:
        called = [node for node in found if word in (node["name"], node["address"], node["hostname"], node["id"])]
        # Ray can be told one node by its name; a machine may be several.
        called.sort(key=lambda node: node["free_gpus" if gpus else "free_cpus"] or 0)
        found = called[-1:] or [node for node in found if word.lower() in map(str.lower, node["kinds"])]
        if not found and gpus and word.isupper():
            raise Refusal(f"no node has {'an' if word[0] in BY_LETTER else 'a'} {word}; {have}")
        if not found:
            raise Refusal(f"no node is called {word} or has such a GPU; {have}{_names(nodes)}")
    for what, amount, key in (("GPU", gpus, "gpus"), ("CPU", cpus, "cpus")):
        found = [node for node in found if node[key] >= amount]
        if not found:
            needed = f"a {what}" if amount == 1 else f"{amount:g} {what}s"
            raise Refusal(f"no node{' ' + word if word else ''} has {needed}; {have}")
    return found


def have_text(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Say what a cluster has, such as "there are: 2 × A100, 64 CPUs"."""
    kinds: dict[str, float] = {}
    for node in nodes:
        if node["gpus"]:
            kind = "/".join(node["kinds"]) or "GPU"
            kinds[kind] = kinds.get(kind, 0) + node["gpus"]
    words = [f"{number:g} × {kind}" for kind, number in sorted(kinds.items())]
    cpus = sum(node["cpus"] for node in nodes)
    return "there are: " + ", ".join([*words, f"{cpus:g} CPU{'' if cpus == 1 else 's'}"])


def _names(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Say how the nodes are called, such as " on node1, node2"."""
    names = list(dict.fromkeys(node["name"] for node in nodes))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f" on {', '.join(names[:MOST_NAMES])}{more}"


def lacking(nodes: Sequence[Mapping[str, Any]], words: Mapping[str, Any], waited_s: float) -> Refusal:
    """Return why a reservation got no room for so long.

    Args:
        nodes: Those that it could be on, as they are now.
    """
    for key, unit in (("gpus", "GPU"), ("cpus", "CPU")):
        amount = words[key]
        known = [node["free_" + key] for node in nodes if node["free_" + key] is not None]
        if amount and len(known) == len(nodes) and all(free < amount for free in known):
            free, total = sum(known), sum(node[key] for node in nodes)
            needed = f"a free {unit}" if amount == 1 else f"{amount:g} free {unit}s"
            waited = f"after {waited_s:.0f} s of waiting {free:g} of {total:g} {unit}s are free"
            return Refusal(f"no node has {needed} now: {waited}", "`tfmon hosts --ray` says what is used")
    return Refusal(f"Ray started no process within {waited_s:.0f} s", "`ray status` says what it waits for")
