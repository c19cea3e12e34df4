"""Which GPUs CUDA_VISIBLE_DEVICES lets a program see. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def visible_gpus(value: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the places in `uuids` of the GPUs that can be seen, in the order a program counts them.

    Unset shows all and "" none. Numbers or UUIDs (their beginnings, if unique) are read up to the first one
    that names no GPU or changes from one kind to the other; a GPU named twice shows none at all.
    Source: CUDA C++ Programming Guide, "CUDA environment variables".
    """
    if value is None:
        return list(range(len(uuids)))
    words = [word.strip() for word in value.split(",")]
    by_number = _is_number(words[0])
    seen: list[int] = []
    for word in words:
        place = _numbered(word, len(uuids)) if by_number else _named(word, uuids)
        if place is None:
            break
        seen.append(place)
    return seen if len(set(seen)) == len(seen) else []


def names_instance(value: str | None) -> bool:
    """Return True when the first word names an instance of a GPU that is split up (MIG)."""
    return value is not None and value.strip().startswith("MIG-")


def counts_gpus(value: str | None) -> bool:
    """Return True when GPUs are given by number, so that it matters how they are counted."""
    return value is not None and _is_number(value.split(",")[0].strip())


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _numbered(word: str, count: int) -> int | None:
    return int(word) if _is_number(word) and int(word) < count else None


def _named(word: str, uuids: Sequence[str]) -> int | None:
    if not word.startswith("GPU-"):
        return None
    places = [place for place, uuid in enumerate(uuids) if uuid.startswith(word)]
    return places[0] if len(places) == 1 else None
