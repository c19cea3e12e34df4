"""The import of TensorFlow: captured messages, and children that end in every way."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.waiting import wait_for

from tfmon.doctor.checks import BROKEN, OK, WARNING
from tfmon.doctor.diagnosis import Diagnosis
from tfmon.probes.interpreter import describe_interpreter
from tfmon.probes.surroundings import Platform
from tfmon.probes.trial_import import Import, import_tensorflow

from .bench import find, with_gpu

PLAIN = {"PATH": os.environ["PATH"]}
_SECTIONS = (Path(__file__).parent / "captured.txt").read_text("utf-8").split("== ")[1:]
TEXTS = {name: text for name, _, text in (section.partition("\n") for section in _SECTIONS)}
"""Messages that TensorFlow and its libraries have written to stderr."""


def is_over(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("name", "exit_code", "found", "fix"),
    [
        ("glibc", 1, "C or C++ library is older", "upgrade"),
        ("glibcxx", 1, "C or C++ library is older", "libstdcxx-ng"),
        ("protobuf gencode", 1, "protobuf does not fit", "'protobuf<8.0.0,>=6.31.1'"),
        ("protobuf descriptors", 1, "protobuf does not fit", "protobuf"),
        ("numpy", 1, "NumPy does not fit", "'numpy>=1.26.0'"),
        ("metal", 1, "tensorflow-metal does not fit", "tensorflow-metal==1.2.0"),
        ("architecture", 1, "another processor", "arm64"),
        ("library", 1, "the library libhdf5.so.310 is missing", "--force-reinstall 'tensorflow==2.21.0'"),
        ("module", 1, "the module absl, which TensorFlow needs, is missing", "pip install 'tensorflow==2.21.0'"),
        ("something new", 1, "fails: ValueError: something new", "--force-reinstall"),
        ("", 1, "exit code 1", "--force-reinstall"),
        ("", -4, "SIGILL", "no Rosetta"),
        ("avx", -6, "SIGABRT: the processor lacks", "-cpu host"),
        ("", -9, "out of memory", "memory limit"),
        ("", -11, "SIGSEGV", "--force-reinstall"),
        ("", None, "not done after 1 s", "slow file system"),
    ],
)
def test_an_import_that_fails_or_is_ended(bench, name, exit_code, found, fix):
    text = f"Traceback:\n{TEXTS[name]}" if name else ""
    finding = bench.find("import", imported=Import(exit_code=exit_code, text=text, seconds=1.0))
    assert (finding.status, found in finding.found, fix in finding.fix) == (BROKEN, True, True), finding


class TestDevices:
    @pytest.mark.parametrize(
        ("name", "found", "fix"),
        [
            ("no driver", "finds no CUDA driver", "install the NVIDIA driver"),
            ("no libraries", "a CUDA library that it needs did not load", "'tensorflow[and-cuda]==2.21.0'"),
            ("no device", "sees no device", "--gpus all"),
            ("no device by number", "sees no device", "--gpus all"),
            ("driver mismatch", "different versions", "restart"),
            ("dso mismatch", "different versions", "restart"),
            ("old driver", "too old for its CUDA", "update"),
            ("symbol", "WSL", "Docker Desktop"),
            ("unknown", "could not be initialised", "nvidia_uvm"),
            ("old gpu", "too old for this TensorFlow", "older TensorFlow"),
        ],
    )
    def test_none_with_a_reason(self, bench, name, found, fix):
        imported = Import(version="2.21.0", text=TEXTS[name])
        facts = with_gpu(bench.facts(platform=Platform(), imported=imported))
        finding = find("devices", facts)
        assert (finding.status, found in finding.found, fix in finding.fix) == (BROKEN, True, True), finding
        assert Diagnosis(facts).no_gpu is not None
        assert finding.evidence[0] in TEXTS[name].splitlines() or len(finding.evidence[0]) == 300

    def test_some_or_none_without_a_reason(self, bench):
        imported = Import(version="2.21.0", gpus=("/physical_device:GPU:0",))
        assert bench.find("devices", imported=imported).status == OK
        assert Diagnosis(bench.facts(imported=imported)).no_gpu is None, "what it lists counts most"
        silent = Import(version="2.21.0", text="nothing\n")
        assert "no NVIDIA driver" in bench.find("devices", imported=silent).found, "what the search found"
        facts = with_gpu(bench.facts(imported=silent))
        assert "gives no reason" in find("devices", facts).found
        facts = replace(facts, imported=replace(silent, built_with_cuda=False))
        assert "without CUDA" in find("devices", facts).found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("new gpu", "CUDA_ERROR_INVALID_PTX"),
        ("gpu to compile for", "compiled for this GPU first"),
        ("old cudnn", "cuDNN is older"),
        ("new protobuf", "protobuf is newer"),
    ],
)
def test_a_message_that_matters_is_a_warning(bench, name, found):
    finding = bench.find("messages", imported=Import(version="2.21.0", text=TEXTS[name]))
    assert (finding.status, found in finding.found) == (WARNING, True), finding


@pytest.mark.process
class TestChild:
    def test_that_answers(self):
        answer = '{"version": "2", "path": "p", "gpus": ["g"], "cuda": true}'
        script = (
            f"import os, sys; print('tfmon-doctor:{answer}')\n"
            "print('\\x1b[2J', os.environ['TF_CPP_MIN_LOG_LEVEL'], file=sys.stderr)"
        )
        silent = {**PLAIN, "TF_CPP_MIN_LOG_LEVEL": "3"}
        imported = import_tensorflow(sys.executable, environ=silent, script=script)
        assert (imported.works, imported.version, imported.gpus, imported.text) == (True, "2", ("g",), " 0\n")

    @pytest.mark.parametrize(
        ("script", "exit_code"), [("import os; os.abort()", -6), ("print('tfmon-doctor:{')", 0)]
    )
    def test_that_does_not(self, tmp_path, script, exit_code):
        imported = import_tensorflow(sys.executable, environ=PLAIN, script=script)
        assert (imported.exit_code, imported.works) == (exit_code, False)
        imported = import_tensorflow(tmp_path / "absent", environ={})
        assert (imported.works, "cannot be started" in imported.text) == (False, True)

    def test_that_hangs_with_a_child_of_its_own(self, tmp_path, monkeypatch):
        note, communicate = tmp_path / "pid", subprocess.Popen.communicate
        script = (
            "import subprocess, sys, time\nprint('on my way', file=sys.stderr, flush=True)\n"
            f"child = subprocess.Popen(['sleep', '600'])\nopen({str(note)!r}, 'w').write(str(child.pid))\n"
            "time.sleep(600)"
        )

        def once_it_hangs(child: subprocess.Popen[str], timeout: float | None = None) -> tuple[str, str]:
            wait_for(lambda: note.exists() and note.read_text(), what="the child hangs")
            return communicate(child, timeout=timeout)

        monkeypatch.setattr(subprocess.Popen, "communicate", once_it_hangs)
        imported = import_tensorflow(sys.executable, environ=PLAIN, script=script, timeout_s=0.1)
        assert (imported.exit_code, imported.text) == (None, "on my way\n")
        pid = int(note.read_text())
        wait_for(lambda: is_over(pid), what="the child's child to end, and not to sleep to its end")

    def test_of_a_wrapper_that_hangs_nothing_is_left(self, tmp_path):
        wrapper, note = tmp_path / "python", tmp_path / "pid"
        wrapper.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {note}\nwait\n")
        wrapper.chmod(0o755)
        assert describe_interpreter(wrapper, timeout_s=2).error == "it did not answer within 2 s"
        pid = int(note.read_text())
        wait_for(lambda: is_over(pid), what="what the wrapper started to end")
