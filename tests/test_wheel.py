"""Sdist and wheel: built, installed in clean environments, run from there, and checked as `make release` does."""

import json
import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import click
import platformdirs
import pytest
import release
from docs.test_pages import code_blocks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [pytest.mark.process, pytest.mark.slow]
ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP", "COV"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The wheel and the sdist; the wheel is built from the sdist."""
    folder = tmp_path_factory.mktemp("built")
    release.build(folder)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """Return the `bin` folder of an environment with the wheel and the packages of its lightest commands."""
    site = install(built[0], tmp_path_factory.mktemp("wheel") / "clean")
    for dependency in (click, platformdirs):
        (site / dependency.__name__).symlink_to(Path(str(dependency.__file__)).parent)
    return site.parents[2] / "bin"


def install(wheel: Path, environment: Path) -> Path:
    """Make an environment with the wheel alone; return the folder of its packages."""
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    quietly = ("install", "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, *quietly, wheel, cwd=environment)
    (site,) = environment.glob("lib/python*/site-packages")
    return site


def test_every_scenario_of_the_checkout_is_listed_from_the_installed_package(installed, tmp_path):
    listed = json.loads(run(installed / "tfmon", "list", "--json", cwd=tmp_path))
    in_checkout = {path.stem.replace("_", "-") for path in (ROOT / "scenarios").glob("[!_]*.py")}
    assert in_checkout
    assert {scenario["name"] for scenario in listed} == in_checkout
    for scenario in listed:
        assert Path(scenario["path"]).is_relative_to(installed.parent.resolve())


def test_what_a_release_must_have_is_there(built):
    wheel, sdist = built
    assert [*release.check_wheel(wheel, ROOT), *release.check_sdist(sdist, ROOT)] == []
    assert [*release.check_description(wheel)] == []
    version = release.declared(ROOT)
    assert sdist.name == f"tfmon-{version}.tar.gz"
    assert [*release.check_version(version, wheel.name, f"# Changelog\n\n## {version} (2026-01-31)\n")] == []


def test_recordings_are_shown_without_tensorflow(installed, tmp_path):
    """The packages that the manual names for this are enough: TensorFlow is not among them."""
    line = re.search(
        r"^    pip install (?!--)(.*textual.*)$", (ROOT / "docs" / "getting-started.md").read_text(), re.M
    )
    named = {re.split(r"[~<>=]", word)[0] for word in shlex.split(line[1])}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    needed = {re.split(r"[~<>=;\s]", one)[0] for one in project}
    assert named == needed - {"tensorflow", "tensorflow-metal", "tomli"}
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in ("tensorflow", "keras"):
        (blocked / f"{name}.py").write_text(f"raise ImportError('{name} is not installed')")
    here = [path for path in sys.path if path.endswith("site-packages")]
    code = (
        f"import sys; sys.path[:0] = [{str(blocked)!r}]; sys.path += {here!r}; "
        "sys.argv = ['tfmon', 'replay', '--example', '--headless']; import tfmon.__main__ as m; m.run()"
    )
    printed = run(installed / "python", "-c", code, cwd=tmp_path)
    page = (ROOT / "docs" / "index.md").read_text()
    # The numbers may be others, and so may the reason for a missing value.
    lines = [re.escape(line.strip().split(": no ")[0]) for line in code_blocks(page, "")[-1].splitlines()]
    patterns = [re.sub(r"\d+", r"\\d+", line) for line in lines]
    assert patterns and [line for line in patterns if not re.search(line, printed)] == []
