"""Sdist and wheel: built, installed in clean environments, run from there, and checked as `make release` does."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import click
import nbformat
import platformdirs
import pytest
import release
from docs.test_pages import DOCS, STANDS_FOR_ANOTHER, TEXTS, code_blocks
from nbformat.v4 import new_code_cell, new_notebook
from support.waiting import HANGS_S, wait_for

from tfmon.doctor import report as doctor
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_DEVICE_ABSENT, EXIT_FINE, EXIT_INTERRUPTED, EXIT_WORSE
from tfmon.lanes.launch import BOOTSTRAP

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
    """The folder of commands of an environment with the wheel, and what its lightest commands need."""
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


def test_the_module_can_be_run_too(installed, tmp_path):
    assert "small-dense" in run(installed / "python", "-m", "tfmon", "show", "small-dense", cwd=tmp_path)


def test_no_file_of_the_package_is_left_out(installed):
    (package,) = installed.parent.glob("lib/python*/site-packages/tfmon")
    files = [path.relative_to(ROOT / "tfmon") for path in (ROOT / "tfmon").rglob("*") if path.is_file()]
    assert Path("py.typed") in files
    kept = [file for file in files if "__pycache__" not in file.parts]  # those come and go while tests run
    assert not [file for file in kept if not (package / file).is_file()]


def test_what_a_release_must_have_is_there(built):
    wheel, sdist = built
    assert [*release.check_wheel(wheel, ROOT), *release.check_sdist(sdist, ROOT)] == []
    assert [*release.check_description(wheel)] == []
    version = release.declared(ROOT)
    assert sdist.name == f"tfmon-{version}.tar.gz"
    assert [*release.check_version(version, wheel.name, f"# Changelog\n\n## {version} (2026-01-31)\n")] == []


def test_what_a_release_lacks_is_named(built, tmp_path):
    wheel, version = built[0], release.declared(ROOT)
    said = [*release.check_version(version, "tfmon-9-py3-none-any.whl", "## Unreleased\n")]
    assert said[0].startswith("the wheel is tfmon-9") and "'Unreleased'" in said[1]
    assert "has no date" in next(release.check_version(version, wheel.name, f"## {version}\n"))
    poor = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as full, zipfile.ZipFile(poor, "w") as less:
        for name in full.namelist():
            if name != "tfmon/py.typed" and not name.endswith("entry_points.txt"):
                less.writestr(name, full.read(name))
        less.writestr("tests/odd.py", "")
    said = [*release.check_wheel(poor, ROOT)]
    assert "the wheel has no tfmon/py.typed" in said
    assert "the wheel has tests/odd.py, which does not belong there" in said
    assert "the wheel has no entry point tfmon = tfmon.pytest_plugin" in said


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
    assert "faster than" in run(installed / "python", "-c", code, cwd=tmp_path)


# ---------------- every command of the pages, typed

NOT_TYPED = {
    "tfmon verify": "takes an hour",
    "tfmon race $side": "is in the recipe that tests/docs/test_recipe.py runs",
    "tfmon diff baselines runs --slower-than 15%": "the same",
    "tfmon profile": "needs lanes that train, as those of tests/cli/test_profile.py",
    "tfmon attach": "needs a terminal and a run that is under way, as those of tests/scripts/test_attach.py",
}
"""How a command begins that cannot run here, and why."""
TYPED_INSTEAD = {
    r" replay (?!.*--headless)": " replay --headless ",  # there is no terminal
    r" doctor (?=-)": " doctor --no-import ",  # TensorFlow is imported once
    r"--seconds \d+": "--seconds 1",
    r"--pid \d+": "--pid $$",
    r"cpu,xla=on -- ": "cpu,learning_rate=0.002 -- ",  # the reader's script is without TensorFlow
    r"^(?=tfmon runs --files last)": "tfmon race --lane cpu --lane cpu -- python train.py > train.log; ",
}
ENDLESS = re.compile("tfmon( crossover| sweep|( race|$)(?!.*(--seconds|--until-ci| -- python)))")
"""What would measure for minutes."""
TRAINING = """
import time
open("weights", "w").write("1")
from tfmon import report
for x in report.input([[0.0] * 8] * 200):
    time.sleep(report.knob("learning_rate", 0.001))
    report.step(examples=8, loss=1.0)
"""
"""A script of the reader's own, without TensorFlow."""
OUTPUT = {"tfmon doctor": DOCS / "getting-started.md", "tfmon replay --example --headless": DOCS / "index.md"}
"""Of which command a page shows the output, as its last block of code."""


