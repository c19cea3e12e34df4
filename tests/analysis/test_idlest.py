"""Which GPU is the idlest, and whether one is free."""

from __future__ import annotations

from dataclasses import replace

from support.eight_gpus import GIB, samples

from tfmon.analysis.others import is_free, ranked, state, why
from tfmon.model.readings import Missing, ProcessName
from tfmon.probes.base import Gpu, absent_gpu

EIGHT = samples(1)


def order(found):
    return [sample.index for sample in ranked(found)]


def test_nobodys_gpus_come_first_and_those_without_memory_or_readings_last():
    # 1 is empty, 6 too but slightly busy; 4 has an idle process, 5 some work; 0, 3 and 7 are full, 2 is busy.
    assert order(EIGHT) == [1, 6, 4, 5, 2, 3, 0, 7]
    lost = absent_gpu(Gpu(1, "GPU-x", "lost", 1), 1, "the GPU is lost")
    assert order([lost, *EIGHT[2:]])[-1] == 1


def test_of_equal_ones_the_first_is_taken_and_of_equal_loads_the_one_with_more_memory():
    twins = [replace(EIGHT[1], index=index) for index in (4, 2, 3)]
    assert order(twins)[0] == 2
    roomier = replace(EIGHT[1], index=3, busy_pct=2.0, total_bytes=96.0 * GIB)
    assert order([*twins[:2], roomier])[0] == 3


def test_a_process_of_ours_is_nobody_else():
    mine = replace(EIGHT[5], processes={7006: ProcessName("me", "tfmon", ours=True)})
    assert order([EIGHT[4], mine])[0] == 5 and not is_free(mine)  # it is loaded


def test_free_is_what_has_no_process_no_load_and_no_memory_that_somebody_must_hold():
    assert [sample.index for sample in EIGHT if is_free(sample)] == [1, 6]
    empty = EIGHT[1]
    assert not is_free(replace(empty, busy_pct=12.0))
    assert not is_free(replace(empty, used_bytes=9.0 * GIB))  # a container hides whose it is
    assert is_free(replace(empty, busy_pct=Missing("split up")))
    assert not is_free(absent_gpu(Gpu(1, "GPU-x", "lost", 1), 1, "the GPU is lost"))


def test_the_words():
    assert why(EIGHT[1:2], 8) == "the idlest of 8 GPUs: no process, 0 % busy, 80 GiB free"
    assert state(EIGHT[0]) == "2 processes, 97 % busy, 4.0 GiB free"
    assert state(EIGHT[0], named=True) == "2 processes of ana, 97 % busy, 4.0 GiB free"
    hidden = replace(EIGHT[1], no_processes_reason="WSL2 tells none")
    assert state(hidden).startswith("processes not listed")
