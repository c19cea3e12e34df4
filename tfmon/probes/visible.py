"""Which GPUs a variable of the environment leaves: CUDA_VISIBLE_DEVICES, read as CUDA reads it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

INSTANCE = "MIG-"
"""How the UUID of an instance of a GPU that is split up (MIG) begins."""


def visible_places(value: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the places in `uuids` of the visible GPUs, in the order a program counts them.

    Unset shows all and "" none. Numbers or UUIDs (their beginnings, if unique) are read up to the first one
    that names no GPU or changes from one kind to the other; a GPU named twice shows none at all.
    Source: CUDA C++ Programming Guide, "CUDA environment variables".
    """
    if value is None:
        return list(range(len(uuids)))
    words = [word.strip() for word in value.split(",")]
    by_number = is_number(words[0])
    places: list[int] = []
    for word in words:
        if by_number:
            found = [int(word)] if is_number(word) and int(word) < len(uuids) else []
        else:
            found = [place for place, uuid in enumerate(uuids) if word[:4] == "GPU-" and uuid.startswith(word)]
        if len(found) != 1:
            break
        places += found
    return places if len(set(places)) == len(places) else []


def names_instances(value: str | None) -> bool:
    """Return whether the variable names instances of GPUs that are split up (MIG)."""
    return (value or "").strip().startswith(INSTANCE)


def visible_instances(value: str, uuids: Sequence[str]) -> list[int]:
    """Return the places in `uuids` of the instances that the variable names, up to the first one not there."""
    places: list[int] = []
    for word in (word.strip() for word in value.split(",")):
        found = [place for place, uuid in enumerate(uuids) if word[:4] == INSTANCE and uuid.startswith(word)]
        if len(found) != 1:
            break
        places += found
    return list(dict.fromkeys(places))


def is_number(word: str) -> bool:
    """Return whether a word of the variable is a number of a GPU."""
    return word.isascii() and word.isdigit()
