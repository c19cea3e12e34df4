"""The bridge to a Ray cluster: reaches a node as `ssh` reaches a host. Nothing else in tfmon loads Ray here.

    python ray_bridge.py lane WORDS COMMAND…    run a command on a node, and pass its stdin and stdout
    python ray_bridge.py nodes WORDS            say in one line of JSON which nodes there are
    python ray_bridge.py head WORDS             run a cluster on this machine until the end of stdin

WORDS is a JSON object: see `Reservation.words`. Any Python that has Ray runs it, so it imports the standard
library and its siblings only, and stays readable for Python 3.9. What Ray prints goes into a file that nobody
sees. The bridge's own words are lines of JSON on stderr behind `tfmon: `.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tfmon.hosts import ray_shell
from tfmon.hosts.ray_connect import answers, connect, first_line, load
from tfmon.hosts.ray_nodes import Refusal, lacking, list_nodes, matching

if __name__ == "__main__":
    del sys.path[0]  # Ray has packages of its own, and tells its workers where this process looks for modules

SIGN = "tfmon: "
TRIES, AGAIN_S = 3, 2.0
WRITE_S = 30.0
WRITES = 16
"""So many writes may be on their way."""
END_S = 1.8
"""How long the command gets to end after the end of its stdin."""
HEAD_EVERY_S = 2.0
YIELDING_NICE = 5
CHUNK_BYTES = 65_536


class Channel:
    """The stdin, stdout and stderr that this process was given; Ray prints into a file instead."""

    def __init__(self) -> None:
        self.in_fd, self.out_fd, self.error_fd = os.dup(0), os.dup(1), os.dup(2)
        with tempfile.TemporaryFile() as printed, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)

    def tell(self, **words: object) -> None:
        """Say something to the monitor. Thread: any."""
        write(self.error_fd, (SIGN + json.dumps(words) + "\n").encode())

    def fail(self, refusal: Refusal) -> NoReturn:
        """Say why this ends, and end. Thread: any."""
        with contextlib.suppress(OSError):
            self.tell(error=" ".join(refusal.error.split())[:400], hint=refusal.hint)
        os._exit(1)

    def end_with_monitor(self) -> NoReturn:
        """End a little after the monitor's end of stdin is closed, whatever else is going on. Thread: its own."""
        ends = select.poll()
        ends.register(self.in_fd, 0)
        ends.poll()
        time.sleep(END_S)
        os._exit(0)


def write(fd: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(fd, data) :]


# ---------------------------------------------------------------- a command on a node


def run(channel: Channel, words: dict[str, Any], command: list[str]) -> NoReturn:
    """Run a command on a node, and end with it."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    given = {key: os.environ[key] for key in words["variables"] if key in os.environ}  # before Ray sets its own
    with contextlib.suppress(OSError):
        os.nice(YIELDING_NICE)
    ray = connect(channel.fail, words)
    shell, placed, name = begin(ray, words, command, given, nice)
    channel.tell(placed={**placed, "name": name, "nice": nice})
    head = ray.get_runtime_context().gcs_address
    threading.Thread(target=watch_head, args=(channel, head), daemon=True).start()
    threading.Thread(target=pass_down, args=(channel, ray, shell), daemon=True).start()
    pass_up(channel, ray, shell, name)


def begin(
    ray: Any,  # noqa: ANN401
    words: dict[str, Any],
    command: list[str],
    given: dict[str, str],
    nice: int,
) -> tuple[Any, dict[str, Any], str]:
    """Start a command on a node, once there is room for it; return its actor, where it is, and the node's name."""
    tries = TRIES
    while True:
        nodes = list_nodes(ray)
        possible = matching(nodes, words)
        shell = reserve(ray, words, possible, everywhere=len(possible) == len(nodes), nice=nice)
        try:
            placed = ray.get(shell.start.remote(command, given, nice), timeout=words["wait_s"])
        except ray.exceptions.GetTimeoutError as error:
            known = {node["id"] for node in possible}
            latest = [node for node in list_nodes(ray) if node["id"] in known]
            raise lacking(latest, words, words["wait_s"]) from error
        except ray.exceptions.RayError as error:
            tries -= 1
            if not tries or isinstance(error, ray.exceptions.RayTaskError):
                cause = getattr(error, "cause", None) or error
                raise Refusal(f"Ray could not start a process on a node: {first_line(cause)}") from error
            time.sleep(AGAIN_S)  # a node that died a moment ago is still there for Ray
        else:
            name = next((node["name"] for node in possible if node["id"] == placed["node"]), placed["node"])
            if words["visible"] in (None, placed["visible"]):
                return shell, placed, name
            tries -= 1
            ray.kill(shell)
            if not tries:
                raise Refusal(f"Ray gives another GPU of {name} than before", "a new race begins with that one")
            time.sleep(AGAIN_S)  # the one from before may not be free yet


