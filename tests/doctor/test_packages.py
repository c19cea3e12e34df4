"""Checks of the interpreter and its packages, each in an environment with the fault and in one without."""

import os
from dataclasses import replace

import pytest

from tfmon.doctor.checks import BROKEN, NOT_APPLICABLE, OK, WARNING
from tfmon.doctor.diagnosis import CHECKS
from tfmon.doctor.facts import Facts, Platform
from tfmon.probes.interpreter import Interpreter, describe_interpreter

from .bench import BARE, find

HEALTHY = [check.id for check in CHECKS if check.subject == "tensorflow" and check.id != "import"]


def test_nothing_is_wrong_with_a_fresh_environment_and_versions_that_may_fit(bench):
    bench.replace("numpy", "2.22.0.dev2026")
    bench.replace("keras", "unknown")
    facts = bench.facts()
    for id in HEALTHY:
        finding = find(id, facts)
        assert finding.status in (OK, NOT_APPLICABLE if os.uname().machine != "x86_64" else OK), finding
        assert (finding.expected, finding.fix) == ("", "")


class TestPython:
    @pytest.mark.process
    @pytest.mark.parametrize("script", ["exit 3", "echo nonsense", "kill -9 $$", "echo []"])
    def test_that_does_not_work(self, bench, put, script):
        bench.python = put("python", f"#!/bin/sh\n{script}\n", 0o755)
        finding = bench.find("python")
        assert finding.status == BROKEN
        assert "not a working Python" in finding.found

    @pytest.mark.process
    def test_that_answers_and_one_that_is_not_there(self, bench, tmp_path, bare_python):
        real = describe_interpreter(bare_python, environ={"PYTHONPATH": "/some/where"})
        made = replace(
            BARE, executable=str(bare_python), path=real.path, libc=real.libc, prefix=str(bare_python.parents[1])
        )
        assert replace(real, conda=False) == made
        assert real.path[0] == "/some/where" and "" not in real.path
        bench.python = tmp_path / "absent"
        assert "cannot be started" in bench.find("python").found
        assert bench.find("tensorflow").status == NOT_APPLICABLE

    def test_that_the_installed_tensorflow_does_not_take(self, bench):
        bench.tensorflow(python=">=3.99")
        finding = bench.find("python")
        assert finding.status == BROKEN
        assert "Python >=3.99" in finding.expected
        assert finding.fix.startswith("uv venv --python 3.13 tf && ")

    @pytest.mark.parametrize(("version", "status"), [((3, 9, 1), BROKEN), ((3, 14, 0), BROKEN), ((3, 12, 4), OK)])
    def test_without_wheels(self, bench, version, status):
        facts = bench.facts(wheel=None)
        assert find("python", replace(facts, python=replace(facts.python, version=version))).status == status
        conda = replace(facts.python, version=(3, 14, 0), conda=True)
        fix = find("python", replace(facts, python=conda)).fix
        assert fix.startswith("conda create -n tf python=3.13")


def test_two_tensorflows_are_a_warning(bench, tmp_path):
    path = bench.environ["PYTHONPATH"]
    bench.install("tensorflow", "2.18.0", site=tmp_path / "other")
    bench.environ["PYTHONPATH"] += f":{tmp_path / 'other'}"
    finding = bench.find("several-tensorflows")
    assert (finding.status, "2.18.0 comes later" in finding.found) == (WARNING, True)
    bench.environ["PYTHONPATH"] = path
    bench.install("tensorflow-intel", "2.21.0")  # pulled in by tensorflow
    assert bench.find("several-tensorflows").status == OK
    bench.install("tensorflow-cpu", "2.20.0")
    finding = bench.find("several-tensorflows")
    assert finding.status == BROKEN
    assert {"tensorflow 2.21.0", "tensorflow-cpu 2.20.0"} == set(finding.found.partition(":")[0].split(", "))
    assert "tensorflow-cpu" in finding.fix and "uninstall" in finding.fix
    bench.install("tf-nightly", "2.22.0.dev20260101")
    assert "tf-nightly" in bench.find("several-tensorflows").found


@pytest.mark.parametrize("name", ["tensorflow.py", "tensorflow/__init__.py"])
def test_a_file_of_that_name_on_the_import_path_shadows_it(bench, tmp_path, put, name):
    before = tmp_path / "before"
    put(f"before/{name}", "raise AssertionError('imported')\n")
    bench.environ["PYTHONPATH"] = f"{before}:{bench.site}"
    facts = bench.facts()
    assert find("shadowing", facts).found.startswith(f"{before}/tensorflow")
    assert find("tensorflow", facts).status == OK, "the one behind it is examined"
    bench.environ["PYTHONPATH"] = f"{bench.site}:{before}"
    assert bench.find("shadowing").status == OK


@pytest.mark.parametrize(
    ("name", "version", "requires"),
    [
        ("protobuf", "5.29.6", "protobuf<8.0.0,>=6.31.1"),
        ("protobuf", "9.1.0", "protobuf<8.0.0,>=6.31.1"),
        ("numpy", "2.4.6", 'numpy <2.1.0,>=2.0.0 ; python_version <= "3.5"'),
        ("google-pasta", "0.1.0", "google_pasta>=0.1.1"),
    ],
)
def test_a_requirement_of_a_version_that_does_not_fit(bench, name, version, requires):
    others = ('tensorflow-intel ==2.18.1 ; platform_system == "Windows"', "absl-py ; extra == 'and-cuda'", "???")
    bench.tensorflow(requires=[requires, *others])
    bench.replace(name, version)
    facts = bench.facts()
    finding = find("requirements", replace(facts, python=replace(facts.python, version=(3, 5, 2))))
    required = requires.partition(";")[0].replace(" ", "").replace("_", "-")
    assert (finding.status, finding.fix.endswith(f" '{required}'")) == (WARNING, True)


def test_the_fix_fits_the_environment(bench):
    bench.tensorflow(cuda=False)
    (bench.site / "tensorflow-2.21.0.dist-info/INSTALLER").write_text("conda\n")
    facts = bench.facts(platform=Platform())

    def fix(facts: Facts, **changes: object) -> str:
        python: Interpreter = replace(facts.python, executable="/p/bin/python", **changes)
        return find("gpu-build", replace(facts, python=python)).fix

    by_conda = fix(facts, conda=True, prefix="/opt/my conda")
    assert by_conda == "conda install -p '/opt/my conda' -c conda-forge 'tensorflow=*=cuda*'"
    bench.tensorflow(cuda=False)
    facts = bench.facts(platform=Platform())
    assert "python -m pip install" in fix(facts, pip=True, conda=True), "conda that has it from pip"
    managed = fix(facts, pip=True, managed=True)
    assert managed == "/p/bin/python -m venv ~/tf && ~/tf/bin/pip install 'tensorflow[and-cuda]'"
    in_image = bench.find("gpu-build", platform=Platform(container="docker")).fix
    assert in_image.endswith("  # as RUN in the image, to keep it")
    on_arm = bench.find("gpu-build", platform=Platform("Linux", "aarch64")).fix
    assert "catalog.ngc.nvidia.com" in on_arm, "no such wheels for this processor"
