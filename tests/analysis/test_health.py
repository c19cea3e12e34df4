"""Concerns about a single lane; and the end of a script's race: time to finish, losses that differ."""

import itertools
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.events import HIDDEN, MS, SECOND, advance, lane, phase, tree_sample, window
from support.ui import Demo
from support.verdicts import ended, noisy
from support.verdicts import lane as timed

from tfmon.analysis.analysis import analyse
from tfmon.analysis.causes import causes_of
from tfmon.analysis.finish import seconds_left
from tfmon.analysis.health import concerns, trained_texts, waits_of
from tfmon.analysis.speed_changes import changes_of
from tfmon.model.events import BadLine
from tfmon.model.host_states import HostState
from tfmon.model.lane_events import RACING, CauseSeen, Progressed, StackReported, histogram_of
from tfmon.model.lane_state import DONE, MOST_POINTS, LaneState, LossCurve, ScriptFacts, Totals
from tfmon.model.race import Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import Measurements, WindowSums
from tfmon.probes.host_probe import unknown_host

STEP_MS = 20
SCRIPT = ScriptFacts("python train.py")
MIB = 2.0**20


def raced(*events, times_ms=(STEP_MS,) * 100, loss: float | None = 0.5):
    """Return a lane that has trained steps of these times until the second second."""
    bins = histogram_of(one * MS for one in times_ms)
    steady = window(2 * SECOND, histogram=bins, steps=len(times_ms), step=len(times_ms), loss=loss)
    return lane("cpu", phase(RACING), steady, *events)


def known(state, at_s: float = 2.1) -> Snapshot:
    return Snapshot(at_ns=round(at_s * SECOND), race=Race(started_ns=1), lanes=(state,))


def ids(state, at_s: float = 2.1) -> list[str]:
    return [concern.id for concern in concerns(known(state, at_s), state)]


@pytest.mark.parametrize(
    ("at_s", "longest_ms", "still"),
    [(6.9, STEP_MS, False), (7.1, STEP_MS, True), (11.0, 2_000, False), (12.5, 2_000, True)],
)
def test_a_lane_stands_still_from_five_seconds_and_five_times_its_longest_step_on(at_s, longest_ms, still):
    state = raced(times_ms=[STEP_MS] * 99 + [longest_ms])
    assert ("stands_still" in ids(state, at_s)) is still


def test_a_loss_is_lost_from_the_first_step_that_shows_it_until_one_is_a_number():
    lost = window(3 * SECOND, step=110, loss=math.nan), window(4 * SECOND, step=120, loss=math.inf)
    state = raced(*lost)
    assert ids(state) == ["loss_lost"]
    said = "the loss is inf, from step 110 on at the latest; a lower learning rate"
    assert said in trained_texts(known(state, 4), state, "")[0]
    assert not ids(raced(*lost, window(5 * SECOND, step=130, loss=2.0)))


def test_lines_that_were_skipped_are_a_concern_because_their_steps_are_missing():
    bad = BadLine(at_ns=3 * SECOND, lane="cpu", lines=2, problem="Window: its parts take 20 ns of 5")
    (concern,) = concerns(known(state := raced(bad)), state)
    text = "2 unreadable lines skipped, so steps may be missing: Window: its parts take 20 ns of 5"
    assert (concern.id, concern.text) == ("lines_skipped", text)


def test_waits_are_the_steps_over_ten_times_the_median_and_told_from_a_twentieth_of_the_time_on():
    state = raced(times_ms=[STEP_MS] * 97 + [190, 300, 4_000])
    found = waits_of(state)
    assert (found.steps, round(found.longest_s, 1), round(found.share, 2)) == (2, 4.0, 0.67)
    (told,) = concerns(known(state), state)
    assert (told.id, told.text[:42]) == ("waits", "2 steps of 100 took 67 % of the time, more")
    assert not ids(raced(times_ms=[STEP_MS] * 999 + [250]))
    assert waits_of(lane("cpu", phase(RACING))) is None