class Reader:
    """Someone who types what the pages show: there are scripts, a race, a sweep, a stand-in for ssh, and no GPU.

    Lanes of a scenario train nothing.
    """

    def __init__(self, wheel: Path, folder: Path) -> None:
        site = install(wheel, folder / "environment")
        (site / "requirements.pth").write_text(sysconfig.get_path("purelib"))
        trainer = ROOT / "tests" / "lanes" / "children" / "trainer.py"
        (site / BOOTSTRAP.relative_to(ROOT)).write_text(trainer.read_text())
        ssh = folder / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/support/fake_ssh.py" "$@"\n')
        ssh.chmod(0o755)
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        hidden = ("PYTHON", "TFMON", "XDG", "RAY")
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(hidden)},
            "PATH": f"{site.parents[2] / 'bin'}:{ssh.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TFMON_RECORDINGS": str(folder / "recordings"),
            "TFMON_SLICE": "0.2",
            "STOPPED": "1e9",
            "CUDA_VISIBLE_DEVICES": "",
        }
        (self.work / "train.py").write_text(TRAINING)
        nbformat.write(new_notebook(cells=[new_code_cell(TRAINING)]), self.work / "train.ipynb")
        (self.work / "mine.py").write_text(code_blocks(TEXTS[DOCS / "scenarios.md"], "python")[0])
        self.type("for one in 1 2; do tfmon race --lane cpu --lane cpu -- python train.py; done")
        self.type("tfmon sweep small-dense --over batch_size=16,64 --record night.sweep")
        self.type("tfmon sweep small-dense --over batch_size=16,64")
        self.type("mkdir baselines runs; tfmon replay --example --json > baselines/1.json")
        self.type("cd baselines; for one in 2 3; do cp 1.json $one.json; done; cp * ../runs")

    def type(self, line: str) -> tuple[int, str]:
        """Type a line, and Ctrl+C when what would take minutes is recorded; return exit code and output."""
        before = self._records()
        with (self.work / "printed").open("w+") as printed:
            shell = subprocess.Popen(
                ["bash", "-c", line],
                cwd=self.work,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
            if ENDLESS.match(line):
                wait_for(lambda: shell.poll() is not None or self._records() - before, what="a recording")
                if shell.poll() is None:
                    os.killpg(shell.pid, signal.SIGINT)
            code = shell.wait(HANGS_S)
            printed.seek(0)
            return code, printed.read()

    def _records(self) -> set[Path]:
        places = ("recordings/*.jsonl.gz", "sweeps/*", "work/*.sweep")
        return {path for place in places for path in self.folder.glob(place) if path.stat().st_size}


def commands() -> list[str]:
    """Return what the pages show to be typed, each command once; a command's mere name is not one."""
    shown: dict[str, None] = {}
    for page, text in TEXTS.items():
        if page.parent == DOCS or page.name == "README.md":
            lines = [line.strip() for block in code_blocks(text, "") for line in block.splitlines()]
            lines += re.findall(r"`(tfmon [a-z]+ [^`\n]*)`", text)
            shown |= dict.fromkeys(line.split(" #")[0].strip() for line in lines if re.match("tfmon( |$)", line))
    return [
        line for line in shown if not line.startswith(tuple(NOT_TYPED)) and not STANDS_FOR_ANOTHER.search(line)
    ]


def possible_codes(line: str) -> set[int]:
    """Return with which exit codes a line may end where there is no GPU and no Ray."""
    if re.search(r"(--lane|--on) \S*(gpu(?!\d/cpu)|MIG)|gpus=", line) or "ray" in line:
        return {EXIT_DEVICE_ABSENT}
    if line.startswith("tfmon doctor"):
        return {doctor.EXIT_NO_GPU}
    if line.startswith("tfmon tune --"):  # the stand-in of a script ends before anything was tried
        return {EXIT_CANNOT_TELL}
    if "--slower-than" in line or "--more-memory-than" in line:
        return {EXIT_FINE, EXIT_WORSE, EXIT_CANNOT_TELL}
    if line.endswith("--resume"):  # the latest sweep, which was over or was interrupted
        return {EXIT_FINE, EXIT_INTERRUPTED}
    return {EXIT_INTERRUPTED if ENDLESS.match(line) else EXIT_FINE}


def structure(line: str) -> str:
    """Return a pattern of what a line of output is in any environment: no mark, other figures and findings."""
    finding = re.fullmatch(r"\S (?:ok|broken|warning) +(\S.*?)   .*", line)
    return re.escape(finding[1]) + "  " if finding else re.sub(r"\d+", r"\\d+", re.escape(line.split(": no ")[0]))


PARTS = 4
"""Of the pages, each with a reader of its own: one would take minutes."""


@pytest.mark.tensorflow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_command_of_the_pages_can_be_typed(built, tmp_path, part):
    reader, wrong, lines = Reader(built[0], tmp_path), [], commands()
    for line in lines[len(lines) * part // PARTS : len(lines) * (part + 1) // PARTS]:
        typed = line
        for pattern, instead in TYPED_INSTEAD.items():
            typed = re.sub(pattern, instead, typed)
        code, printed = reader.type(typed)
        missing = []
        if line in OUTPUT:
            shown = code_blocks(TEXTS[OUTPUT[line]], "")[-1].splitlines()
            missing = [one for one in shown if not re.search(structure(one.strip()), printed)]
        if code not in possible_codes(line) or missing or "Traceback" in printed:
            wrong.append((line, code, missing, printed[-2_000:]))
    assert wrong == []
