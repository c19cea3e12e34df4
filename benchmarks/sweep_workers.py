"""What share of a worker's time a sweep spends measuring or building, and how much sooner two workers are through.

    python benchmarks/sweep_workers.py [--combinations 16] [--slice 0.25] [--limit 4]
        [--ray] [--real] [--tune]

The lanes' step is a timed wait. The workers are on two stand-in hosts, or with `--ray` on two nodes of a cluster,
which count as separate machines: places of one machine take turns. `--real` trains small-dense, on one worker.
`--tune` trains it on two workers of one machine, and compares with Ray Tune there, each trial of which trains for
as long as a combination was raced, without a baseline; it needs `pip install 'ray[tune]'` besides.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from common import met, options_of

from tfmon.api import program as programs
from tfmon.api import sweep_places
from tfmon.api.options import SweepOptions
from tfmon.api.sweep import SweepProgram
from tfmon.lanes.group import LaneGroup
from tfmon.lanes.remote.ray import RayCluster
from tfmon.model.events import ClockStarted, Event
from tfmon.model.lane_events import PhaseEntered, SliceEnded
from tfmon.model.lane_state import BUILDING, READY
from tfmon.model.session import Session

CHILD = Path(__file__).parents[1] / "tests" / "lanes" / "children" / "trainer.py"
SHARE, TIME, TUNE = 0.85, 0.6, 2.0
"""The goals."""


class Worker:
    """Activity on which a worker spends its time."""

    def __init__(self, session: Session) -> None:
        self.began_s = self.ended_s = time.monotonic()
        self.measuring_s = self.building_s = 0.0
        self._building: set[str] = set()
        self._since_s = 0.0
        session.listen(self._hear)

    def _hear(self, event: Event) -> None:
        now_s = time.monotonic()
        if self._building:
            self.building_s += now_s - self._since_s
            self._since_s = now_s
        match event:
            case PhaseEntered(phase=phase) if phase == BUILDING:
                self._building.add(event.lane)
                self._since_s = now_s
            case PhaseEntered(phase=phase) if phase == READY:
                self._building.discard(event.lane)
            case ClockStarted():
                self._since_s = now_s
            case SliceEnded():
                self.measuring_s += now_s - self._since_s
                self._since_s = self.ended_s = now_s

    @property
    def share(self) -> float:
        """The share of its time until its last slice."""
        return (self.measuring_s + self.building_s) / (self.ended_s - self.began_s)


def batch_sizes(options) -> list[int]:
    return [16 + number for number in range(options.combinations)]


def sweep(options, places: Sequence[str], cluster: RayCluster | None) -> tuple[float, list[Worker], float]:
    """Sweep a knob in some places; return the time that it took, its workers, and the mean raced time."""
    values = ",".join(map(str, batch_sizes(options)))
    with tempfile.TemporaryDirectory() as folder:
        asked = SweepOptions(
            "small-dense",
            (f"batch_size={values}",),
            on=places,
            slice_s=options.slice,
            until_ci=0.01,
            limit_s=options.limit,
            everything=True,
            ray=cluster.address or None if cluster is not None else None,
            ray_python=cluster.python if cluster is not None else None,
            record=Path(folder) / "night.sweep",
        )
        program = SweepProgram(asked)
        try:
            workers = [Worker(station.session) for station in program._stations]
            began_s = time.monotonic()
            program.sweep.start()
            while not program.sweep.join(60):
                pass
            took_s = time.monotonic() - began_s
        finally:
            program.close()
    found = program.sweep.ranking
    assert found.settled == len(found.rows) and not found.state.lost, found.state
    visits = sum(row.attempt.visits for row in found.rows)
    print(f"{len(workers)} workers: {took_s:.1f} s for {visits} visits")
    for worker in workers:
        shares = [
            f"{100 * part / (worker.ended_s - worker.began_s):.0f} %"
            for part in (worker.measuring_s, worker.building_s)
        ]
        print(f"   measuring {shares[0]}, building {shares[1]}")
    return took_s, workers, sum(row.attempt.measured_s for row in found.rows) / len(found.rows)


def tune(options, cluster: RayCluster, trial_s: float) -> float:
    """Return the time that Ray Tune takes for the same combinations on two workers."""
    import ray
    from ray import tune as ray_tune

    def train(settings: dict[str, int]) -> None:
        import tensorflow as tf

        from tfmon.catalog import find_scenario
        from tfmon.trainer.scenario import load

        info = find_scenario("small-dense")
        scenario = load(info.path)({**info.defaults(), **settings})
        model, began_s = scenario.model(), 0.0

        def stop_in_time(batch: int, logs: object) -> None:
            nonlocal began_s
            began_s = began_s or time.monotonic()  # building the step is not training
            model.stop_training = time.monotonic() - began_s > trial_s

        timer = tf.keras.callbacks.LambdaCallback(on_train_batch_end=stop_in_time)
        model.fit(*scenario.data(), **settings, epochs=1_000_000, verbose=0, callbacks=[timer])
        ray_tune.report({"trained_s": time.monotonic() - began_s})

    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ray.init(address=cluster.address, log_to_driver=False):
        tuner = ray_tune.Tuner(
            train,
            param_space={"batch_size": ray_tune.grid_search(batch_sizes(options))},
            tune_config=ray_tune.TuneConfig(max_concurrent_trials=2),
            run_config=ray_tune.RunConfig(storage_path=folder, verbose=0),
        )
        trials = tuner.fit()
    took_s = time.monotonic() - began_s
    assert len(trials) == options.combinations and not trials.errors, trials.errors
    assert min(trial.metrics["trained_s"] for trial in trials) >= trial_s
    return took_s


def apart(init: Callable[..., None]) -> Callable[..., None]:
    """Let each place count as a separate machine."""

    def begin(self, info, word, race, number=1, counts=()):
        init(self, info, word, race, number, counts)
        self.machine = self.place

    return begin


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Two hosts that are this machine, each with an agent."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.toml"
        hosts = [f'[hosts.{name}]\nrun = ["env"]\npython = "{sys.executable}"\n' for name in ("one", "two")]
        config.write_text("".join(hosts))
        with mock.patch.dict(os.environ, {"TFMON_CONFIG": str(config)}):
            yield


def main() -> None:
    options = options_of(__doc__, combinations=16, slice=0.25, limit=4.0, ray=False, real=False, tune=False)
    with contextlib.ExitStack() as stack:
        if not options.tune:
            stack.enter_context(
                mock.patch.object(sweep_places.PlaceStation, "__init__", apart(sweep_places.PlaceStation.__init__))
            )
        if not (options.real or options.tune):
            stack.enter_context(
                mock.patch.object(programs, "LaneGroup", functools.partial(LaneGroup, script=CHILD))
            )
        cluster, places = None, ["one/cpu", "two/cpu"]
        if options.ray or options.tune:
            from ray_cluster.clusters import Nodes

            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
            nodes = Nodes()
            stack.callback(nodes.end)
            nodes.add()
            os.environ.pop("PYTHONBREAKPOINT", None)  # of Ray, which this process has loaded
            cluster, places = nodes.ray, ["ray/cpu*1", "ray/cpu*1"]
        else:
            stack.enter_context(stand_ins())
        if cluster is not None and options.tune:
            took_s, _, raced_s = sweep(options, places, cluster)
            tune_s = tune(options, cluster, raced_s)
            goal = f"at most {TUNE}: {met(took_s / tune_s <= TUNE)}"
            print(f"Ray Tune: {tune_s:.1f} s for {options.combinations} trials of {raced_s:.1f} s each")
            print(f"the sweep takes {took_s / tune_s:.2f} of its time; {goal}")
            return
        one_s, workers, _ = sweep(options, places[:1], cluster)
        if not options.real:
            two_s, more, _ = sweep(options, places, cluster)
            workers += more
    share = min(worker.share for worker in workers)
    goal = f"at least {100 * SHARE:.0f} %: {met(share >= SHARE)}"
    print(f"measuring or building: {100 * share:.1f} % of a worker's time; {goal}")
    if not options.real:
        goal = f"at most {TIME}: {met(two_s / one_s <= TIME)}"
        print(f"two workers: {two_s / one_s:.2f} of the time of one; {goal}")


if __name__ == "__main__":
    main()
