"""Races of scripts that write, restore, remove and listen: not one byte of the user's folder changes."""

import json
import re
import socket
import sys
from pathlib import Path

import pytest
from support.slow import slow_except
from support.sshd import free_port, needs_sshd
from support.views import LANES, REFUSED

from tfmon.model.folder_views import COPY, OVERLAY

pytestmark = pytest.mark.process

LOOP = """
import os, shutil, sys, time
from pathlib import Path
from tfmon import report
def train(steps=450):
    for step in range(steps):
        time.sleep(0.003)
        report.step(examples=4, loss=1.0)
"""
REMOVES = f"""{LOOP}
shutil.rmtree("out")
os.mkdir("out")
for epoch in range(3):
    train(150)
    with open(f"out/epoch{{epoch}}.txt", "x") as file:
        file.write("x")
os.rename("out/epoch0.txt", "out/first.txt")
Path("best.keras").write_text(os.environ["TFMON_LANE"] + os.environ["TFMON_LANE_NUMBER"])
Path("data.bin").open("r+b").write(b"new")
os.remove("notes.txt")
"""
RESTORES = f"""{LOOP}
backup = Path("backup/epoch.txt")
for epoch in range(int(backup.read_text()) if backup.exists() else 0, 3):
    train(150)
    backup.parent.mkdir(exist_ok=True)
    backup.write_text(str(epoch + 1))
assert "done" not in Path("log.csv").read_text()
with open("log.csv", "a") as log:
    log.write("done")
"""


def test_scripts_that_write_the_same_files_race_to_a_verdict(run, request, open_path):
    expected = COPY if REFUSED in request.node.name else OVERLAY
    result = run.race(RESTORES, "--no-record")
    assert result["views"]["here"]["kind"] == expected, result["stderr"]
    assert ("(no view: unshare: no more namespaces may be made; " in result["stderr"]) == (expected == COPY)
    assert {lane["steps"] for lane in result["lanes"]} == {450}
    assert not list(run.store.glob("*.files*")), "of a race that is not recorded nothing is kept"
    result = run.race(REMOVES)
    assert {lane["state"] for lane in result["lanes"]} == {"finished"}
    assert {lane["steps"] for lane in result["lanes"]} == {450}
    assert result["stderr"].count(str(run.folder)) >= 1, "one line before the race says what lanes see"
    listed = run("runs", "--files", "last").stdout
    assert {line.split()[0] for line in listed.splitlines()} == {"A", "B"}
    assert {line.split()[-1] for line in listed.splitlines()} >= {"best.keras", "out/first.txt", "data.bin"}
    for lane, wrote in (("A", "A0"), ("B", "B1")):
        assert run("runs", "--keep-files", lane, str(open_path / lane)).returncode == 0
        assert (open_path / lane / "best.keras").read_text() == wrote
    assert (open_path / "A" / "data.bin").read_text() == "newt night\n"
    assert not (open_path / "A" / "log.csv").exists(), "only what a lane wrote"


MOMENTS = ("A", "B/written/backup/epoch.txt", "A/written/log.csv")


@pytest.mark.parametrize("moment", slow_except(MOMENTS[1], MOMENTS))
def test_after_a_kill_of_everything_the_folder_is_untouched_and_nothing_is_mounted(folder, runner, moment):
    (folder / "train.py").write_text(RESTORES)
    words = ("race", *LANES, "--headless", "--", sys.executable, "train.py")
    runner.kill(*words, at=f"*.files/{moment}", lanes=True)
    (runner.store / "leftover.files.part" / "A" / "work").mkdir(parents=True)
    for recording in runner.store.glob("*.jsonl"):
        listed = runner("runs", "--files", recording.name.removesuffix(".jsonl"))
        assert listed.returncode == 0, listed.stderr
    result = runner.race(RESTORES, "--seconds", "1")
    assert result["views"]["here"]["kind"] == OVERLAY
    assert not list(runner.store.glob("*.files.part")), "what nobody wants of a killed race is gone with the next"
    assert not list(runner.store.glob("*.files/ports")), "the ports of a killed race, too"