@pytest.mark.parametrize(
    ("gaps_s", "every"),
    [((20,) * 4, ", every 20.0 s"), ((20, 22, 19), ", every 20.3 s"), ((20, 5, 40), ""), ((20,), "")],
)
def test_waits_that_come_evenly_have_a_period(gaps_s, every):
    events, at_s, step = [], 0.0, 0
    for gap_s in (1, *gaps_s):
        events += steady(gap_s - 1, 20, at_s, step)
        at_s, step = at_s + gap_s, events[-1].step + 1 if events else 1
        wait = {"steps": 1, "step": step, "histogram": histogram_of([SECOND]), "loss": None}
        events.append(window(round(at_s * SECOND), SECOND, **wait))
    state = lane("cpu", phase(RACING), *events)
    told = [concern.text for concern in concerns(known(state, at_s + 0.1), state) if concern.id == "waits"]
    assert waits_of(state).steps == len(gaps_s) + 1
    assert [one.partition(" 1.0 s")[2] for one in told] == [every] * len(told)
    assert len(told) == 1 or waits_of(state).share < 0.05


def steady(seconds: float, step_ms: float, since_s: float = 0.0, step: int = 0, **readings: float):
    """Yield samples of the processes, and windows of steps that all take as long."""
    at_ns, until_ns = round(since_s * SECOND), round((since_s + seconds) * SECOND)
    while at_ns < until_ns:
        steps = max(1, round(250 / step_ms))
        at_ns, step = at_ns + round(steps * step_ms * MS), step + steps
        cpu, waited = readings.get("cpu", 90.0), readings.get("waited", 5.0)
        yield replace(tree_sample(), at_ns=at_ns, cpu_pct=cpu, waited_pct=waited)
        yield window(
            at_ns, round(steps * step_ms * MS), steps=steps, step=step,
            input_ns=round(steps * readings.get("input_ms", 1) * MS), loss=None,
            histogram=histogram_of([step_ms * MS] * steps),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("before_s", "before_ms", "after", "id", "since", "why"),
    [
        (40, 20, {"cpu": 90.0}, "slower", ("1 9", "0:39"), "the step itself, not the input"),
        (40, 20, {"cpu": 30.0, "input_ms": 41}, "slower", ("1 9", "0:39"), "it waits for its input"),
        (40, 20, {"cpu": 30.0, "waited": 65.0}, "cores_taken", ("1 9", "0:39"), "it waits for cores that others"),
        (40, 20, {"cpu": 30.0, "waited": 2.0}, "slower", ("1 9", "0:39"), "it waits, and neither computes nor "),
        (4, 10, {"cpu": 90.0}, "slower", ("401 ", "0:03"), "the step itself"),
    ],
)
def test_a_lane_that_became_slower_is_told_since_when_by_how_much_and_why(
    before_s, before_ms, after, id, since, why
):
    first = [*steady(before_s, before_ms)]
    more = steady(30, 3 * before_ms, first[-1].at_ns / SECOND, first[-1].step, **after)
    state = lane("cpu", phase(RACING), *first, *more)
    (found,) = [one for one in concerns(known(state, 70.1), state) if one.id in ("slower", "cores_taken")]
    assert found.id == id
    assert found.text.startswith(f"3.000 times slower (95 % CI 3.000 to 3.000) since step {since[0]}")
    assert f"({since[1]}); {why}" in found.text and found.text in trained_texts(known(state, 70.1), state, "")[0]


def test_a_lane_that_became_faster_waits_less_for_what_it_waited_for():
    first = [*steady(40, 60, cpu=30.0, waited=65.0)]
    state = lane("cpu", phase(RACING), *first, *steady(40, 20, first[-1].at_ns / SECOND, first[-1].step))
    (change,) = changes_of(state)
    assert change.ratio.value < 1 and change.why == "it waits less for cores that others have"


def test_a_healthy_lane_says_for_how_long_it_is_steady():
    state = lane("cpu", phase(RACING), *steady(120, 20))
    assert trained_texts(known(state, 120.1), state, "")[0] == "cpu: healthy: 1 333 examples/s, steady for 2 min"


