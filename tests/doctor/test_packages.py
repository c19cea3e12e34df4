"""Checks of the interpreter and its packages, each in an environment with the fault and in one without."""

import os
from dataclasses import replace

import pytest

from tfmon.doctor.checks import BROKEN, NOT_APPLICABLE, OK, WARNING
from tfmon.doctor.diagnosis import CHECKS
from tfmon.doctor.facts import Facts
from tfmon.doctor.remedies import fits, package, requirements
from tfmon.probes.interpreter import Build, Interpreter, describe_interpreter
from tfmon.probes.obstacles import GpuVisibility
from tfmon.probes.surroundings import Platform

from .bench import BARE, find

HEALTHY = [check.id for check in CHECKS if check.subject == "tensorflow" and check.id != "import"]


def test_nothing_is_wrong_with_a_fresh_environment(bench):
    facts = bench.facts()
    for id in HEALTHY:
        finding = find(id, facts)
        assert finding.status in (OK, NOT_APPLICABLE if os.uname().machine != "x86_64" else OK), finding
        assert (finding.expected, finding.fix) == ("", "")


class TestPython:
    @pytest.mark.process
    @pytest.mark.parametrize("script", ["exit 3", "echo nonsense", "kill -9 $$", "echo []"])
    def test_that_does_not_work(self, bench, tmp_path, script):
        bench.python = tmp_path / "python"
        bench.python.write_text(f"#!/bin/sh\n{script}\n")
        bench.python.chmod(0o755)
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
        facts = replace(facts, build=replace(facts.build, requires_python=""))
        assert find("python", replace(facts, python=replace(facts.python, version=version))).status == status
        conda = replace(facts.python, version=(3, 14, 0), conda=True)
        fix = find("python", replace(facts, python=conda)).fix
        assert fix.startswith("conda create -n tf python=3.13")

    @pytest.mark.parametrize(
        ("change", "found"), [({"bits": 32}, "32 bits"), ({"free_threaded": True}, "GIL"), ({"libc": ""}, "GNU")]
    )
    def test_builds_without_wheels(self, bench, change, found):
        facts = bench.facts(platform=Platform())
        finding = find("python-build", replace(facts, python=replace(facts.python, **change)))
        assert (finding.status, found in finding.found) == (BROKEN, True)


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


class TestShadowing:
    @pytest.mark.parametrize("name", ["tensorflow.py", "tensorflow/__init__.py"])
    def test_in_the_working_directory(self, bench, name):
        file = bench.cwd / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise AssertionError('imported')\n")
        finding = bench.find("shadowing")
        assert finding.status == BROKEN
        assert str(bench.cwd / "tensorflow") in finding.found
        assert finding.fix.startswith("rename it: mv ")

    def test_on_the_import_path(self, bench, tmp_path):
        before = tmp_path / "before"
        before.mkdir()
        (before / "tensorflow.py").write_text("x = 1\n")
        bench.environ["PYTHONPATH"] = f"{before}:{bench.site}"
        facts = bench.facts()
        assert find("shadowing", facts).found.startswith(f"{before}/tensorflow.py is imported instead")
        assert find("tensorflow", facts).status == OK, "the one behind it is examined"
        bench.environ["PYTHONPATH"] = f"{bench.site}:{before}"
        assert bench.find("shadowing").status == OK


class TestRequirements:
    @pytest.mark.parametrize(
        ("name", "version", "requires"),
        [
            ("protobuf", "5.29.6", "protobuf<8.0.0,>=6.31.1"),
            ("protobuf", "9.1.0", "protobuf<8.0.0,>=6.31.1"),
            ("numpy", "2.4.6", "numpy <2.1.0,>=2.0.0"),
        ],
    )
    def test_one_of_a_version_that_does_not_fit(self, bench, name, version, requires):
        bench.tensorflow(requires=[requires])
        bench.replace(name, version)
        finding = bench.find("requirements")
        assert (finding.status, finding.fix.endswith(f"'{requires.replace(' ', '')}'")) == (WARNING, True)

    @pytest.mark.parametrize(("backend", "status"), [("torch", BROKEN), ("tensorflow", OK)])
    def test_a_backend_of_keras_other_than_tensorflow(self, bench, backend, status):
        bench.environ["KERAS_BACKEND"] = backend
        assert bench.find("keras-backend").status == status


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


@pytest.mark.parametrize(
    ("version", "allowed", "answer"),
    [
        ("2.1.0", "<2.1.0,>=1.26.0", False),
        ("5.29.6", "!=4.21.0,<6.0.0dev,>=3.20.3", True),
        ("6.0.0", "<6.0.0dev", False),
        ("2.22.0.dev2026", ">=2.18", True),
        ("unknown", ">=2", True),
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
    assert [package(requirement) for requirement in requirements(facts)] == (
        [] if required is None else [required]
    )
