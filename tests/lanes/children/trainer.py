"""A child that lives like a trainer, without TensorFlow: it gets ready, races, heeds every request.

GATE: a file that it waits for before it is ready. FAILS: it says so instead of getting ready. LOG: a file to which
it writes the requests it gets. EQUAL_AT: the batch size at which it is as fast as one without this; the examples
that it trains are in proportion to the batch size then.
FAILS_AT: the width at which it runs out of memory. FASTER: by what factor settings make it faster, such as
"prefetch=auto:1.5 cache=True:0.5 devices=2:1.7". WAITS: the share of time that it says it waits for its input.
DIES: a setting under which it kills itself when it begins to train, such as "batch_size=64". STOPPED: how many
times as long a window takes that was interrupted, and says so. WINDOW_S: the length of a window.
"""

import os
import platform
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tfmon.model.lane_events import (
    PROTOCOL,
    Built,
    Finished,
    Hello,
    KnobApplied,
    KnobRefused,
    LaneFailed,
    LibrariesLoaded,
    PhaseEntered,
    SliceEnded,
    Window,
)
from tfmon.model.readings import SliceLoad
from tfmon.model.requests import Assign, Pause, Run, RunSlice, SetKnob, Stop
from tfmon.system.lane_pipes import differences
from tfmon.trainer.channel import Mailbox, Reporter, exit_now, start_inbox

WINDOW_S = float(os.environ.get("WINDOW_S", 0.01))
STEPS = 10
STOPPED = float(os.environ.get("STOPPED", 20))
"""A window that took longer than this number of windows was interrupted."""


class FakeTrainer:
    def __init__(self) -> None:
        self.mailbox: Mailbox = Mailbox()
        self.reporter = Reporter(int(sys.argv[1]))
        self.racing = False
        self.turn: RunSlice | None = None
        self.turn_ends_ns = 0
        self.step = 0
        self.pause = threading.Event()

    def say(self, event, **values) -> None:
        self.reporter.send(event(at_ns=time.monotonic_ns(), **values))

    def live(self) -> None:
        unlike = differences(os.environ)
        self.say(Hello, protocol=PROTOCOL, pid=os.getpid(), python=platform.python_version(), unlike=unlike)
        start_inbox(int(sys.argv[2]), self.mailbox.post, self.reporter.fail)
        self.mailbox.wait()
        first = self.mailbox.take()
        self.heed(first)
        if self.settings.get("width", 0) >= int(os.environ.get("FAILS_AT", 1_000_000)):
            self.say(LaneFailed, kind="out_of_memory", message="out of memory: it is too wide")
            exit_now(1)
        if "FAILS" in os.environ:
            self.say(LaneFailed, kind="scenario", message=os.environ["FAILS"])
            exit_now(1)
        while "GATE" in os.environ and not Path(os.environ["GATE"]).exists():
            self.pause.wait(0.005)
        self.say(PhaseEntered, phase="ready")
        while True:
            if not self.racing:
                self.mailbox.wait()
            while (request := self.mailbox.take()) is not None:
                self.heed(request)
            if self.racing:
                self.train()

    def heed(self, request) -> None:
        if "LOG" in os.environ:
            with Path(os.environ["LOG"]).open("a") as log:
                log.write(f"{request}\n")
        match request:
            case Assign():
                self.settings, self.limit = dict(request.settings), request.steps
                self.devices = request.devices
                if request.device == "gpu":
                    claimed = tuple(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
                    versions = {"tensorflow": "0", "keras": "0", "numpy": "0"}
                    self.say(LibrariesLoaded, device_name="", gpu_uuids=claimed, **versions)
                self.say(
                    Built, parameters=1, examples=int(os.environ.get("EXAMPLES", 1_000)), settings=self.settings
                )
            case Run():
                self.turn, self.racing = None, True
                self.say(PhaseEntered, phase="racing")
            case RunSlice():
                self.turn, self.racing = request, True
                self.turn_ends_ns = time.monotonic_ns() + int(request.seconds * 1e9)
                self.say(PhaseEntered, phase="racing")
            case Pause():
                self.turn, self.racing = None, False
                self.say(PhaseEntered, phase="paused")
            case SetKnob(request=number, knob=knob, value=value):
                answer = {"request": number, "knob": knob, "value": value}
                if value == 13:
                    self.say(KnobRefused, reason="13 brings bad luck", **answer)
                else:
                    self.settings[knob] = value
                    self.say(KnobApplied, step=self.step, gap_ns=1, **answer)
            case Stop():
                self.say(Finished, steps=self.step)
                exit_now(0)

    def train(self) -> None:
        knob, _, value = os.environ.get("DIES", "").partition("=")
        if knob and str(self.settings[knob]) == value:
            os.kill(os.getpid(), signal.SIGKILL)
        began_ns = time.monotonic_ns()
        self.pause.wait(WINDOW_S)
        took_ns = time.monotonic_ns() - began_ns
        self.step += STEPS
        spent = dict.fromkeys(("call_ns", "sync_ns", "report_ns", "longest_ns"), 0)
        spent["input_ns"] = int(float(os.environ.get("WAITS", 0)) * WINDOW_S * 1e9)
        round_number = self.turn.round if self.turn else None
        examples = STEPS * 10
        if "EQUAL_AT" in os.environ:
            examples = round(examples * self.settings["batch_size"] / float(os.environ["EQUAL_AT"]))
        for rule in os.environ.get("FASTER", "").split():
            setting, _, factor = rule.partition(":")
            knob, _, value = setting.partition("=")
            if str({**self.settings, "devices": self.devices}[knob]) == value:
                examples = round(examples * float(factor))
        counts = {"steps": STEPS, "examples": examples, "step": self.step, "histogram": {640: STEPS}, **spent}
        # A window with an interruption has its real length; the others are of one length.
        span_ns = took_ns if took_ns > STOPPED * WINDOW_S * 1e9 else int(WINDOW_S * 1e9)
        self.say(Window, span_ns=span_ns, loss=1.0, settings=self.settings, round=round_number, **counts)
        if self.limit is not None and self.step >= self.limit:
            self.say(Finished, steps=self.step)
            exit_now(0)
        if self.turn is not None and time.monotonic_ns() >= self.turn_ends_ns:
            number, self.turn, self.racing = self.turn.round, None, False
            self.say(SliceEnded, round=number, load=SliceLoad(span_ns=1, examples=STEPS, cpu_ns=1))


if __name__ == "__main__":
    FakeTrainer().live()
