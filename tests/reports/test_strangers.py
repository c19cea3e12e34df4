"""Other people's users and command lines are in the owner's files, and in no file for others."""

import json
from dataclasses import replace

from support.recordings import record
from support.results import to_json
from support.shared_gpu import ANA, shared_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.lane_events import LaneFailed
from tfmon.reports.recorded_numbers import samples_of
from tfmon.reports.secrets import HIDDEN, hider, other_processes

from .pages import page_of


def happened():
    """Ana's process takes half of the GPU, and in the end its memory."""
    demo = shared_demo([0, 50, 50, 50])
    message = "out of memory: net.py:9: ResourceExhaustedError: OOM"
    demo.session.accept(LaneFailed(lane="gpu:0", at_ns=demo.clock(), kind="out_of_memory", message=message))
    return demo


def test_a_report_tells_what_others_took_but_not_who_they_are(tmp_path):
    record(tmp_path / "race.jsonl", happened)
    handed_on, kept = (page_of(tmp_path / "race.jsonl", everything=everything) for everything in (False, True))
    assert "another process took 50 % of gpu:0" in handed_on and HIDDEN in handed_on
    assert "another process holds 60.0 of the 80.0 GiB" in handed_on
    assert ANA.command not in handed_on and "ana:" not in handed_on
    assert f"(ana: {ANA.command})" in kept


def test_the_json_of_a_race_says_who_for_its_owner_and_an_export_has_numbers_only():
    found = analyse(happened().session.snapshot())
    assert ANA.command in json.dumps(to_json(found))
    hide = hider({"node7"}, other_processes(found.snapshot))
    assert hide("the most: ana: python train.py --epochs 300; banana") == f"the most: {HIDDEN}: {HIDDEN}; banana"
    (gpu,) = found.snapshot.gpus
    names = {sample.name for sample in samples_of(gpu)}
    assert {sample.subject for sample in samples_of(replace(gpu, hidden=True))} == {"hidden gpu:0"}
    assert "busy_pct" in names and not {name for name in names if "shares" in name or "process" in name}