def losses(values) -> list:
    return [window(n * SECOND, step=n, loss=loss) for n, loss in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("values", "id"),
    [
        ([2 / (1 + n / 10) + 0.01 * (n % 3) for n in range(100)], None),
        ([2 / (1 + n / 10) + 0.01 * (n % 3) for n in range(60)] + [8e13] * 20, "loss_diverges"),
        ([0.693 + random.Random(n).gauss(0, 0.01) for n in range(120)], "loss_flat"),
    ],
)
def test_a_loss_diverges_against_its_own_best_and_one_that_stays_is_told_as_a_fact(values, id):
    state = lane("cpu", phase(RACING), *losses(values))
    found = [one for one in concerns(known(state, len(values) + 0.1), state) if one.id.startswith("loss")]
    assert [one.id for one in found] == [id] * bool(id)
    assert all(one.is_fault is (id == "loss_diverges") for one in found)


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ((2.4, 2.31, 3.0, 3.9, 5.0), "5.0000, and was 2.3100 after epoch 2, its best"),
        ((2.31, 3.0, 3.9, 5.0), "5.0000, and was 2.3100 after epoch 1, its best"),
        ((2.4, 2.31, 3.0, 2.3, 2.5), ""),
        ((2.4, 1.0, 0.1, 0.3, 0.4, 0.5), "0.5000, and was 0.1000 after epoch 3, its best"),
        ((2.4, 1.0, 1.2, 1.1, 1.3), ""),
        ((2.4, 2.31, 5.0), ""),
    ],
)
def test_a_loss_of_validation_that_rises_is_told_with_its_best(losses, told):
    def epochs(losses):
        for epoch, loss in enumerate(losses, 1):
            ended = {"lane": "cpu", "at_ns": epoch, "epochs_done": epoch, "metrics": {"val_loss": loss}}
            yield from (Progressed(doing=doing, **ended) for doing in ("fit", "validation"))

    state = raced(*epochs(losses))
    found = [concern.text for concern in concerns(known(state), state)]
    assert [one.partition("; ")[0] for one in found] == [f"the loss of validation is {told}"] * bool(told)
    assert not ids(raced(*epochs(losses), *epochs([2.0]))), "another fit begins"


def growing(seconds: int, memory: Callable[[int], float]) -> tuple[Snapshot, list[str]]:
    """Return a lane on a machine with 32 GiB left, and the concerns about its memory."""
    events = []
    for n in range(1, seconds + 1):
        events += [replace(tree_sample(), at_ns=n * SECOND, private_bytes=memory(n)), window(n * SECOND + 1)]
    state = lane("cpu", phase(RACING), *events)
    host = replace(unknown_host(SECOND, HIDDEN), memory_total_bytes=2.0**36, memory_used_bytes=2.0**35)
    snapshot = replace(known(state, seconds + 0.1), hosts={"": HostState(sample=host)})
    return snapshot, [concern.text for concern in concerns(snapshot, state) if concern.id == "memory_grows"]


@pytest.mark.parametrize(
    ("seconds", "memory", "said"),
    [
        (40, lambda n: 300 * MIB + 1.1 * MIB * n, ""),
        (40, lambda n: 300 * MIB + 60 * MIB * (1 - math.exp(-n / 10)), ""),
        (139, lambda n: 300 * MIB + 60 * MIB * (1 - math.exp(-n / 30)), ""),
        (200, lambda n: 300 * MIB + 60 * MIB * (1 - math.exp(-n / 50)), ""),
        (60, lambda n: 300 * MIB + 20 * MIB * min(n, 20), ""),
        (60, lambda n: 300 * MIB + 40 * MIB * (n % 10), ""),
        (60, lambda n: 300 * MIB, ""),
        (60, lambda n: 300 * MIB + 20 * MIB * n, "memory grows by 20 MiB/s (20 MiB to 20 MiB), now 1.5 GiB"),
        (60, lambda n: 300 * MIB + MIB * (20 * n + 6 * (n % 4)), "memory grows by 20 MiB/s ("),
        (200, lambda n: 300 * MIB + MIB * n, "memory grows by 1.0 MiB/s (1.0 MiB to 1.0 MiB), now 500 MiB; at"),
    ],
)
def test_a_framework_that_warms_up_is_no_leak_and_two_minutes_of_samples_give_a_forecast(seconds, memory, said):
    _, told = growing(seconds, memory)
    assert [one[: len(said)] for one in told] == [said] * bool(said)
    assert all(("is full in" in one) is (seconds > 160) for one in told)


