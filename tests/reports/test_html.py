"""Reports as files: what is in them, what stays out, and what bad input is told."""

from __future__ import annotations

import json
import re

import pytest
from support import long_race as lone_race
from support.recordings import RECORDED, long_race, record
from support.ui import GPU_MACHINE, Demo, changed_ten_times, crossover_demo, hosts_demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.events import LaneStarted
from tfmon.model.readings import HostSample
from tfmon.model.spec import LaneSpec
from tfmon.recordings import writer
from tfmon.reports import charts, html
from tfmon.reports.gather import gather
from tfmon.reports.html import HIDDEN, hider

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


class TestWhatIsInIt:
    def test_the_figures_are_those_of_the_race(self, tmp_path):
        _, end = record(tmp_path / "race.jsonl", racing_demo)
        page = page_of(tmp_path / "race.jsonl")
        text, result = visible(page), data_of(page, "tfmon-result")
        assert analyse(end).verdict.text in text
        assert result["verdict"]["text"].startswith(analyse(end).verdict.text)
        assert [lane["examples_per_s"] for lane in result["lanes"]] == [
            lane.steady.examples_per_s for lane in end.lanes
        ]
        assert "batch_size 20" in text and "AMD EPYC 9554" in text and "TensorFlow 2.21.0" in text
        for heading in ("Throughput over time", "Step times", "Where the time goes", "GPU load", "Settings"):
            assert heading in text

    def test_every_change_is_in_it_as_it_was_on_the_screen(self, tmp_path, run):
        demo, _ = record(tmp_path / "race.jsonl", changed_ten_times)
        page = page_of(tmp_path / "race.jsonl")
        marked = run("export", tmp_path / "race.jsonl", "--markdown")[1]
        rows = [row.cells(demo.session.snapshot()) for row in analyse(demo.session.snapshot()).history]
        assert len(rows) == 11
        for row in rows:
            assert " ".join(" ".join(row).split()) in visible(page)
            assert f"| {' | '.join(row)} |" in marked

    def test_every_window_is_in_the_throughput(self, tmp_path):
        record(tmp_path / "race.jsonl", racing_demo)
        found = gather(tmp_path / "race.jsonl")
        for lane in found.end.lanes:
            assert sum(one.examples for one in found.windows[lane.spec.name]) == lane.totals.examples
            gone = sum(bool(one.reason) for one in found.windows[lane.spec.name])
            assert gone == lane.measurements.windows - sum(one.steady for one in lane.points), (
                "windows that do not count"
            )

    def test_what_a_late_reading_discards_is_shaded(self, tmp_path):
        def swaps() -> Demo:
            demo = Demo(mode="turns").go().race(8)
            for swapped in (0.0, 9e6):
                demo.clock.ahead(0.4)
                demo.session.accept(
                    HostSample(
                        at_ns=demo.clock(), cpu_pct=100.0, memory_used_bytes=1.0, memory_total_bytes=2.0,
                        swap_in_bytes_per_s=swapped,
                    )
                )  # fmt: skip
                demo.race(2)
            return demo

        _, end = record(tmp_path / "race.jsonl", swaps)
        found = gather(tmp_path / "race.jsonl")
        for lane in end.lanes:
            shaded = [one.at_ns for one in found.windows[lane.spec.name] if "swapping" in one.reason]
            assert len(shaded) == lane.measurements.discarded.get("swapping", 0)
        assert any(lane.measurements.discarded.get("swapping") for lane in end.lanes)

    def test_a_crossover_has_its_curve_and_its_table(self, tmp_path):
        record(tmp_path / "race.jsonl", crossover_demo)
        page = page_of(tmp_path / "race.jsonl")
        assert "Crossover" in visible(page) and "not possible here" in visible(page)
        specs = data_of(page, "tfmon-charts").values()
        curve = next(one for one in specs if "batch size" in json.dumps(one["layer"][-1]["encoding"]["x"]))
        assert [row["t"] for row in curve["layer"][-1]["data"]["values"] if row["s"] == "C"] == [
            8, 16, 32, 64, 128,
        ]  # fmt: skip

    def test_no_line_is_drawn_across_a_time_in_which_nothing_trained(self, tmp_path):
        def rests() -> Demo:
            demo = Demo(mode="turns").go()
            for _ in range(2):
                demo.race(6)
                demo.clock.ahead(5)
            demo.race(6)
            return demo

        record(tmp_path / "race.jsonl", rests)
        charts = data_of(page_of(tmp_path / "race.jsonl"), "tfmon-charts").values()
        for title in ("examples/s", "loss"):
            drawn = next(
                layer["data"]["values"]
                for chart in charts
                for layer in chart["layer"]
                if layer.get("encoding", {}).get("y", {}).get("title") == title and "layer" in layer
            )
            gaps = [row for row in drawn if row["v"] is None]
            assert len(gaps) == 4, "two rests of two lanes"

    def test_old_windows_that_were_added_up_are_one_line(self, tmp_path, monkeypatch):
        monkeypatch.setattr(writer, "BLOCK_S", 30.0)
        monkeypatch.setattr(writer, "STAGES", ((30.0, 1.0), (60.0, 15.0)))
        lone_race.write(tmp_path / "race.jsonl.gz", 200)
        drawn = [
            layer["data"]["values"]
            for chart in data_of(page_of(tmp_path / "race.jsonl.gz"), "tfmon-charts").values()
            for layer in chart["layer"]
            if "layer" in layer and "data" in layer
        ]
        assert len(drawn[0]) < 150, "the windows of the first minutes were added up"
        assert not [row for rows in drawn for row in rows if row["v"] is None], "nothing rested"

    def test_an_axis_of_small_values_is_in_plain_numbers(self):
        def axis(*values: float) -> dict:
            points = [(float(at), value, "", "") for at, value in enumerate(values)]
            chart = charts.over_time([charts.Series("A", "A", 0, points)], "loss", "")
            return chart["layer"][-1]["encoding"]["y"]["axis"]

        assert axis(0.7, 0.2) == {} and axis(7_000.0, 0.2) == {"format": "~s"}


