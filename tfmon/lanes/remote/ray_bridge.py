"""The bridge to a Ray cluster: reaches a node as `ssh` reaches a host.

    python ray_bridge.py lane RESERVATION COMMAND…    run a command on a node, and pass its stdin and stdout
    python ray_bridge.py nodes RESERVATION            print the nodes in one line of JSON
    python ray_bridge.py rooms RESERVATION            print how many such reservations fit now

It runs on any Python with Ray from 3.9 on, so it imports only the standard library and its siblings. Its messages
are lines of JSON on stderr after `tfmon: `.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tfmon.lanes.remote.ray_cluster import (
    NODE_GONE_HINT,
    SIGN,
    Refusal,
    connect,
    first_line,
    free_rooms,
    has_left,
    lacking,
    list_nodes,
    matching,
    why_silent,
)
from tfmon.system.threads import start_thread

if __name__ == "__main__":
    del sys.path[0]  # Ray gives its workers this module path

TRIES, AGAIN_S = 3, 2.0
WRITE_S = 30.0
WRITES, READS = 16, 64
END_S = 1.8
HEAD_EVERY_S, HEAD_AWAY_S = 1.0, 5.0
YIELDING_NICE = 5
CHUNK_BYTES = 65_536
KEPT_BYTES = 4_096
RAYS_OWN = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV")
"""Ray sets these for its workers, besides RAY_…"""


class Channel:
    """The original stdin, stdout and stderr."""

    def __init__(self) -> None:
        self.in_fd, self.out_fd, self.error_fd = os.dup(0), os.dup(1), os.dup(2)
        with tempfile.TemporaryFile() as printed, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)

    def tell(self, **fields: object) -> None:
        """Report to the monitor. Thread: any."""
        write(self.error_fd, (SIGN + json.dumps(fields) + "\n").encode())

    def fail(self, refusal: Refusal) -> NoReturn:
        """Report the reason and end. Thread: any."""
        with contextlib.suppress(OSError):
            self.tell(error=" ".join(refusal.error.split())[:400], hint=refusal.hint)
        os._exit(1)

    def fail_thread(self, reason: str) -> NoReturn:
        """End because a thread has died."""
        self.fail(Refusal(reason))

    def end_with_monitor(self) -> NoReturn:
        """End soon after the monitor closes stdin, in any state. Thread: its own."""
        ends = select.poll()
        ends.register(self.in_fd, getattr(select, "POLLRDHUP", 0))
        ends.poll()
        time.sleep(END_S)
        os._exit(0)


def write(fd: int, data: bytes) -> None:
    """Write all data."""
    while data:
        data = data[os.write(fd, data) :]


class Shell:
    """A command on a node, sent by value. Thread: `write` and `end` one, `read` another, the rest a third."""

    def start(self, command: list[str], variables: dict[str, str], nice: int) -> dict[str, Any]:
        """Start the command; return where."""
        import ray

        context = ray.get_runtime_context()
        visible = ",".join(sorted(context.get_accelerator_ids().get("GPU", [])))
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the command runs
        home = Path.home()
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            bufsize=0,
            env=surroundings(dict(os.environ), variables, visible),
            cwd=home if home.is_dir() else None,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):  # only root may lower it
            os.setpriority(os.PRIO_PROCESS, self.popen.pid, nice)
        self.written = 0
        return {"node": context.get_node_id(), "visible": visible}

    def write(self, number: int, data: bytes) -> None:
        """Write to stdin; writes are numbered from 0."""
        if number != self.written:
            raise RuntimeError(f"write {number} came in place of {self.written}")
        self.written += 1
        assert self.popen.stdin
        write(self.popen.stdin.fileno(), data)

    def end(self) -> None:
        """Close stdin."""
        assert self.popen.stdin
        self.popen.stdin.close()

    def read(self) -> Iterator[bytes]:
        """Yield the output until its end."""
        assert self.popen.stdout
        while data := os.read(self.popen.stdout.fileno(), CHUNK_BYTES):
            yield data

    def reap(self) -> tuple[int, str]:
        """Return exit code and stderr."""
        code = 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.popen.wait(1.0)
        self.errors.seek(0)
        return code, self.errors.read()[-KEPT_BYTES:].decode(errors="replace")


def surroundings(worker: dict[str, str], variables: dict[str, str], visible: str) -> dict[str, str]:
    """Return the variables of a command: the variables of Ray's worker without Ray's own, and `variables`.

    `variables` are the monitor's, which Ray would change; `visible` are the reserved GPUs.
    """
    kept = {key: value for key, value in worker.items() if not key.startswith("RAY_") and key not in RAYS_OWN}
    python_folder = str(Path(sys.executable).parent)
    path = python_folder + os.pathsep + kept.get("PATH", os.defpath)
    return {
        **kept,
        **variables,
        "PATH": path,
        "CUDA_VISIBLE_DEVICES": visible or "-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


class RayLane:
    """A command on a node, and this process's pipes."""

    def __init__(self, channel: Channel, reservation: dict[str, Any], command: list[str]) -> None:
        self._channel, self._reservation, self._command = channel, reservation, command
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._variables = {key: os.environ[key] for key in reservation["variables"] if key in os.environ}
        with contextlib.suppress(OSError):
            os.nice(YIELDING_NICE)
        self._ray = connect(channel.fail, reservation)
        self._shell: Any = None
        self._node = self._node_id = ""

    def run(self) -> NoReturn:
        """Run the command to its end."""
        start_thread("tfmon-head", self._watch_head, self._channel.fail_thread)
        placed = self._begin()
        self._channel.tell(placed={**placed, "nice": self._nice, "name": self._node})
        start_thread("tfmon-down", self._pass_down, self._channel.fail_thread)
        self._pass_up()

    def _begin(self) -> dict[str, Any]:
        ray, reservation = self._ray, self._reservation
        for left in range(TRIES - 1, -1, -1):
            possible = matching(list_nodes(ray), reservation)
            shell = self._reserve(possible)
            try:
                start = shell.start.remote(self._command, self._variables, self._nice)
                placed: dict[str, Any] = ray.get(start, timeout=reservation["wait_s"])
            except ray.exceptions.GetTimeoutError as error:
                known = {node["id"] for node in possible}
                latest = [node for node in list_nodes(ray) if node["id"] in known]
                raise lacking(latest, reservation, reservation["wait_s"]) from error
            except ray.exceptions.RayError as error:
                if not left or isinstance(error, ray.exceptions.RayTaskError):
                    cause = getattr(error, "cause", None) or error
                    raise Refusal(f"Ray could not start a process on a node: {first_line(cause)}") from error
            else:
                names = {node["id"]: node["name"] for node in possible}
                self._node_id = placed["node"]
                self._node = names.get(self._node_id, self._node_id)
                if reservation["visible"] in (None, placed["visible"]):
                    self._shell = shell
                    return placed
                ray.kill(shell)
            time.sleep(AGAIN_S)  # Ray notices a dead node or a freed GPU late
        raise Refusal(f"Ray gives another GPU of {self._node} than before", "a new race begins with that one")

    def _reserve(self, possible: Sequence[Mapping[str, Any]]) -> Any:
        ray, reservation = self._ray, self._reservation
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {
            "num_cpus": reservation["cpus"],
            "num_gpus": reservation["gpus"],
            "max_restarts": 0,
        }
        if len(possible) == 1:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(possible[0]["id"], soft=False)
        else:
            options["scheduling_strategy"] = "SPREAD"
            kinds = [
                kind for node in possible for kind in node["kinds"] if kind.lower() == reservation["word"].lower()
            ]
            options["resources"] = {f"accelerator_type:{kind}": 0.001 for kind in kinds[:1]}
        # Ray's workers have a nice value of 15 otherwise, and lanes inherit it.
        options["runtime_env"] = {"env_vars": {"RAY_worker_niceness": str(self._nice)}}
        # A class of the main program is sent by value: tfmon need not be on the node.
        actor = ray.remote(concurrency_groups={"down": 1, "up": 1})(Shell)
        return actor.options(**options).remote()

    def _pass_down(self) -> None:
        ray = self._ray
        write_there = self._shell.write.options(concurrency_group="down")
        under_way: deque[Any] = deque()
        number = 0
        with contextlib.suppress(ray.exceptions.RayError):
            while chunk := os.read(self._channel.in_fd, CHUNK_BYTES):
                under_way.append(write_there.remote(number, chunk))
                number += 1
                if len(under_way) > WRITES:
                    ray.get(under_way.popleft(), timeout=WRITE_S)
            self._end()

    def _end(self) -> Any:
        return self._shell.end.options(concurrency_group="down").remote()

    def _pass_up(self) -> NoReturn:
        """Pass stdout; end with the command's exit code."""
        ray, channel = self._ray, self._channel
        read_there = self._shell.read.options(
            concurrency_group="up", num_returns="streaming", _generator_backpressure_num_objects=READS
        )
        try:
            for part in read_there.remote():
                write(channel.out_fd, ray.get(part))
            code, errors = ray.get(self._shell.reap.remote(), timeout=5.0)
            write(channel.error_fd, errors.encode())
        except ray.exceptions.RayActorError as error:
            if has_left(ray, self._node_id):
                raise Refusal(f"{self._node} is no longer in the cluster", NODE_GONE_HINT) from error
            # Ray learns the reason later.
            known = not isinstance(error, ray.exceptions.ActorUnavailableError)
            more = f": {first_line(error)}" if known else ""
            raise Refusal(f"Ray lost its process on {self._node}{more}") from error
        except ray.exceptions.RayError as error:
            raise Refusal(f"the connection to {self._node} broke: {first_line(error)}") from error
        except OSError:
            code = 1
        os._exit(code & 0xFF)

    def _watch_head(self) -> NoReturn:
        """The command would continue without the head."""
        address = self._ray.get_runtime_context().gcs_address
        answered_s = time.monotonic()
        while time.monotonic() - answered_s < HEAD_AWAY_S:
            time.sleep(HEAD_EVERY_S)
            if not why_silent(address):
                answered_s = time.monotonic()
        self._channel.tell(error=f"the head of the Ray cluster, {address}, is gone", hint="")
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._channel.out_fd)
        if self._shell is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(self._end(), timeout=HEAD_EVERY_S)
        os._exit(1)


def main() -> None:
    """Run the command line."""
    subcommand, reservation, channel = sys.argv[1], json.loads(sys.argv[2]), Channel()
    if subcommand == "lane":
        start_thread("tfmon-monitor", channel.end_with_monitor, channel.fail_thread)
    try:
        if subcommand == "lane":
            RayLane(channel, reservation, sys.argv[3:]).run()
        else:
            nodes = list_nodes(connect(channel.fail, reservation))
            write(
                channel.out_fd,
                json.dumps(nodes if subcommand == "nodes" else free_rooms(nodes, reservation)).encode(),
            )
    except Refusal as refusal:
        channel.fail(refusal)
    except Exception as error:  # noqa: BLE001 - top of the process; the monitor shows it
        channel.fail(Refusal(f"the bridge to Ray failed: {type(error).__name__}: {first_line(error)}"))
    os._exit(0)


if __name__ == "__main__":
    main()
