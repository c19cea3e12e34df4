"""A command in a view is the same process as without it, and does not run if its view cannot be made."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.views import content

from tfmon.lanes import enter_view
from tfmon.lanes.launch import ProcessPlan, launch
from tfmon.model.folder_views import COPY, OVERLAY, View
from tfmon.probes.view_support import find_view, why_no_copy
from tfmon.system.view_files import files_of, new_store, tidy

pytestmark = pytest.mark.process

TELLS = """
import json, os, resource, signal, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print(json.dumps({
    "signals": {key: status[key].strip() for key in ("SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp")},
    "environment": {key: value for key, value in os.environ.items() if key not in ("TFMON_PIPES", "TFMON_HOLDER")},
    "rights": status["CapEff"].strip(), "ids": [os.getresuid(), os.getresgid(), os.umask(0)],
    "leads": [os.getpid() == os.getpgid(0), os.getpid() == os.getsid(0)], "nice": os.nice(0),
    "folder": [os.getcwd(), os.environ.get("PWD")], "argv": sys.argv, "stdin": os.readlink("/proc/self/fd/0"),
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE), "open": len(os.listdir("/proc/self/fd")),
    "files": sorted(os.listdir(".")),
    "cmdline": open("/proc/self/cmdline").read(), "inode": os.stat("data/here.txt").st_ino,
    "changed": os.stat("data/here.txt").st_ctime_ns, "threads": len(os.listdir("/proc/self/task")),
}))
"""


def run(code: str, view: View | None, *words: str, files: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Run Python in a view; return its output and its exit code."""
    argv = (sys.executable, "-c", code, *words)
    launched = launch(
        ProcessPlan(lane="A", python="", environment={}, argv=argv, grace_s=1.0, view=view, files=files or {})
    )
    os.set_blocking(launched.popen.stdout.fileno(), True)
    with open(launched.popen.stdout.fileno(), "rb", closefd=False) as output:
        printed = output.read().decode()
    launched.popen.wait()
    os.close(launched.metric_fd)
    os.close(launched.request_fd)
    if launched.guard is not None:
        launched.guard.dismiss()
    return printed, launched.popen.returncode


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "pro ject, with: odd \\ names"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "here.txt").write_text("here")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    monkeypatch.setenv("LC_ALL", "")
    monkeypatch.setenv("LANG", "")
    return folder


def test_a_command_is_the_same_process_in_a_view(folder, tmp_path):
    found = find_view(str(folder), tmp_path / "store")
    if found.kind != OVERLAY:
        pytest.skip(found.reason)
    without, within = (run(TELLS, view, "ä b")[0] for view in (None, new_store(found, 1).of_lane("A", 1)))
    assert json.loads(without) == json.loads(within)


def test_where_the_files_of_lanes_can_have_no_extended_attributes_the_folder_is_copied(folder, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    tells = "import sys; from pathlib import Path; from tfmon.probes.view_support import find_view as find; "
    tells += "print(find(sys.argv[1], Path(sys.argv[2])).text)"
    mounted = 'mount -t ramfs none "$1" && exec "$2" -c "$3" "$4" "$1"'
    words = ["unshare", "-Urm", "sh", "-c", mounted, "sh", str(store), sys.executable, tells, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr)
    assert f"has a copy of {folder}" in done.stdout
    assert f"(no view: the file system of {store} has no extended attributes: " in done.stdout


def test_a_command_whose_view_cannot_be_made_does_not_run(folder, tmp_path):
    view = View(COPY, str(tmp_path / "gone"), store=str(tmp_path / "store.files" / "A"))
    reason, code = run("open('ran', 'w')", view)
    assert code == 1
    assert reason.startswith(f"the lane's view of {view.folder} could not be made: ") and "--in-place" in reason
    assert not (folder / "ran").exists()


READS = """
import os, pathlib
print(pathlib.Path("data/large/here.txt").read_text(), pathlib.Path("data/own.txt").read_text(), os.getcwd())
pathlib.Path("data/own.txt").write_text("other")
pathlib.Path("data/new.txt").write_text("new")
"""


def test_a_copy_shares_the_paths_that_are_only_read(folder, tmp_path):
    (folder / "data" / "large").mkdir()
    for name in ("large/here.txt", "large/other.txt", "own.txt"):
        (folder / "data" / name).write_text(name * 2_000 if name == "large/other.txt" else name)
    assert why_no_copy(str(folder), tmp_path / "store", 10_000) == "0 MiB, view_copy=0 MiB"
    assert not why_no_copy(str(folder), tmp_path / "store", 10_000, ("data/large",))
    place = tmp_path / "store.files" / "A"
    view = View(COPY, str(folder), store=str(place), links=("data/large",))
    before = content(folder)
    printed, _ = run(READS, view, files={"data/here.txt": "changed"})
    assert printed == f"large/here.txt own.txt {place / 'written'}\n"
    assert content(folder) == before
    assert (place / "written" / "data" / "large").readlink() == folder / "data" / "large"
    tidy(place, view)
    assert {name for name, _ in files_of(place / "written")} == {"data/here.txt", "data/own.txt", "data/new.txt"}
    assert sorted(path.name for path in place.iterdir()) == ["written"]
    assert content(folder) == before


def test_a_copy_that_fails_is_reported_by_the_last_line_of_its_error(folder, tmp_path, monkeypatch):
    fails = "echo cp: first >&2; echo cp: no space left >&2; exit 3"
    monkeypatch.setitem(enter_view.COPIES, sys.platform, ["sh", "-c", fails])
    with pytest.raises(OSError, match="cp: no space left") as raised:
        enter_view.copy_folder(str(folder), str(tmp_path / "copy"), [])
    assert (raised.value.errno, raised.value.strerror) == (3, "cp: no space left")


@pytest.mark.parametrize("name", ("large", "large/of_the_script.txt"))
def test_what_a_script_writes_in_place_of_a_link_is_kept(folder, tmp_path, put, name):
    written = put(f"A/written/{name}", "its own")
    tidy(tmp_path / "A", View(COPY, str(folder), store=str(tmp_path / "A"), links=("large",)))
    assert written.read_text() == "its own"
