"""A Ray cluster of two nodes on this machine, with a token; what needs more nodes, or kills some, makes its own.

Nothing here runs where Ray is not installed; `make test-ray` installs it.
"""

import importlib.util
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nvml import TWO_GPUS

from .clusters import Nodes

if importlib.util.find_spec("ray") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory, build_fake_nvml) -> Iterator[None]:
    """What every process of a cluster, and every bridge, finds: the token, and a driver with two GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("FASTER", "batch_size=16:1.2 batch_size=64:1.6 batch_size=128:1.4")  # of trainers there
        # Ray keeps the address of the last cluster there. A test must not replace the address of a user's cluster.
        # The paths of its sockets may not be long.
        patch.setenv("RAY_TMPDIR", folder := tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        script = tmp_path_factory.mktemp("driver") / "script.txt"
        script.write_text(TWO_GPUS)
        patch.setenv("FAKE_NVML_SCRIPT", str(script))
        patch.setenv("LD_LIBRARY_PATH", str(build_fake_nvml().parent))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        yield
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(surroundings) -> Iterator[Nodes]:
    """Two nodes: the head, and one with two GPUs that Ray takes for H100."""
    nodes = Nodes()
    nodes.add(gpus=2, kind="H100")
    yield nodes
    nodes.end()


@pytest.fixture(autouse=True)
def links(cluster) -> Iterator[None]:
    os.environ.pop("PYTHONBREAKPOINT", None)  # Ray sets it in the process that imports it, and a monitor does not
    yield
    cluster.close_links()
