"""`tfmon sweep`, from the words to the answer."""

import json
import signal
import sys

import pytest
from support.hosts import FakeSsh

from tfmon.analysis.intervals import FEW
from tfmon.recordings import sweeps

FASTER = "batch_size=16:1.2 batch_size=64:1.6 batch_size=128:1.4"
GRID = ("small-dense", "--over", "batch_size=16,64,128,4000", "--slice", "0.2", "--headless")


@pytest.mark.process
def test_the_best_is_found_and_told_as_json_and_the_rest_goes_on_without_measuring_twice(
    tfmon, scripted, tmp_path, monkeypatch
):
    monkeypatch.setenv("FASTER", FASTER)
    file = tmp_path / "night.sweep"
    done = tfmon("sweep", *GRID, "--until-ci", "5%", "--record", file, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["best"] == {"cpu": {"batch_size": 64}}
    first, *others = found["combinations"]
    assert first["settings"] == {"batch_size": 64} and first["ratio_ci95"][0] < 1.6 < first["ratio_ci95"][1]
    assert first["interval_kind"] == "always-valid" and first["learns_differently_by"] == ["batch_size"]
    assert [other["settings"]["batch_size"] for other in others] == [128, 16, 4000]
    assert others[-1]["state"] == "refused" and "at most 1000" in others[-1]["reason"]
    assert (found["file"], found["interrupted"]) == (str(file), None)
    before = file.read_bytes()
    again = tfmon("sweep", "--resume", file, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["combinations"] == found["combinations"]
    assert file.read_bytes() == before, "nothing was left to measure"


@pytest.mark.slow
@pytest.mark.process
def test_a_combination_whose_process_dies_fails_after_three_times_and_the_sweep_goes_on(
    tfmon, scripted, tmp_path, monkeypatch
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


@pytest.mark.process
def test_a_signal_ends_it_with_what_it_has_and_says_how_to_go_on(tfmon, scripted, tmp_path, monkeypatch):
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


@pytest.mark.slow
@pytest.mark.process
def test_the_number_of_gpus_is_swept_with_the_idlest_of_each_number_and_too_many_are_refused(
    tfmon, scripted, tmp_path, monkeypatch
):
    from support.eight_gpus import GPUS, samples

    from tfmon.api import program
    from tfmon.probes.find_gpus import GpuSearch

    claims = tmp_path / "claims"
    monkeypatch.setattr(program, "find_gpus", lambda python: GpuSearch(GPUS[:4]))
    monkeypatch.setattr(program, "look", lambda gpus: samples(1, gpus=4))
    monkeypatch.setattr(program, "choose_probes", lambda lanes, gpus: [])
    monkeypatch.setenv("FASTER", "devices=2:1.7 devices=4:2.6")
    monkeypatch.setenv("CLAIMS", str(claims))
    words = ("--over", "gpus=1,2,4,8", "--set", "batch_scope=per-replica", "--until-ci", "8%", "--slice", "0.2")
    done = tfmon("sweep", "small-dense", *words, "--json", "--record", tmp_path / "x.sweep")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["best"] == {"gpu": {"gpus": 4}}
    four, two, one, eight = found["combinations"]
    assert (two["settings"], two["state"], one["state"]) == ({"gpus": 2}, "measured", "baseline")
    assert four["ratio_ci95"][0] < 2.6 < four["ratio_ci95"][1]
    assert four["learns_differently_by"] == ["batch_size"], "each GPU has a batch of its own"
    assert (eight["state"], eight["reason"]) == ("refused", "8xgpu is not there: there are 4 GPUs")
    assert [entry["devices"] for entry in found["scaling"]] == [2, 4]
    assert "2 GPUs are 1." in found["text"][1] and "% of linear; 95 % CI" in found["text"][1]
    seen = {
        tuple(at for at, gpu in enumerate(GPUS) if gpu.uuid in line) for line in claims.read_text().splitlines()
    }
    assert (1,) in seen and len(seen) == 3
    assert all(1 in places for places in seen), "the idlest one is among the idlest two"


@pytest.mark.process
def test_a_host_and_this_machine_share_the_combinations(tfmon, scripted, tmp_path, monkeypatch):
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


TWO = ("--over", "batch_size=16,64")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("small-dense", *TWO, "--", "python", "train.py"), "sweep a scenario, or a command"),
        (("small-dense", "--over", "batch_size=16,many"), "batch_size=many is not possible"),
        (("small-dense", "--over", f"batch_size={','.join(map(str, range(1, 3_000)))}"), "2000 is the most"),
        (("small-dense", *TWO, "--on", "gpu"), "no driver"),
        (("small-dense", "--over", "gpus=1,2"), "1xgpu is not there: no driver"),
        (("small-dense", "--over", "gpus=1,2", "--on", "gpu:0"), "--on gpu:0 has no number of gpus"),
        (("small-dense", "--over", "cpus=1,2", "--on", "cpu,2xcpu"), "--on 2xcpu has no number of cpus"),
        (("small-dense", "--over", "cpus=1,2", "--set", "cpus=2"), "there is no knob 'cpus'"),
        (("small-dense", *TWO, "--on", "cpu,"), "is not a place"),
        (("small-dense", *TWO, "--on", "cpu*2"), "only a Ray cluster has a place several times"),
        (("small-dense", *TWO, "--until-ci", "0.1%"), "not a percentage from 1% to below 100%"),
        (("small-dense", *TWO, "--record", "/nowhere/x"), "/nowhere/x cannot be written"),
        (("--resume",), "there is no sweep in "),
        (("--resume", "x", "--limit", "9", "--slice", "1", *TWO), "leave --over and --limit and --slice out"),
        (("small-dense", "--limit", "2", *TWO), "--limit 3 is the least, or a shorter --slice"),
    ],
)
def test_what_cannot_be_swept_gets_one_line_and_nothing_is_written(tfmon, tmp_path, monkeypatch, words, said):
    monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path / "recordings"))
    done = tfmon("sweep", *words, "--headless")
    assert done.code in (2, 3) and said in done.err, done
    assert not list(tmp_path.glob("sweeps/*"))


def test_a_file_of_another_scenario_or_of_one_that_has_changed_is_refused(tfmon, tmp_path):
    from dataclasses import replace

    from support.sweeps import planned

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