def reserve(
    ray: Any,  # noqa: ANN401
    words: dict[str, Any],
    possible: list[dict[str, Any]],
    *,
    everywhere: bool,
    nice: int,
) -> Any:  # noqa: ANN401
    """Return an actor that is about to be made on one of the possible nodes; `everywhere` if these are all."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options: dict[str, Any] = {"num_cpus": words["cpus"], "num_gpus": words["gpus"], "max_restarts": 0}
    if len(possible) == 1:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(possible[0]["id"], soft=False)
    else:
        options["scheduling_strategy"] = "SPREAD"
        kinds = [kind for node in possible for kind in node["kinds"] if kind.lower() == words["word"].lower()]
        if kinds and not everywhere:
            options["resources"] = {f"accelerator_type:{kinds[0]}": 0.001}
    # Ray's workers have a nice value of 15 otherwise, and lanes inherit it.
    options["runtime_env"] = {"env_vars": {"RAY_worker_niceness": str(nice)}}
    ray.cloudpickle.register_pickle_by_value(ray_shell)
    actor = ray.remote(concurrency_groups={"down": 1, "up": 1})(ray_shell.Shell)
    return actor.options(**options).remote()


def pass_down(channel: Channel, ray: Any, shell: Any) -> None:  # noqa: ANN401
    """Pass what comes on stdin to the command, and its end."""
    write_there = shell.write.options(concurrency_group="down")
    under_way: deque[Any] = deque()
    number = 0
    with contextlib.suppress(ray.exceptions.RayError):  # `pass_up` sees it, too
        while chunk := os.read(channel.in_fd, CHUNK_BYTES):
            under_way.append(write_there.remote(number, chunk))
            number += 1
            if len(under_way) > WRITES:
                ray.get(under_way.popleft(), timeout=WRITE_S)
        shell.end.options(concurrency_group="down").remote()


def pass_up(channel: Channel, ray: Any, shell: Any, name: str) -> NoReturn:  # noqa: ANN401
    """Pass what the command writes to stdout, and end with its exit code."""
    try:
        for part in shell.read.options(concurrency_group="up", num_returns="streaming").remote():
            write(channel.out_fd, ray.get(part))
        code, said = ray.get(shell.reap.remote(), timeout=5.0)
        write(channel.error_fd, said.encode())
    except ray.exceptions.RayActorError as error:
        # Of a node that died Ray knows later on that it did.
        known = not isinstance(error, ray.exceptions.ActorUnavailableError)
        more = f": {first_line(error)}" if known else ""
        raise Refusal(f"Ray lost its process on {name}{more}") from error
    except ray.exceptions.RayError as error:
        raise Refusal(f"the connection to {name} broke: {first_line(error)}") from error
    except OSError:  # nobody reads: the monitor is gone
        code = 1
    os._exit(code & 0xFF)


def watch_head(channel: Channel, address: str) -> None:
    """Say when the head of the cluster is gone: Ray then ends this process without a word, some time later."""
    while answers(address):
        time.sleep(HEAD_EVERY_S)
    channel.tell(error=f"the head of the Ray cluster, {address}, is gone", hint="")


# ---------------------------------------------------------------- a cluster of our own


def head(channel: Channel, words: dict[str, Any]) -> None:
    """Run a cluster on the loopback interface of this machine until stdin ends."""
    ray = load(words)
    folder = str(Path(words["token"]).parent / "ray")
    try:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=folder,
        )
    except Exception as error:
        raise Refusal(f"Ray did not start on this machine: {first_line(error)}") from error
    write(channel.out_fd, (json.dumps({"address": ray.get_runtime_context().gcs_address}) + "\n").encode())
    while os.read(channel.in_fd, CHUNK_BYTES):
        pass
    ray.shutdown()


def main() -> None:
    """Do what the command line says."""
    what, words, channel = sys.argv[1], json.loads(sys.argv[2]), Channel()
    if what == "lane":
        threading.Thread(target=channel.end_with_monitor, daemon=True).start()
    try:
        if what == "lane":
            run(channel, words, sys.argv[3:])
        elif what == "nodes":
            write(channel.out_fd, (json.dumps(list_nodes(connect(channel.fail, words))) + "\n").encode())
        else:
            head(channel, words)
    except Refusal as refusal:
        channel.fail(refusal)
    except Exception as error:  # noqa: BLE001 - top of the process; the monitor shows it
        channel.fail(Refusal(f"the bridge to Ray failed: {type(error).__name__}: {first_line(error)}"))
    os._exit(0)


if __name__ == "__main__":
    main()
