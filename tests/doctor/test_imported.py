"""The import of TensorFlow: children that end in every way."""

import os
import subprocess
import sys

import pytest
from support.processes import gone
from support.waiting import wait_for

from tfmon.probes.interpreter import describe_interpreter, import_tensorflow

PLAIN = {"PATH": os.environ["PATH"]}


@pytest.mark.process
class TestChild:
    def test_that_answers(self):
        answer = '{"version": "2", "path": "p", "gpus": ["g"], "built_with_cuda": true}'
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
        wait_for(lambda: gone(pid), what="the child's child to end, and not to sleep to its end")

    def test_of_a_wrapper_that_hangs_nothing_is_left(self, tmp_path, put):
        note = tmp_path / "pid"
        wrapper = put("python", f"#!/bin/sh\nsleep 600 &\necho $! > {note}\nwait\n", 0o755)
        assert describe_interpreter(wrapper, timeout_s=2).error == "it did not answer within 2 s"
        pid = int(note.read_text())
        wait_for(lambda: gone(pid), what="what the wrapper started to end")
