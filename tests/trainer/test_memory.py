"""Data that do not fit are refused before they are copied; where nothing is known, nothing is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfmon.trainer import Scenario, pipeline
from tfmon.trainer.pipeline import MemoryShortageError, Pipelines, check_copy, free_bytes

pytestmark = pytest.mark.trainer
GIB = 2**30


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_least_of_machine_and_control_group_is_free(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None
    write(tmp_path, "proc/meminfo", f"MemTotal: {8 * 2**20} kB\nMemAvailable:  {4 * 2**20} kB\n")
    assert free_bytes(tmp_path) == 4 * GIB
    for name, text in (
        ("max", str(2 * GIB)),
        ("current", str(GIB)),
        ("stat", f"anon 1\ninactive_file {GIB // 2}\n"),
    ):
        write(tmp_path, f"sys/fs/cgroup/memory.{name}", text)
    assert free_bytes(tmp_path) == 1.5 * GIB
    write(tmp_path, "sys/fs/cgroup/pipeline.max", "max\n")
    assert free_bytes(tmp_path) == 4 * GIB


def test_version_1_of_control_groups_is_read_too(tmp_path: Path) -> None:
    for name, value in (("limit_in_bytes", 3 * GIB), ("usage_in_bytes", GIB)):
        write(tmp_path, f"sys/fs/cgroup/memory/memory.{name}", f"{value}\n")
    assert free_bytes(tmp_path) == 2 * GIB


def test_a_copy_that_does_not_fit_is_refused_with_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "free_bytes", lambda: 1_000)
    check_copy([np.zeros(100), "no array"])
    with pytest.raises(
        MemoryShortageError, match=r"the data take 0\.0 GiB, .* 0\.0 GiB of memory are free: fewer"
    ):
        check_copy([np.zeros(100), np.zeros(100)])


class Prepared(Scenario):
    """Examples of 10 bytes that become 400 kB each."""

    def data(self) -> Any:
        return np.zeros((1_000, 10), np.uint8)

    def prepare(self, x: Any) -> Any:
        import tensorflow as tf

        return tf.zeros([100_000], tf.float32)


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize(
    ("free", "cache", "fits"), [(GIB, True, True), (10**8, True, False), (10**8, False, True)]
)
def test_a_cache_that_does_not_fit_is_refused_and_a_pipeline_without_it_is_not(
    free: int, cache: bool, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "free_bytes", lambda: free)
    settings = {"batch_size": 10, "prefetch": "off", "parallel_calls": "off", "cache": cache}
    pipelines = Pipelines(Prepared(settings))
    if fits:
        assert pipelines.open(settings).batch_examples == 10
    else:
        with pytest.raises(MemoryShortageError, match=r"the cache takes 0\.4 GiB, but 0\.1 GiB"):
            pipelines.open(settings)


@pytest.mark.usefixtures("tf")
def test_data_that_do_not_fit_twice_are_refused_before_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "free_bytes", lambda: 100)
    with pytest.raises(MemoryShortageError, match="the data take"):
        Pipelines(Prepared({"batch_size": 10}))
