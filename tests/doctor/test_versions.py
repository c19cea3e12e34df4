"""Versions and requirements, as far as the checks need them."""

from __future__ import annotations

import pytest

from tfmon.doctor.interpreter import Requirement, fits, read_requirement, release, too_old, upper_bound


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
    ],
)
def test_fits(version, allowed, answer):
    assert fits(version, allowed) is answer


def test_bounds():
    assert too_old("1.9", ">=2,<3")
    assert not too_old("3.5", ">=2,<3")
    assert upper_bound(">=2,<4,<3.5") == (3, 5)
    assert upper_bound(">=2") == ()


ENVIRONMENT = {"python_version": "3.11", "platform_system": "Linux", "sys_platform": "linux"}


@pytest.mark.parametrize(
    ("line", "requirement"),
    [
        ("numpy (<2.1.0,>=1.26.0)", Requirement("numpy", "<2.1.0,>=1.26.0")),
        ("numpy <2.1.0, >=1.26.0", Requirement("numpy", "<2.1.0,>=1.26.0")),
        ("google_pasta>=0.1.1", Requirement("google-pasta", ">=0.1.1")),
        ("packaging", Requirement("packaging", "")),
        ("requests[socks]>=2", Requirement("requests", ">=2")),
        ('numpy <2.0.0,>=1.23.5 ; python_version <= "3.11"', Requirement("numpy", "<2.0.0,>=1.23.5")),
        ('numpy <2.0.0,>=1.26.0 ; python_version >= "3.12"', None),
        ('tensorflow-intel ==2.18.1 ; platform_system == "Windows"', None),
        ('x ; sys_platform != "win32"', Requirement("x", "")),
        ('nvidia-cudnn-cu12 >=9 ; extra == "and-cuda"', None),
        ('x ; (sys_platform != "win32" and python_version < "3.13")', None),  # not understood
        ("???", None),
    ],
)
def test_read_requirement(line, requirement):
    assert read_requirement(line, ENVIRONMENT) == requirement
