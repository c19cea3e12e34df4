"""A child with the arguments of a lane's child: SAYS is the name of the function below that it runs."""

import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tfmon.model.codec import encode_message
from tfmon.model.lane_events import PROTOCOL, Hello, PhaseEntered, Profiled
from tfmon.model.requests import Request, TakeProfile
from tfmon.system.lane_pipes import differences
from tfmon.trainer.channel import start_inbox

METRICS, KNOBS = int(sys.argv[1]), int(sys.argv[2])
FOREVER = threading.Event()


def write(data: bytes) -> None:
    while data:
        data = data[os.write(METRICS, data) :]


def phase(name: str, at_ns: int = 0) -> None:
    write(encode_message(PhaseEntered(at_ns=at_ns, phase=name)))


def ten_thousand_lines() -> None:
    for number in range(10_000):
        phase("racing", number)


def bad_lines() -> None:
    phase("first")
    write(b"this is no JSON\n")
    write(b'{"v":2,"type":"PhaseEntered","at_ns":1,"phase":"\xff\xfe"}\n')
    write(b'{"v":99,"type":"Hello"}\n')
    write(b"\n")
    phase("last")
    write(encode_message(PhaseEntered(at_ns=0, phase="cut off"))[:20])


def a_flood_until_told() -> None:
    lines = 100 * encode_message(PhaseEntered(at_ns=0, phase="flood"))
    while not select.select([KNOBS], [], [], 0)[0]:
        write(lines)
    phase("end of the flood")


def a_beat() -> None:
    """Answer every request with one line."""
    received = os.fdopen(KNOBS, "rb", buffering=0)
    phase("listening")
    while received.read(65_536):
        phase("heard")


def noise() -> None:
    for number in range(10_000):
        os.write(2, f"\x1b[33mwarning {number}\x1b[0m: {'.' * 32}\n".encode())
    os.write(2, b"I0000 00:00:1795335909.051861   23099 profiler_session.cc:117] Profiler session initializing.\n")
    os.write(1, b"half of it is \xff\xfe no text\n")
    os.write(2, b"\x1b]0;a title\x07the last line\n")
    phase("said it all")


def an_exit_code() -> None:
    sys.exit(3)


def nothing_for_ever() -> None:
    phase("waiting")
    FOREVER.wait()


def a_listener(deliver: Callable[[Request], None] = lambda _: None) -> None:
    """Wait as a real child does: until Stop, or until the monitor's end of the pipe is gone."""
    start_inbox(KNOBS, deliver, sys.exit)
    write(encode_message(Hello(at_ns=0, protocol=PROTOCOL, pid=os.getpid(), python="")))
    FOREVER.wait()


def its_stacks() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    a_listener()


def a_look_around() -> None:
    """Report the differences of the surroundings in a hello, and print them."""
    hello = Hello(at_ns=0, protocol=PROTOCOL, pid=os.getpid(), python="", unlike=differences(os.environ))
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    shown = {key: os.environ.get(key) for key in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES")}
    rays = sorted(key for key in os.environ if key.startswith("RAY_"))
    print(json.dumps({"nice": nice, "cores": len(os.sched_getaffinity(0)), "rays": rays, **shown}), flush=True)
    write(encode_message(hello))
    FOREVER.wait()


def defiance() -> None:
    """Ignore every request and SIGTERM, with a grandchild that does so too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    write(encode_message(Hello(at_ns=0, protocol=PROTOCOL, pid=grandchild.pid, python="")))
    FOREVER.wait()


def a_grandchild_left_behind() -> None:
    """End, while a grandchild holds the pipes open."""
    grandchild = subprocess.Popen(["sleep", "600"], pass_fds=(METRICS, KNOBS))
    write(encode_message(Hello(at_ns=0, protocol=PROTOCOL, pid=grandchild.pid, python="")))


def now() -> None:
    for number in range(3):
        phase(f"phase {number}", time.monotonic_ns())


def a_profile() -> None:
    """Answer TakeProfile with the profile of a trace."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from support.gpu_profile import gpu_profile

    def deliver(request: Request) -> None:
        if isinstance(request, TakeProfile):
            write(encode_message(Profiled(at_ns=0, folder=request.folder, profile=gpu_profile())))

    a_listener(deliver)


def its_environment() -> None:
    for name in ("GIVEN", "TAKEN"):
        phase(os.environ.get(name, "not set"))


globals()[os.environ["SAYS"]]()
