"""`tfmon hosts` and `tfmon doctor --host`, over a stand-in for ssh that runs its command on this machine."""

import json
import re
import shutil
import sys

import pytest
from support.hosts import FakeSsh
from support.waiting import wait_for

from tfmon.api import settings
from tfmon.lanes.remote.trouble import other_python
from tfmon.probes.machine import read_machine


@pytest.fixture
def run(tfmon, tmp_path, monkeypatch):
    """Return a function that runs tfmon where `ssh` is the stand-in."""
    ssh, there = FakeSsh(tmp_path, monkeypatch), tmp_path / "there"
    there.mkdir()
    table = f'[hosts.gpu2]\npython = "{sys.executable}"\n[hosts.a100]\nrun = ["env", "TMPDIR={there}"]\n'
    (tmp_path / "config.toml").write_text(table)
    monkeypatch.setenv(settings.FILE_VARIABLE, str(tmp_path / "config.toml"))

    def run(*words: str, **behaviour: object):
        ssh.behave(environment={"TMPDIR": str(there)}, **behaviour)
        return tfmon(*words)

    yield run
    wait_for(lambda: not list(there.iterdir()), what="nothing is left behind")


@pytest.mark.process
class TestOtherMachines:
    def test_every_host_has_its_row_or_its_line(self, run):
        lost = {"hosts": {"gpu9": {"exit": 255, "says": "ssh: connect to host gpu9 port 22: No route to host"}}}
        done = run("hosts", "gpu2", "gpu9", "a100", **lost)
        assert done.code == 1, done.err
        lines = done.out.splitlines()
        assert [line.split()[0] for line in lines[:4]] == ["host", "gpu2", "a100", "gpu9"]
        assert "No route to host" in lines[3] and "ssh gpu9" in lines[4]
        assert "gpu2 and a100: this machine; lanes here and there take turns" in lines

    def test_json_of_the_hosts_of_the_settings_file(self, run):
        done = run("hosts", "--json", banner="\x1b[1mWelcome to gpu2!\n" * 400 + "no end of line: ")
        found = {one["host"]: one for one in json.loads(done.out)["hosts"]}
        assert list(found) == ["gpu2", "a100"]
        usable = all(one["tensorflow"] for one in found.values())
        assert done.code == (0 if usable else 1), "a100 has the Python of whoever runs the tests"
        here = read_machine()
        for one in found.values():
            assert (one["reachable"], one["is_this_machine"], one["boot"]) == (True, True, here.boot or None)
            assert (one["cores"], one["memory_bytes"]) == (here.cores, here.memory_bytes)
            assert 0 < one["round_trip_ms"] < 60_000
            assert abs(one["clock_offset_ms"]) <= one["clock_error_ms"] + 1, "it is the same clock"
        assert found["gpu2"]["python_path"] == sys.executable
        assert found["gpu2"]["tensorflow"]

    def test_the_doctor_examines_another_machine(self, run):
        done = run("doctor", "--no-import", "--host", "gpu2")
        assert done.code in (0, 1, 2), done.err
        assert done.out.startswith(f"On gpu2, with {sys.executable}:\n\nTensorFlow\n")
        assert re.search(r"✓ ok +TensorFlow ", done.out)
        bare = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or sys.executable
        written = json.loads(run("doctor", "--no-import", "--json", "--host", "gpu2", "--python", bare).out)
        assert (written["host"], written["python"]) == ("gpu2", bare)
        assert {one["id"] for one in written["checks"]} > {"python", "tensorflow", "driver"}

    def test_a_doctor_that_does_not_get_there_says_why(self, run):
        refused = {"exit": 255, "says": "me@gpu2: Permission denied (publickey)."}
        done = run("doctor", "--host", "gpu2", **refused)
        assert done.code == 3
        message, hint = done.err.splitlines()
        assert message.startswith("tfmon: gpu2: permission denied: ") and "ssh-copy-id gpu2" in hint
        written = json.loads(run("doctor", "--json", "--host", "gpu2", **refused).out)
        assert (written["host"], "Permission denied" in written["error"]) == ("gpu2", True)


def test_what_to_set_for_a_host_is_said_with_the_file_that_it_belongs_into(monkeypatch, tmp_path):
    monkeypatch.setenv(settings.FILE_VARIABLE, str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text('[hosts.gpu2]\npython = "/opt/bare"\n')
    for name, table in (("gpu2", "gpu2"), ("me@gpu3", '"me@gpu3"')):
        said = other_python(settings.find_host(name))
        assert said == f'python = "~/…/bin/python" under [hosts.{table}] in {tmp_path}/config.toml sets another'


def test_wrong_names_are_refused_before_anything_is_started(tfmon, monkeypatch, tmp_path):
    monkeypatch.setenv(settings.FILE_VARIABLE, str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    for words, said in (
        (("--", "-oProxyCommand=touch x"), "is not a host"),
        (("gpu2", "--ray", "10.0.0.1:6379"), "nodes of a cluster alone"),
        ((), "no host is named"),
    ):
        refused = tfmon("hosts", *words)
        assert refused.code == 2 and said in refused.err
