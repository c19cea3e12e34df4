"""`constraints.txt` has a version for every requirement on every supported Python and platform."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
PLATFORMS = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")]
LINES = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
PINNED = [Requirement(line) for line in LINES if line and not line.startswith("#")]


def requirements(extra: str) -> Iterator[Requirement]:
    """Yield the requirements of an extra, and of the extras in it."""
    for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
        if requirement.name == PROJECT["name"]:
            for other in requirement.extras:
                yield from requirements(other)
        else:
            yield requirement


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("platform", "machine"), PLATFORMS)
def test_every_requirement_is_pinned_to_one_version_that_satisfies_it(python, platform, machine):
    environment = {
        "python_version": python, "python_full_version": f"{python}.9", "sys_platform": platform,
        "platform_machine": machine, "os_name": "posix", "extra": "",
    }  # fmt: skip
    pins = [pin for pin in PINNED if pin.marker is None or pin.marker.evaluate(environment)]
    versions = {normal(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    assert len(versions) == len(pins), "a package is pinned twice"
    needed = [*map(Requirement, PROJECT["dependencies"]), *requirements("all")]
    needed = [one for one in needed if one.marker is None or one.marker.evaluate(environment)]
    assert len(needed) > 30
    wrong = [str(one) for one in needed if not one.specifier.contains(versions.get(normal(one.name), "0"))]
    assert wrong == [], "run `make constraints`"


def test_constraints_name_no_index_and_no_path():
    assert not [line for line in LINES if "://" in line or "@" in line or line.startswith("-")]
