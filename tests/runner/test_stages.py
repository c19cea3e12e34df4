"""How long the stages of getting ready took before: learnt, remembered by machine, and never a reason to fail."""

from __future__ import annotations

import json

import pytest
from support.ui import Demo

from tfmon.model.events import LaneStarted
from tfmon.runner.stages import KEEP, StageTimes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "stages.json"


def get_ready(path, imports_s: float = 6.0, machine: str = "node7", **more) -> Demo:
    """Let a lane get ready, and remember how long that took."""
    demo = Demo()
    times = StageTimes(path, machine)
    times.listen(demo.session)
    demo.session.accept(LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={}, **more))
    for phase, then_s in (
        ("importing", imports_s), ("building", 0.5), ("tracing", 1.5), ("warming up", 0.75), ("ready", 0),
    ):  # fmt: skip
        if phase == "importing":
            demo.clock.ahead(0.25)
        demo.enter("cpu", phase)
        demo.clock.ahead(then_s)
    times.save()
    return demo


def usual(path, machine: str = "node7") -> dict[str, dict[str, float]]:
    found = StageTimes(path, machine).usual(Demo().session.snapshot())
    return {lane: dict(stages) for lane, stages in found.items()}


def test_the_median_of_what_stages_took_is_remembered_for_the_machine_and_the_device(path):
    assert usual(path) == {"cpu": {}, "gpu:0": {}}
    for imports_s in (6.0, 30.0, 7.0):
        get_ready(path, imports_s)
    learnt = {"starting": 0.25, "importing": 7.0, "building": 0.5, "tracing": 1.5, "warming up": 0.75}
    assert usual(path) == {"cpu": learnt, "gpu:0": {"starting": 0.25, "importing": 7.0}}
    assert usual(path, "another") == {"cpu": {}, "gpu:0": {}}
    get_ready(path, 1.0, "another")
    assert usual(path)["cpu"] == learnt, "another machine's file is kept"


def test_only_the_last_are_kept_and_a_loaded_spare_worker_or_a_script_is_no_measurement(path):
    for imports_s in [50.0] * KEEP + [5.0] * KEEP:
        get_ready(path, imports_s)
    assert usual(path)["cpu"]["importing"] == 5.0
    get_ready(path, 0.01)
    assert (
        usual(path)["cpu"]["importing"] == 5.0 and 0.01 not in json.loads(path.read_text())["node7"]["importing"]
    )
    before = path.read_text()
    get_ready(path, 90.0, command="python train.py")
    assert path.read_text() == before


@pytest.mark.parametrize(
    "content", ["", "[1]", '{"node7": 3}', '{"node7": {"importing": ["a"]}}', '{"node7": {"importing": [-1]}}']
)
def test_a_file_of_another_form_counts_as_empty_and_is_replaced(path, content):
    path.parent.mkdir()
    path.write_text(content)
    assert usual(path)["cpu"] == {}
    get_ready(path)
    assert usual(path)["cpu"]["importing"] == 6.0


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path):
    (tmp_path / "state").write_text("a file")
    get_ready(tmp_path / "state" / "stages.json")
