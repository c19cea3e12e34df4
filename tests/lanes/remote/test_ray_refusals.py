"""Errors of the bridge to Ray if no cluster runs or its version does not fit. A module takes the place of Ray."""

import socket
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tfmon.errors import TfmonError, UsageError
from tfmon.lanes.remote import ray_bridge
from tfmon.lanes.remote.ray import RayCluster, RayNode, gpus_needed
from tfmon.lanes.remote.ray_cluster import Refusal, lacking, matching
from tfmon.lanes.remote.remote_host import Host, Reservation, is_ray, word_of
from tfmon.lanes.remote.start_program import Wire
from tfmon.model.spec import parse_lane

MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.9.0
    Python: 3.10.4
This process on Ray address was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


@pytest.fixture
def fake_ray(tmp_path, put, monkeypatch):
    """Put a module in the place of Ray, whose `init` runs the given lines; return an interpreter that finds it."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))

    def make(*lines: str) -> str:
        body = "\n".join(f"    {line}" for line in lines)
        package = put(
            "packages/ray/__init__.py",
            f"print('a word of Ray')\nimport os\nos.write(2, b'another')\ndef init(**_):\n{body}\n"
            "def nodes(): return [\n"
            "    dict(NodeID='a', Alive=True, Resources=dict(CPU=4), NodeManagerAddress='10.0.0.1'),\n"
            "    dict(NodeID='b', Alive=False, Resources={}, NodeManagerAddress='10.0.0.2'),\n]\n",
        )
        monkeypatch.setenv("PYTHONPATH", str(package.parents[1]))
        return sys.executable

    return make


@pytest.fixture
def address():
    """An address at which another program than Ray listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.process
@pytest.mark.parametrize(
    ("init", "said"),
    [
        (
            f"raise RuntimeError({MISMATCH!r})",
            "runs Ray 2.9.0 with Python 3.10.4; this is Ray 2.60.0 with Python 3.11.7 · --ray-python names",
        ),
        (
            "raise RuntimeError('Invalid or missing authentication token')",
            "did not take the token, or there is none",
        ),
        ("raise OSError('a\\nlong\\nstory')", "cannot be used: a"),
        (
            "raise ConnectionError('Failed to connect')",
            "Failed to connect · if it wants a token, RAY_AUTH_MODE=token",
        ),
        ("os._exit(1)", "the bridge to Ray failed: it ended with exit code 1"),
        ("os.kill(os.getpid(), 9)", "the bridge to Ray failed: it was killed by SIGKILL"),
    ],
)
def test_a_cluster_that_does_not_fit_has_one_line(fake_ray, address, init, said):
    cluster = RayCluster(address, fake_ray(init))
    for ask in (cluster.nodes, lambda: Wire(cluster.host("ray")).greet()):
        with pytest.raises(TfmonError) as refused:
            ask()
        assert said.removeprefix("the bridge to Ray failed: it ") in refused.value.line
        assert "\n" not in refused.value.line and "word" not in refused.value.line


@pytest.mark.process
def test_where_no_cluster_runs_the_command_that_starts_one_is_named(fake_ray, put, address):
    python = fake_ray("raise ConnectionError('Could not find any running Ray instance.')")
    with pytest.raises(TfmonError, match="no Ray cluster runs on this machine") as refused:
        RayCluster(python=python).nodes()
    assert "`ray start --head` starts one" in refused.value.hint
    put("ray/ray_current_cluster", "127.0.0.1:1")  # of a cluster that ended without a word
    for address, said in (
        ("", "no Ray cluster runs on this machine"),
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        ("ray://box:10001", "ray://box:10001 is not an address of a Ray cluster"),
    ):
        with pytest.raises(TfmonError, match=said):
            RayCluster(address, python).nodes()


@pytest.mark.process
def test_the_nodes_are_those_that_are_alive_and_ray_prints_into_nothing(fake_ray, address):
    cluster = RayCluster(address, fake_ray("print('connected')"), cpus=2)
    assert cluster.nodes() == (RayNode("a", "10.0.0.1", "10.0.0.1", cpus=4),)
    assert cluster.workers("ray/cpu") == 1
    with pytest.raises(TfmonError, match=r"^no node has a GPU; there are: 4 CPUs$"):
        cluster.workers("ray/gpu")