@pytest.mark.slow
@needs_sshd
def test_lanes_of_a_host_have_views_there(runner, sshd, monkeypatch):
    monkeypatch.setenv("PATH", sshd.put_client(), prepend=":")
    result = runner.race(REMOVES, "--lane", "gpu2/cpu", "--lane", "gpu2/cpu", "--slice", "0.2")
    assert result["views"]["gpu2"]["kind"] == OVERLAY
    view = result["views"]["gpu2"]
    assert {lane: files >= 5 for lane, (files, _) in view["written"].items()} == {"A": True, "B": True}
    assert Path(view["store"], "A", "written", "best.keras").exists(), "kept on the host"
    assert str(sshd.folder / "state") in view["store"]


USES = f"""{LOOP}
import socket
train(1)
open(sys.argv[3], "a").write("x")
if sys.argv[1] == "port":
    listens = socket.socket()
    listens.bind(("127.0.0.1", int(sys.argv[2])))
    listens.listen()
if sys.argv[1] == "folder":
    shutil.rmtree("out", ignore_errors=True)
    os.mkdir("out")
for epoch in range(3):
    train(100)
    if sys.argv[1] == "folder":
        open(f"out/epoch{{epoch}}.txt", "x").write("x")
"""


@pytest.mark.parametrize("what", ["port", "folder"])
def test_lanes_in_place_that_collide_say_with_what(folder, runner, open_path, what):
    port, log = free_port(), open_path / "shared.log"
    (folder / "train.py").write_text(USES)
    words = ("--in-place", "--no-record", "--json", "--", sys.executable, "train.py", what, str(port), str(log))
    done = runner("race", *LANES, *words)
    result = json.loads(done.stdout)
    assert result["views"]["here"]["kind"] == "in place"
    told = {one["name"]: one["text"] for one in result["collisions"]}
    assert told[str(log)].endswith(f"both write {log}")
    assert len(told) == len(result["collisions"]), "each once"
    (failed,) = [lane for lane in result["lanes"] if lane["error"]]
    collision = {"port": f"both bind port {port}", "folder": "removed out"}[what]
    assert collision in failed["error"]


LISTENS = f"""{LOOP}
import errno, http.server, socket, subprocess, threading, urllib.request
lane, port, foreign = os.environ["TFMON_LANE"], int(sys.argv[1]), int(sys.argv[2])
def error_of(connects, number, host="127.0.0.1"):
    try:
        with socket.socket() as tested:
            (tested.connect if connects else tested.bind)((host, number))
    except OSError as error:
        return error.errno
def answer(number, host="localhost"):
    with socket.create_connection((host, number)) as client:
        return client.recv(9).decode()
def serve(**options):
    server = socket.create_server(("", port), **options)
    def run():
        while True:
            server.accept()[0].sendall(lane.encode())
    threading.Thread(target=run, daemon=True).start()
    assert answer(port) == answer(port, socket.gethostname()) == answer(server.getsockname()[1]) == lane
    assert error_of(False, port) == errno.EADDRINUSE, "the lane has it itself"
assert error_of(True, port) == errno.ECONNREFUSED, "it sees no other lane's"
serve()
port += 1
serve(reuse_port=True)
port += 1
serve(family=socket.AF_INET6, dualstack_ipv6=True)
port += 1
Path("lane.txt").write_text(lane)
child = subprocess.Popen([sys.executable, "-m", "http.server", str(port)], stderr=subprocess.DEVNULL)
while error_of(True, port):
    train(1)
assert urllib.request.urlopen(f"http://localhost:{{port}}/lane.txt").read().decode() == lane
child.terminate()
assert error_of(False, foreign) == errno.EADDRINUSE
assert error_of(True, foreign) is None, "another program's is nobody's"
train(300)
"""


def test_lanes_that_listen_on_one_port_have_each_its_own(runner):
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port, taken = free_port() - 4, foreign.getsockname()[1]
        result = runner.race(LISTENS, script=(str(port), str(taken)))
    assert {lane["state"] for lane in result["lanes"]} == {"finished"}, result["lanes"]
    told = {one["name"]: one["text"] for one in result["collisions"]}
    for name in (f"port {port + number}" for number in range(4)):
        assert re.fullmatch(rf"{name} is .+'s; cpu #\d has \d+ instead", told[name])
    assert not list(runner.store.glob("*.files/ports"))
