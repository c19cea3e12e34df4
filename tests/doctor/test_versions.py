"""Versions and requirements, as far as the checks need them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfmon.doctor.facts import Facts, Platform
from tfmon.doctor.remedies import fits, package, release, requirements
from tfmon.probes.interpreter import Build, Interpreter
from tfmon.probes.obstacles import GpuVisibility


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.18.0rc1", (2, 18, 0)), ("v3", (3,)), ("2.22.0.dev2026", (2, 22, 0)), ("", ()), ("x", ())],
)
def test_release(version, numbers):
    assert release(version) == numbers


@pytest.mark.parametrize(
    ("version", "allowed", "answer"),
    [
        ("2.0.2", "<2.1.0,>=1.26.0", True),
        ("2.1.0", "<2.1.0,>=1.26.0", False),
        ("2.1", "==2.1.0", True),
        ("2.1.3", "==2.1.*", True),
        ("2.2.0", "==2.1.*", False),
        ("4.21.3", "!=4.21.3", False),
        ("1.4.9", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("5.29.6", "!=4.21.0,<6.0.0dev,>=3.20.3", True),
        ("6.0.0", "<6.0.0dev", False),
        ("1.0", "", True),
        ("unknown", ">=2", True),
        ("10", ">9", True),
        ("2", "<=1.9", False),
        ("2", "about 3", True),
    ],
)
def test_fits(version, allowed, answer):
    assert fits(version, allowed) is answer


FACTS = Facts(
    Interpreter("/p", version=(3, 11, 2)), GpuVisibility("Linux", "x86_64"), platform=Platform("Linux", "x86_64")
)


@pytest.mark.parametrize(
    ("line", "required"),
    [
        ("numpy (<2.1.0,>=1.26.0)", "'numpy<2.1.0,>=1.26.0'"),
        ("google_pasta>=0.1.1", "'google-pasta>=0.1.1'"),
        ("packaging", "packaging"),
        ('numpy <2.0.0,>=1.23.5 ; python_version <= "3.11"', "'numpy<2.0.0,>=1.23.5'"),
        ('numpy <2.0.0,>=1.26.0 ; python_version >= "3.12"', None),
        ('tensorflow-intel ==2.18.1 ; platform_system == "Windows"', None),
        ('x ; (sys_platform != "win32" and python_version < "3.13")', "x"),
        ('nvidia-cudnn-cu12 >=9 ; extra == "and-cuda"', None),
        ("???", None),
    ],
)
def test_what_tensorflow_requires(line, required):
    facts = replace(FACTS, build=Build(requires=(line,)))
    assert [package(one) for one in requirements(facts)] == ([] if required is None else [required])


def test_what_an_extra_adds():
    lines = ("numpy>=1", 'nvidia-cudnn-cu12<10.0,>=9.3; extra == "and-cuda"')
    facts = replace(FACTS, build=Build(requires=lines))
    assert [package(one) for one in requirements(facts, "and-cuda")] == ["'nvidia-cudnn-cu12<10.0,>=9.3'"]
