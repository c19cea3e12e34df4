"""Versions and what packages require of each other, as far as the checks need it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?")
_CLAUSE = re.compile(r"(===|==|!=|<=|>=|~=|<|>)\s*([^,\s]+)")
_MARKER = re.compile(r"(\w+)\s*(==|!=|<=|>=|<|>)\s*[\"']([^\"']*)[\"']")


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a package requires of another one."""

    name: str
    """In lower case and with dashes."""
    allowed: str
    """Such as ">=1.26,<2.1"; may be empty."""


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without a suffix: (2, 18, 0) of "2.18.0rc1"."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def fits(version: str, allowed: str) -> bool:
    """Return whether a version satisfies every clause; clauses that are not understood are passed over.

    Source: https://packaging.python.org/en/latest/specifications/version-specifiers/, without pre-releases.
    """
    return all(_satisfies(version, operator, bound) for operator, bound in _CLAUSE.findall(allowed))


def too_old(version: str, allowed: str) -> bool:
    """Return whether a version lies below what is allowed."""
    lower = (f"{operator}{bound}" for operator, bound in _CLAUSE.findall(allowed) if operator in (">=", ">", "~="))
    return not fits(version, ",".join(lower))


def upper_bound(allowed: str) -> tuple[int, ...]:
    """Return the lowest version that is too new, or ()."""
    return min((release(bound) for operator, bound in _CLAUSE.findall(allowed) if operator == "<"), default=())


def read_requirement(line: str, environment: Mapping[str, str]) -> Requirement | None:
    """Return what a `Requires-Dist` line asks for, or None where its condition does not hold or is not understood.

    Source: https://packaging.python.org/en/latest/specifications/dependency-specifiers/; only conditions with
    one comparison are understood.
    """
    match = _REQUIREMENT.fullmatch(line.strip())
    if match is None or (match[3] and not _holds(match[3], environment)):
        return None
    return Requirement(match[1].lower().replace("_", "-").replace(".", "-"), match[2].replace(" ", ""))


def _holds(marker: str, environment: Mapping[str, str]) -> bool:
    match = _MARKER.fullmatch(marker.strip().strip("()").strip())
    if match is None or match[1] not in environment:
        return False
    value, operator, wanted = environment[match[1]], match[2], match[3]
    if "version" in match[1]:
        return _satisfies(value, operator, wanted)
    return (value == wanted) is (operator == "==") and operator in ("==", "!=")


def _satisfies(version: str, operator: str, bound: str) -> bool:
    have, want = release(version), release(bound)
    if not have or not want:
        return True
    if bound.endswith(".*"):
        return (have[: len(want)] == want) is (operator != "!=")
    if operator == "~=":
        return _padded(have) >= _padded(want) and have[: len(want) - 1] == want[:-1]
    order = (_padded(have) > _padded(want)) - (_padded(have) < _padded(want))
    return {"==": order == 0, "===": order == 0, "!=": order != 0, "<": order < 0, "<=": order <= 0,
            ">": order > 0, ">=": order >= 0}[operator]  # fmt: skip


def _padded(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers, *(0,) * (6 - len(numbers)))