def node(name: str, kind: str = "", gpus: int = 0, free: int | None = None) -> dict[str, object]:
    """Return a node with two CPUs, of a machine whose host name is "box"."""
    kinds = (kind,) if kind else ()
    return asdict(RayNode(name, name, name, "box", kinds, 2, gpus, free_cpus=free, free_gpus=free))


@pytest.mark.parametrize(
    ("word", "gpus", "found"),
    [
        ("", 0, "n1 n2 n3"),
        ("h100", 1, "n2"),
        ("box", 0, "n3"),
        (
            "node9",
            1,
            "no node is called node9 or has such a GPU; there are: 1 × A100, 2 × H100, 6 CPUs on n1, n2, n3",
        ),
        ("H100", 3, "no node H100 has 3 GPUs; there are: 1 × A100, 2 × H100, 6 CPUs"),
    ],
)
def test_a_reservation_is_for_nodes_that_have_what_it_asks_or_says_what_there_is(word, gpus, found):
    nodes = [node("n1"), node("n2", "H100", 2, free=0), node("n3", "A100", 1, free=1)]
    try:
        possible = matching(nodes, {"word": word, "gpus": gpus, "cpus": 1, "node": ""})
    except Refusal as refusal:
        assert refusal.error == found
    else:
        assert " ".join(one["name"] for one in possible) == found


def test_a_reservation_that_waited_says_what_is_free_where_ray_says_it():
    words = {"gpus": 2, "cpus": 1}
    known = lacking([node("n1", "H100", 2, free=1)], words, 30)
    assert known.error == "no node has 2 free GPUs now: after 30 s of waiting 1 of 2 GPUs are free"
    assert lacking([node("n1", "H100", 2)], words, 30).error == "Ray started no process within 30 s"


def test_a_name_says_what_is_asked_of_the_cluster():
    assert [is_ray(name) for name in ("ray", "ray:H100", "ray:2", "rays", "me@ray")] == [True] * 3 + [False] * 2
    assert [word_of(name) for name in ("ray", "ray:2", "ray:H100:2", "ray:10.0.0.7")] == [
        "",
        "",
        "H100",
        "10.0.0.7",
    ]
    specs = [parse_lane(text, ()) for text in ("ray/cpu", "ray/gpu", "ray/gpu:2")]
    assert [gpus_needed(specs[:count]) for count in (1, 2, 3)] == [0, 1, 3]
    several = [parse_lane(text, ()) for text in ("ray/4xgpu", "ray/gpu:3+1", "ray/2xcpu")]
    assert [gpus_needed([spec]) for spec in several] == [4, 4, 0]
    with pytest.raises(UsageError, match=r"ray:H100/gpu:all: Ray reserves a number of GPUs"):
        gpus_needed([parse_lane("ray:H100/gpu:all", ())])


def test_a_command_on_a_node_has_nothing_of_what_ray_sets_for_its_workers():
    worker = {"RAY_AUTH_TOKEN": "secret", "OMP_NUM_THREADS": "1", "PYTHONBREAKPOINT": "ray", "HOME": "/root"}
    found = ray_bridge.surroundings({**worker, "PATH": "/bin"}, {"OMP_NUM_THREADS": "8"}, "3")
    path = f"{Path(sys.executable).parent}:/bin"
    order = {"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert found == {"HOME": "/root", "OMP_NUM_THREADS": "8", "PATH": path, **order}
    assert ray_bridge.surroundings(worker, {}, "")["CUDA_VISIBLE_DEVICES"] == "-1", "none is reserved"


def test_the_bridge_reports_where_it_placed_a_lane():
    asked = Reservation("/py", "10.0.0.1:6379", word="H100", gpus=1)
    report = 'tfmon: {"placed": {"node": "n", "visible": "3", "nice": 0, "name": "n7"}}'
    placed = asked.placed(["noise", report, "tfmon: {broken"])
    assert (placed.node, placed.visible, placed.nice) == ("n", "3", 0) and asked.placed(["noise"]) == asked
    assert Host("ray:H100", ray=placed).called == "ray:H100", "the name says which node, or the kind of GPU"
    assert Host("ray:2", ray=replace(placed, word="")).called == "ray:2 on n7"
