"""What Prometheus gets of a race: names, labels and values, from a port or a file; and the dashboard for it."""

import json
import re
import socket
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.ui import CPU_MACHINE, Demo, racing_demo

from tfmon.api.metrics import RaceCollector, give_metrics
from tfmon.errors import UsageError

DASHBOARD = Path(__file__).parents[2] / "docs/grafana.json"


def samples(text: str) -> dict[str, dict[frozenset[str], float]]:
    """Return the values of each name, by the values of their labels."""
    result: dict[str, dict[frozenset[str], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            result.setdefault(sample.name, {})[frozenset(sample.labels.values())] = sample.value
    return result


def written(demo: Demo) -> str:
    registry = CollectorRegistry()
    registry.register(RaceCollector(demo.session.snapshot))
    return generate_latest(registry).decode()


def test_what_is_known_is_there_in_base_units_and_what_is_not_is_absent():
    demo = racing_demo()
    values = samples(written(demo))
    lane = demo.session.snapshot().lane("gpu:0")
    label = frozenset(("gpu:0", lane.title))
    assert values["tfmon_lane_steps_total"][label] == lane.totals.steps > 0
    assert values["tfmon_lane_examples_per_second"][label] == lane.recent().examples_per_s
    assert values["tfmon_lane_step_seconds"][label | {"50"}] == lane.steady.step_ms(0.5) / 1e3
    assert values["tfmon_lane_phase"][label | {"racing"}] == 1
    gpu = frozenset(("", "0", "GPU-1", "NVIDIA H200"))
    assert values["tfmon_gpu_busy_ratio"][gpu] == pytest.approx(0.06)
    assert values["tfmon_gpu_power_watts"][gpu] == 118
    assert "tfmon_gpu_temperature_celsius" not in values, "it was not read"
    low, value, high = (values["tfmon_lane_ratio"][frozenset(("cpu", end))] for end in ("low", "value", "high"))
    assert 1 < low < value < high
    assert set(samples(written(Demo(machine=CPU_MACHINE)))) == {"tfmon_lane_steps_total", "tfmon_lane_phase"}


def test_a_port_is_served_on_this_machine_alone_and_one_that_is_taken_is_told():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    demo = racing_demo()
    end = give_metrics(str(port), demo.session.snapshot)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert samples(answer.read().decode()) == samples(written(demo))
        with pytest.raises(UsageError, match=f"--metrics {port}: Address already in use"):
            give_metrics(str(port), demo.session.snapshot)
    finally:
        end()


def test_a_file_has_the_end_of_the_race_and_what_cannot_be_written_is_told(tmp_path):
    demo, path = racing_demo(), tmp_path / "tfmon.prom"
    end = give_metrics(str(path), demo.session.snapshot)
    demo.fail("gpu:0")
    end()
    assert frozenset(("gpu:0", "failed")) in samples(path.read_text())["tfmon_lane_phase"]
    with pytest.raises(UsageError, match="No such file or directory"):
        give_metrics(str(tmp_path / "none/x.prom"), demo.session.snapshot)


def test_without_the_client_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match="needs prometheus_client") as raised:
        give_metrics("9100", racing_demo().session.snapshot)
    assert "tfmon[metrics]" in raised.value.hint


def test_the_dashboard_asks_for_metrics_that_there_are():
    demo = racing_demo()
    names = set(re.findall(r"^# TYPE (\w+)", written(demo), re.M))
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert asked and {*re.findall(r"tfmon_\w+", " ".join(asked))} <= names