def test_the_machine_is_full_at_the_rate_of_the_lane():
    snapshot, told = growing(170, lambda n: n * 10.0 * MIB)
    state = snapshot.lanes[0]
    assert told == [
        "memory grows by 10 MiB/s (10 MiB to 10 MiB), now 1.7 GiB; at this rate the machine's is full in 55 min"
    ]
    traced = CauseSeen(at_ns=1, cause="retrace_value", place="train.py:7", count=400)
    what = "900 more after 300 steps"
    held = CauseSeen(at_ns=1, cause="memory_objects", place="", subject="EagerTensor", what=what)
    (cause,) = causes_of(replace(state, script=ScriptFacts(causes=(held,))))
    assert cause.text == f"Python keeps more and more objects of EagerTensor: {what}"
    assert causes_of(lane("cpu", held)) == (), "memory does not grow"
    for causes, words in (
        ((), "; what grows was not observed: tracemalloc"),
        ((traced,), "; 400 graphs were traced"),
        ((held,), "; Python keeps more and more objects: EagerTensor, 900 more after 300 steps"),
    ):
        script = replace(state, script=ScriptFacts("python train.py", causes=causes))
        found = {one.id: one.text for one in concerns(replace(snapshot, lanes=(script,)), script)}
        assert words in found["memory_grows"]


STACK = (
    "Thread 0x1 [MainThread] (most recent call first):", '  File "/usr/lib/python3.11/queue.py", line 171 in get',
    '  File "/home/u/train.py", line 17 in batches', "Thread 0x2 [x] (most recent call first):",
)  # fmt: skip


def test_a_lane_that_stands_still_says_where_for_what_and_which_child_was_killed():
    killed = replace(tree_sample(), at_ns=3 * SECOND, killed={123: 9, 124: 15})
    stack = StackReported(lane="cpu", at_ns=9 * SECOND, lines=STACK)
    state = raced(killed, stack)
    told = [concern.text for concern in concerns(known(state, 20), state)]
    assert told[0] == "a child process, PID 123, was killed by SIGKILL at 0:02"
    assert told[1].endswith("; it stands at train.py:17 in batches, and waits for a queue")


