"""Versions, and what TensorFlow requires of other packages."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tfmon.doctor.facts import Facts


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without a suffix: (2, 18, 0) of "2.18.0rc1"; () of what is not a version."""
    try:
        return Version(version).release
    except InvalidVersion:
        return ()


def fits(version: str, allowed: str | SpecifierSet) -> bool:
    """Return whether a version satisfies every clause; what is not a version, or not a clause, tells nothing."""
    try:
        clauses = allowed if isinstance(allowed, SpecifierSet) else SpecifierSet(allowed)
    except InvalidSpecifier:
        return True
    return not release(version) or clauses.contains(version, prereleases=True)


def requirements(facts: Facts, extra: str = "") -> list[Requirement]:
    """Return TensorFlow's requirements in the examined interpreter, or those that one of its extras adds.

    Source: https://packaging.python.org/en/latest/specifications/dependency-specifiers/
    """
    environment = {
        "python_version": ".".join(map(str, facts.python.version[:2])),
        "python_full_version": ".".join(map(str, facts.python.version)),
        "sys_platform": facts.platform.system.lower(),
        "platform_system": facts.platform.system,
        "platform_machine": facts.platform.machine,
    }

    def holds(one: Requirement, extra: str) -> bool:
        return one.marker is None or one.marker.evaluate({**environment, "extra": extra})

    found = []
    for line in facts.build.requires:
        try:
            one = Requirement(line)
        except InvalidRequirement:
            continue
        one.name = canonicalize_name(one.name)
        if holds(one, extra) and not (extra and holds(one, "")):
            found.append(one)
    return found


def package(required: Requirement) -> str:
    """Return a requirement as a word of a command."""
    return f"'{required.name}{required.specifier}'" if required.specifier else required.name
