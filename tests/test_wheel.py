"""The wheel: built, installed in a clean environment, and its scenarios listed from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import click
import platformdirs
import pytest

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP", "COV"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of commands of an environment with the wheel, and Click as its only dependency."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    clean = folder / "clean"
    venv.create(clean, with_pip=False)
    python = clean / "bin" / "python"
    install = ("install", "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, *install, wheel, cwd=folder)
    (site,) = clean.glob("lib/python*/site-packages")
    for dependency in (click, platformdirs):
        (site / dependency.__name__).symlink_to(Path(str(dependency.__file__)).parent)
    return clean / "bin"


def test_every_scenario_of_the_checkout_is_listed_from_the_installed_package(installed, tmp_path):
    listed = json.loads(run(installed / "tfmon", "list", "--json", cwd=tmp_path))
    in_checkout = {path.stem.replace("_", "-") for path in (ROOT / "scenarios").glob("[!_]*.py")}
    assert in_checkout
    assert {scenario["name"] for scenario in listed} == in_checkout
    for scenario in listed:
        assert Path(scenario["path"]).is_relative_to(installed.parent.resolve())


def test_the_module_can_be_run_too(installed, tmp_path):
    assert "small-dense" in run(installed / "python", "-m", "tfmon", "show", "small-dense", cwd=tmp_path)


def test_no_file_of_the_package_is_left_out(installed):
    (package,) = installed.parent.glob("lib/python*/site-packages/tfmon")
    files = [path.relative_to(ROOT / "tfmon") for path in (ROOT / "tfmon").rglob("*") if path.is_file()]
    assert Path("py.typed") in files
    assert not [file for file in files if file.suffix != ".pyc" and not (package / file).is_file()]
