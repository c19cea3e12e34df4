"""`tfmon sweep`, from the words to the answer."""

import json
import signal
import sys
from dataclasses import replace

import pytest
from support.hosts import FakeSsh
from support.sweeps import planned

from tfmon.analysis.intervals import FEW
from tfmon.recordings import sweeps

FASTER = "batch_size=16:1.2 batch_size=64:1.6 batch_size=128:1.4"
GRID = ("small-dense", "--over", "batch_size=16,64,128,4000", "--slice", "0.2", "--headless")


@pytest.mark.process
class TestLanes:
    @pytest.mark.slow
    def test_a_combination_whose_process_dies_fails_after_three_times_and_the_sweep_goes_on(
        self, tfmon, scripted, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("DIES", "batch_size=16")
        words = ("small-dense", "--over", "batch_size=16,64", "--slice", "0.2", "--until-ci", "20%")
        done = tfmon("sweep", *words, "--headless", "--record", tmp_path / "x.sweep")
        assert done.code == 1
        (row,) = [line for line in done.out.splitlines() if line.startswith("16 ")]
        assert "failed: " in row and "SIGKILL" in row
        died, lived = sweeps.read(tmp_path / "x.sweep").attempts
        assert len(died.deaths) == 3 and lived.figures.examples_per_s > 0
        told = [line.partition(": ")[2] for line in done.err.splitlines() if line.startswith("tfmon: batch")]
        lost = [line.endswith("it is tried again") for line in told if line.startswith("batch 16")]
        assert lost == [True, True, False]
        assert sum(line.startswith("batch 64: ") and "measured" in line for line in told) == 1

    def test_a_signal_ends_it_with_what_it_has_and_says_how_to_go_on(self, tfmon, scripted, tmp_path, monkeypatch):
        def interrupt(told: str) -> None:
            if "best batch" in told:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setenv("FASTER", FASTER)
        monkeypatch.setattr("tfmon.api.run_base.show_progress", interrupt)
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        done = tfmon("sweep", *GRID, "--record", tmp_path / "night.sweep")
        assert done.code == 130
        assert "ended early: interrupted by SIGINT" in done.out
        assert f"tfmon sweep --resume {tmp_path / 'night.sweep'} continues it" in done.out

    def test_a_host_and_this_machine_share_the_combinations(self, tfmon, scripted, tmp_path, monkeypatch):
        FakeSsh(tmp_path, monkeypatch).behave(environment={"FASTER": FASTER, "STOPPED": "1e9"})
        monkeypatch.setenv("FASTER", FASTER)
        config = tmp_path / "config.toml"
        config.write_text(f'[hosts.gpu2]\npython = "{sys.executable}"\n')
        monkeypatch.setenv("TFMON_CONFIG", str(config))
        words = ("--over", "batch_size=16,64", "--slice", "0.2", "--until-ci", "20%", "--on", "gpu2/cpu,cpu")
        done = tfmon("sweep", "small-dense", *words, "--json", "--record", tmp_path / "x.sweep")
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert found["best"] == {"cpu": {"batch_size": 64}}
        assert {one["place"] for one in found["combinations"]} == {"cpu", "gpu2/cpu"}


SCRIPT = """
import time
import keras, numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
waits = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.003))
model.fit(np.zeros((512, 8)), np.zeros(512), batch_size=8, epochs=10_000, verbose=0, callbacks=[waits])
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_knobs_that_a_script_offers_are_swept(tfmon, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    words = ("--over", "learning_rate=1e-3,1e-4", "--slice", "0.2", "--until-ci", "99%")
    done = tfmon("sweep", *words, "--json", "--record", tmp_path / "x.sweep", "--", sys.executable, script)
    assert done.code == 0, done.err
    found = json.loads(done.out)["combinations"]
    assert {one["settings"]["learning_rate"] for one in found} == {1e-3, 1e-4}
    assert all(one["pairs"] >= FEW for one in found), "so many tell it where the machine is quiet"


def test_a_file_of_another_scenario_or_of_one_that_has_changed_is_refused(tfmon, tmp_path):
    state = planned()
    for name, plan, said in [
        ("other", replace(state.plan, scenario="text-conv"), "is of another scenario: text-conv"),
        ("changed", replace(state.plan, scenario="small-dense", source="0"), "has changed since"),
        ("script", replace(state.plan, command=("python", "train.py")), "is of another command"),
    ]:
        file = tmp_path / name
        sweeps.create(file, replace(state, plan=plan)).close()
        before = file.read_bytes()
        done = tfmon("sweep", "small-dense", "--resume", file, "--headless")
        assert done.code == 2 and said in done.err
        assert file.read_bytes() == before
