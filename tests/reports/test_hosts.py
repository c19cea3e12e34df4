"""The facts about hosts, as text and as JSON."""

import json
from dataclasses import replace

from support.ui import HOSTS

from tfmon.lanes.remote.connection import Surveyed
from tfmon.lanes.remote.remote_host import Host
from tfmon.model.events import LinkMeasured
from tfmon.model.race import Machine
from tfmon.reports.findings import hosts_to_json, hosts_to_text
from tfmon.reports.text import plain

HERE = Machine(hostname="desk", boot="desk-boot")
GPU2 = replace(HOSTS["gpu2"], gpus=("NVIDIA L4", "NVIDIA H200"), quota_cores=16.0, power_limits_w=(None, 72.0))
LINK = LinkMeasured(at_ns=1, host="gpu2", round_trip_ns=840_000, offset_ns=-3_600_000_120_000, error_ns=33_000)
USABLE = Surveyed(Host("gpu2"), machine=GPU2, python="/usr/bin/python3", link=LINK)
BARE = Surveyed(
    Host("me@gpu3"),
    machine=Machine(boot="gpu3-boot", cores=8, usable_cores=8, python="3.11.2", no_gpu="\x1b[2Jno driver\nhere"),
    python="/opt/py\x1b[31m/python",
)
LOST = Surveyed(Host("gpu4"), error="gpu4 cannot be reached: \x9b2Jno route", hint="`ssh gpu4 true` tries it")


def test_what_is_missing_is_said_and_nothing_steers_the_terminal():
    text = hosts_to_text([BARE], HERE)
    assert "\x1b" not in text and "\x9b" not in text
    assert 'me@gpu3: /opt/py/python has no TensorFlow; python = "~/…/bin/python" under [hosts."me@gpu3"]' in text
    assert "me@gpu3: no GPU: no driver here\n" in text + "\n"
    assert text.splitlines()[1].split()[-2:] == ["n/a", "n/a"], "an unknown clock is no offset of 0"
    assert plain(hosts_to_text([BARE, USABLE], HERE)).isascii()


def test_names_of_one_machine_are_told():
    def named(name: str, boot: str) -> Surveyed:
        return Surveyed(Host(name), machine=Machine(boot=boot, tensorflow="2.21.0"))

    hosts = [named("a", "one"), named("b", "desk-boot"), named("c", "one"), named("d", ""), named("e", "")]
    notes = hosts_to_text(hosts, HERE).partition("\n\n")[2].splitlines()
    assert notes[0] == "a and c: one machine; their lanes take turns"
    assert notes[1:] == ["b: this machine; lanes here and there take turns"]
    unknown = hosts_to_text([named("d", ""), named("e", "")], Machine())
    assert "machine" not in unknown, "what is unknown is not the same"


def test_json_has_a_number_or_null_for_everything():
    written = json.loads(json.dumps(hosts_to_json([USABLE, BARE, LOST], HERE), allow_nan=False))["hosts"]
    first, second, third = written
    assert (first["reachable"], first["clock_offset_ms"], first["round_trip_ms"]) == (True, -3_600_000.12, 0.84)
    assert (first["power_limits_w"], first["quota_cores"]) == ([None, 72.0], 16.0)
    assert (second["tensorflow"], second["clock_offset_ms"], second["gpus"]) == (None, None, [])
    assert (third["reachable"], third["hint"]) == (False, "`ssh gpu4 true` tries it")
    assert [one.get("is_this_machine") for one in written] == [False, False, None]