def finish(
    *runs: tuple[float, float], steps=(400, 400), batches=(32, 32), epochs: int = 3, scatter: float = 0.02,
    seeds=("7", "7"), restored: int = 0,
) -> tuple[str, ...]:  # fmt: skip
    """Return the lines about the end of a script in two lanes. A run: its seconds, and what its losses are off."""
    lanes = []
    for at, (seconds, apart) in enumerate(runs):
        noise, curve, examples = random.Random(at), LossCurve(), steps[at] * batches[at]
        for step in range(10, steps[at] + 1, 10):
            curve = curve.with_loss(step, 2 * math.exp(-step / 200) + apart + noise.gauss(0, 0.05))
        done = Progressed(at_ns=1, doing="fit", epochs_done=epochs, epochs=5, restored=restored * at)
        lanes.append(
            replace(
                timed(f"cpu #{at + 1}", noisy(examples / seconds, steps[at] // 10, scatter, seed=at)),
                spec=LaneSpec("cpu", id="AB"[at], name=f"cpu #{at + 1}", number=at + 1),
                settings={"batch_size": batches[at]},
                differs=("batch_size",) * (batches[0] != batches[1]),
                script=replace(SCRIPT, resolved={"seed": seeds[at]}, progress=done),
                totals=Totals(steps[at], examples=examples, trained_ns=round(seconds * SECOND), losses=curve),
            )
        )
    found = analyse(ended(*lanes))
    finished = [found.finish(brief=True)] * ("finished the same" in found.finish())
    assert found.outcome.startswith("; ".join([*finished, found.verdict.answer]))
    return found.finish_lines


@pytest.mark.parametrize("scatter", [0.02, 0.5])
def test_one_run_of_each_of_two_equal_lanes_cannot_tell_who_finishes_sooner(scatter):
    (line,) = finish((18.0, 0.0), (18.0, 0.0), scatter=scatter)
    assert line.startswith("one run of each cannot tell who finishes the same 3 epochs sooner (cpu #1 1")


def test_losses_that_differ_are_warned_of_and_those_that_are_lost_in_both_lanes_are_not():
    _, warning = finish((41.2, 0.0), (18.0, 0.4))
    said = r"losses of cpu #1 and cpu #2 at the same step differ by 0\.[34]\d+, and within a lane"
    assert re.match(said, warning)
    _, warning = finish((41.2, 0.0), (18.0, math.nan))
    assert warning == "the loss of cpu #2 is no longer finite, and that of cpu #1 is: they train differently"
    assert len(finish((41.2, math.nan), (18.0, math.inf))) == 1


@pytest.mark.parametrize("run", [{"seeds": ("none", "none")}, {"seeds": ("7", "8")}, {"restored": 2}])
def test_losses_of_runs_without_a_common_seed_or_start_differ_for_that_reason(run):
    assert [one for one in finish((41.2, 0.0), (18.0, 0.4), **run) if "train something else" in one] == []


def test_scripts_that_trained_nothing_or_other_amounts_have_no_time_to_finish():
    lanes = [LaneState(LaneSpec("cpu", name=name), phase=DONE, script=SCRIPT) for name in "AB"]
    assert analyse(replace(Demo([LaneSpec("cpu")]).session.snapshot(), lanes=tuple(lanes))).finish_lines == ()
    (line,) = finish((41.2, 0.0), (18.0, 0.0), steps=(400, 200))
    expected = "no time to finish: the lanes trained different numbers of examples (cpu #1 12 800, cpu #2 6 400)"
    assert line == expected


@pytest.mark.parametrize(("epochs", "work"), [(7, "7 epochs"), (0, "12 800 examples")])
def test_the_same_examples_in_batches_of_two_sizes_say_who_finished_sooner(epochs, work):
    (line,) = finish((41.2, 0.0), (18.0, 0.4), steps=(400, 200), batches=(32, 64), epochs=epochs)
    said = (
        f"cpu batch_size=64 #2 finished the same {work} sooner than cpu batch_size=32 #1: 2.3× by its throughput"
    )
    assert line.startswith(f"{said} (95 % CI 2")


def test_a_loss_curve_stays_small_and_covers_the_race():
    curve = LossCurve()
    for step in range(10_000):
        curve = curve.with_loss(step, float(step))
    steps = [step for step, _ in curve.points]
    assert MOST_POINTS // 2 <= len(steps) <= MOST_POINTS
    assert steps[0] == 0 and steps[-1] > 9_800
    assert len({later - earlier for earlier, later in itertools.pairwise(steps)}) == 1


def test_the_time_left_includes_what_epochs_take_besides_their_steps():
    measurements = Measurements(steady=WindowSums(steps=100, span_ns=SECOND))
    state = LaneState(LaneSpec("cpu"), measurements=measurements)
    assert seconds_left(state) is None
    progress = {"doing": "fit", "epoch": 2, "epochs": 3, "batch": 50, "batches": 100, "epochs_done": 1}
    state = advance(state, Progressed(at_ns=0, validation_ns=2 * SECOND, between_ns=SECOND, **progress))
    assert seconds_left(state) == pytest.approx(0.5 + 1 + 2 * 3)
    unknown = replace(state.script.progress, batches=None)
    assert seconds_left(replace(state, script=replace(state.script, progress=unknown))) is None
