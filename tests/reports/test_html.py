"""Reports as files: their content, data that stays out, and the messages about bad input."""

import re
from collections import Counter

import pytest
from support import long_race as lone_race
from support.recordings import RECORDED, long_race, record
from support.ui import GPU_MACHINE, Demo, hosts_demo

from tfmon.model import windows
from tfmon.model.events import LaneStarted
from tfmon.model.spec import LaneSpec
from tfmon.recordings import writer
from tfmon.reports import html
from tfmon.reports.secrets import HIDDEN, hider

from .pages import data_of, page_of, visible

HOSTILE = "</script><script>document.title='taken'</script><b onmouseover=alert(1)>\"'&"
SECRETS = ("hunter2", "hf_abcdefghijklmnop", "s3cr3t", "alice", "node7", "0123456789abcdef")
COMMAND = (
    "python /home/alice/train.py --api-key=hunter2 --hub-token hf_abcdefghijklmnop "
    "--data https://bob:s3cr3t@node7.example.org/set AUTH_TOKEN=0123456789abcdef " + HOSTILE
)


def hostile_race() -> Demo:
    """Race a script whose command, output and failure hold markup and secrets."""
    demo = Demo([LaneSpec("cpu"), LaneSpec("gpu:0", {"note": HOSTILE})], GPU_MACHINE).go().race(4)
    demo.session.accept(
        LaneStarted(lane="cpu", at_ns=demo.clock(), pid=9, settings={"batch_size": 10}, command=COMMAND)
    )
    demo.equip("cpu")
    demo.build("cpu")
    demo.enter("cpu", "racing")
    demo.race(4)
    demo.fail("cpu", f"ValueError: /home/alice/x on node7: {HOSTILE}", "export API_KEY=hunter2")
    return demo


def charted(page: str) -> list[tuple[str, list[dict]]]:
    """Return the title of the axis and the values of each chart with lines."""
    return [
        (layer["encoding"]["y"]["title"], layer["data"]["values"])
        for chart in data_of(page, "tfmon-charts").values()
        for layer in chart["layer"]
        if "layer" in layer and "data" in layer
    ]


def test_no_line_is_drawn_across_a_time_in_which_nothing_trained(tmp_path):
    def rests() -> Demo:
        demo = Demo(mode="turns").go()
        for _ in range(2):
            demo.race(6)
            demo.clock.ahead(5)
        demo.race(6)
        return demo

    record(tmp_path / "race.jsonl", rests)
    charts = dict(charted(page_of(tmp_path / "race.jsonl")))
    for title in ("examples/s", "loss"):
        assert len([row for row in charts[title] if row["v"] is None]) == 4, "two rests of two lanes"


def test_old_windows_that_were_added_up_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "RARE_S", 60.0)
    monkeypatch.setattr(windows, "MOST_RECENT", 100)
    lone_race.write(tmp_path / "race.jsonl.gz", 200)
    drawn = [rows for _, rows in charted(page_of(tmp_path / "race.jsonl.gz"))]
    assert len(drawn[0]) < 160, "the windows after the first minute were added up"
    assert not [row for rows in drawn for row in rows if row["v"] is None], "nothing rested"


def test_charts_do_not_keep_every_window(tmp_path):
    """`make bench` measures how long a report of half an hour takes."""
    record(tmp_path / "race.jsonl", lambda: long_race(40))
    page = page_of(tmp_path / "race.jsonl")
    assert data_of(page, "tfmon-result")["seconds"] > 38
    charts = dict(charted(page))
    for title in ("examples/s", "loss", "% of a core"):
        assert max(Counter(row["s"] for row in charts[title]).values()) <= 41, "a point a second"


def test_names_secrets_and_markup_of_a_race_stay_out(tmp_path, run):
    record(tmp_path / "race.jsonl", hostile_race)
    page = page_of(tmp_path / "race.jsonl")
    marked = run("export", tmp_path / "race.jsonl", "--markdown")[1]
    for secret in SECRETS:
        assert secret not in page and secret not in marked, secret
    assert HIDDEN in page
    assert "document.title=" in page and "<script>document" not in page and "<b onmouseover" not in page
    assert not re.search(r"(?<!\\)<", "".join(marked.split("```")[::2])), "outside of code all is escaped"
    everything = page_of(tmp_path / "race.jsonl", everything=True)
    assert all(secret in everything for secret in ("hunter2", "alice", "node7"))
    assert "<script>document" not in everything