class TestWhatStaysOut:
    def test_names_secrets_and_markup_of_a_race(self, tmp_path, run):
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

    def test_names_of_other_machines(self, tmp_path, run):
        record(tmp_path / "race.jsonl", hosts_demo)
        page = page_of(tmp_path / "race.jsonl")
        for text in (page, run("export", tmp_path / "race.jsonl", "--markdown")[1]):
            assert "gpu2" not in text and "gpu3" not in text and f"{HIDDEN}/gpu:0" in text
        assert "gpu2/gpu:0" in run("export", tmp_path / "race.jsonl", "--markdown", "--everything")[1]

    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("--api-key=abc --lr 0.1", f"--api-key={HIDDEN} --lr 0.1"),
            ("--wandb_token abc", f"--wandb_token {HIDDEN}"),
            (
                "--wandb-key wk_abc --key=v -p hunter --pass x",
                f"--wandb-key {HIDDEN} --key={HIDDEN} -p {HIDDEN} --pass {HIDDEN}",
            ),
            ("WANDB_KEY=abc train.py -p 8080 --key-dim 64", f"WANDB_KEY={HIDDEN} train.py -p 8080 --key-dim 64"),
            (
                "-p2222 -pHunter2 -phunter --tok x COMET_KEY: x",
                f"-p2222 -p{HIDDEN} -p{HIDDEN} --tok {HIDDEN} COMET_KEY: {HIDDEN}",
            ),
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
    def test_texts(self, text, left):
        assert hider(["box-3.example.org"])(text) == left


class TestFiles:
    def test_nothing_is_written_over_without_force_and_nothing_is_lost_with_it(self, run, tmp_path, monkeypatch):
        target = tmp_path / "race.html"
        target.write_text("mine")
        code, _, said = run("export", RECORDED, "--html", target)
        assert (code, target.read_text()) == (2, "mine") and "is there already" in said and "--force" in said
        assert run("export", RECORDED, "--html", target, "--force")[0] == 0
        assert target.read_text().startswith("<!DOCTYPE html>")
        assert [path.name for path in tmp_path.iterdir()] == ["race.html"]

    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            (("--html", "."), "is a folder"),
            (("--html", "none/race.html"), "there is no folder none"),
            (("--html", "/proc/race.html"), "/proc/race.html: "),
            (("--markdown", "--json"), "needs one of"),
        ],
    )
    def test_bad_targets_get_one_line(self, run, words, problem):
        code, out, said = run("export", RECORDED, *words)
        assert (code, out) == (2, "") and problem in said and said.count("\n") <= 2

    def test_a_recording_that_is_cut_off_is_reported_as_far_as_it_goes(self, run, tmp_path):
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(RECORDED.read_bytes()[:-700])
        code, _, said = run("export", torn, "--html", "torn.html")
        assert code == 0 and "is cut off at its end" in said
        assert "is cut off at its end" in visible((tmp_path / "torn.html").read_text())

    def test_a_race_without_a_window_says_so(self, run, tmp_path):
        record(tmp_path / "empty.jsonl", Demo)
        assert run("export", tmp_path / "empty.jsonl", "--html", "empty.html")[0] == 0
        assert "no verdict yet" in visible((tmp_path / "empty.html").read_text())

    def test_without_the_extra_it_says_what_to_install(self, run, monkeypatch, tmp_path):
        monkeypatch.undo()
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(Exception, match="extra `report`") as problem:
            html.charts_script()
        assert "pip install 'tfmon[report]'" in problem.value.hint

    def test_diff_writes_the_comparison_of_recordings_and_of_json(self, run, tmp_path):
        (tmp_path / "race.json").write_text(run("replay", RECORDED, "--json")[1])
        for number, second in enumerate((RECORDED, "race.json")):
            code, out, said = run("diff", RECORDED, second, "--html", f"{number}.html")
            assert code == 0 and "examples/s" in out and f"wrote {number}.html" in said
            page = (tmp_path / f"{number}.html").read_text()
            assert "two races compared" in visible(page) and "second / first" in visible(page)
            assert data_of(page, "tfmon-result")["lanes"]
        code, out, said = run("diff", RECORDED, RECORDED, "--html", "0.html")
        assert (code, out) == (2, "") and "--force" in said

    def test_the_last_run_is_the_default(self, run, tmp_path):
        code, _, said = run("export", "--markdown")
        assert code == 2 and "there is no last" in said


def test_charts_do_not_keep_every_window_of_a_long_race(tmp_path):
    """`make bench` measures how long half an hour takes."""
    record(tmp_path / "race.jsonl", lambda: long_race(600))
    page = page_of(tmp_path / "race.jsonl")
    assert data_of(page, "tfmon-result")["seconds"] > 590
    assert len(page.encode()) / 2**20 <= 0.7
