"""Clusters whose nodes are this machine, at different addresses of its loopback interface."""

import contextlib
import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from support.hosts import Linked

from tfmon.lanes.remote.ray import RayCluster

FAKE_TFMON = Path(__file__).parents[1] / "support" / "fake_tfmon.py"
ADDRESSES = (f"127.0.0.{last}" for last in itertools.count(2))


class Nodes:
    """A cluster that a test may do anything to, and the connections into it."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.head = next(ADDRESSES)
        words = {"num_cpus": 2, "num_gpus": 0, "node_ip_address": self.head, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=words)
        self._nodes: dict[str, Any] = {self.head: self._cluster.head_node}
        self._links: list[Linked] = []
        self._left: list[psutil.Process] = []
        self.address = str(self._cluster.address)
        self.ray = RayCluster(self.address)

    @property
    def last(self) -> str:
        return list(self._nodes)[-1]

    def add(self, gpus: int = 0, kind: str = "") -> str:
        address = next(ADDRESSES)
        words = {"num_gpus": gpus, "resources": {f"accelerator_type:{kind}": 1} if kind else {}}
        self._nodes[address] = self._cluster.add_node(num_cpus=2, node_ip_address=address, **words)
        return address

    def link(self, name: str, gpus: int = 0, **more: object) -> Linked:
        """Return a connection to a part of it that is not open yet."""
        host = self.ray.host(name, gpus)
        self._links.append(Linked(replace(host, ray=replace(host.ray, **more))))
        return self._links[-1]

    def connect(self, name: str, gpus: int = 0, **more: object) -> Linked:
        link = self.link(name, gpus, **more)
        link.ensure()
        return link

    @contextlib.contextmanager
    def sweep(
        self, file: Path, places: str, *, sizes: str = "16,64,128", long: bool = False
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a sweep of lanes that train nothing, as a user does; it is killed where the block ends first."""
        short = (f"batch_size={sizes}", "--until-ci", "10%")
        more = ("batch_size=8..2048", "--all", "--until-ci", "3%") if long else short
        words = [sys.executable, str(FAKE_TFMON), "sweep", "small-dense", "--ray", self.address, "--on", places]
        words += ["--slice", "0.2", "--record", str(file), "--over", *more]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([*words, "--json"], text=True, **pipes) as sweep:
            try:
                yield sweep
            finally:
                sweep.kill()

    def close_links(self) -> None:
        while self._links:
            self._links.pop().close()

    def processes(self, address: str) -> list[psutil.Process]:
        roots = [one.process.pid for kind in self._nodes[address].all_processes.values() for one in kind]
        found = []
        for pid in roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                root = psutil.Process(pid)
                found += [root, *root.children(recursive=True)]
        return found

    def signal(self, processes: list[psutil.Process], number: signal.Signals) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self, address: str) -> list[psutil.Process]:
        """Kill what Ray runs on a node, and return all that was there."""
        there = self.processes(address)
        self._left += there
        raylet = self._nodes[address].all_processes["raylet"][0].process
        raylet.kill()
        raylet.wait()
        return there

    def kill_head(self) -> None:
        """Kill the process of the head that knows the cluster."""
        self._nodes[self.head].kill_gcs_server()

    def forget(self, address: str) -> None:
        """Remove the remains of a node."""
        self._left += self.processes(address)
        self._cluster.remove_node(self._nodes.pop(address), allow_graceful=False)

    def end(self) -> None:
        self.close_links()
        left = [*self._left, *(process for address in self._nodes for process in self.processes(address))]
        self._cluster.shutdown()
        self.signal(left, signal.SIGKILL)  # Ray's agents of a node that was killed stay for a minute