def test_names_of_other_machines_stay_out(tmp_path, run):
    record(tmp_path / "race.jsonl", hosts_demo)
    page = page_of(tmp_path / "race.jsonl")
    for text in (page, run("export", tmp_path / "race.jsonl", "--markdown")[1]):
        assert "gpu2" not in text and "gpu3" not in text and f"{HIDDEN}/gpu:0" in text
    assert "gpu2/gpu:0" in run("export", tmp_path / "race.jsonl", "--markdown", "--everything")[1]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("--api-key=abc --lr 0.1", f"--api-key={HIDDEN} --lr 0.1"),
        ("--wandb_token abc --pass x COMET_KEY: x", f"--wandb_token {HIDDEN} --pass {HIDDEN} COMET_KEY: {HIDDEN}"),
        ("--wandb-key wk_abc --key=v -p hunter", f"--wandb-key {HIDDEN} --key={HIDDEN} -p {HIDDEN}"),
        ("WANDB_KEY=abc train.py -p 8080 --key-dim 64", f"WANDB_KEY={HIDDEN} train.py -p 8080 --key-dim 64"),
        ("-p2222 -pHunter2 -phunter --tok x", f"-p2222 -p{HIDDEN} -p{HIDDEN} --tok {HIDDEN}"),
        ("-prefetch 2 -path=x tokens=5 tokens=5a", f"-prefetch 2 -path=x tokens=5 tokens={HIDDEN}"),
        ("--id wJalrXUtnFEMIK7MDENGbPxRfiCY9KEY12", f"--id {HIDDEN}"),
        ("--run 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", f"--run {HIDDEN}"),
        ("StatefulPartitionedCall2 ampere_sgemm_32x128_tn", "StatefulPartitionedCall2 ampere_sgemm_32x128_tn"),
        ("PASSWORD='a b' python", f"PASSWORD={HIDDEN} python"),
        ('{"client_secret": "abc"}', f'{{"client_secret": {HIDDEN}}}'),
        ("Authorization: Bearer abcdefghij", f"Authorization: {HIDDEN}"),
        ("s3://key:abc@bucket/x", f"s3://{HIDDEN}@bucket/x"),
        ("redis://:ab@c@h/0 -u me:abc", f"redis://{HIDDEN}@h/0 -u me:{HIDDEN}"),
        ("https://h/x?sv=1&sig=a%2Fb&key=c", f"https://h/x?sv=1&sig={HIDDEN}&key={HIDDEN}"),
        ("AKIAABCDEFGHIJKLMNOP", HIDDEN),
        ("/home/bob/data and /Users/eve/x", "~/data and ~/x"),
        ("on box-3 and box-30", f"on {HIDDEN} and box-30"),
        ("box-3.example.org:22", f"{HIDDEN}:22"),
        ("batch_size=64 keras author tokens_per_s", "batch_size=64 keras author tokens_per_s"),
    ],
)
def test_secrets_in_texts_are_hidden(text, left):
    assert hider(["box-3.example.org"])(text) == left


def test_nothing_is_written_over_without_force_and_nothing_is_lost_with_it(run, tmp_path, monkeypatch):
    target = tmp_path / "race.html"
    target.write_text("mine")
    code, _, said = run("export", RECORDED, "--html", target)
    assert (code, target.read_text()) == (2, "mine") and "is there already" in said and "--force" in said
    assert run("export", RECORDED, "--html", target, "--force")[0] == 0
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["race.html"]


def test_a_recording_that_is_cut_off_is_reported_as_far_as_it_goes(run, tmp_path):
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(RECORDED.read_bytes()[:-700])
    code, _, said = run("export", torn, "--html", "torn.html")
    assert code == 0 and "is cut off at its end" in said
    assert "is cut off at its end" in visible((tmp_path / "torn.html").read_text())


def test_without_the_extra_it_says_what_to_install(run, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Exception, match="extra `report`") as problem:
        html.charts_script()
    assert "pip install 'tfmon[report]'" in problem.value.hint
