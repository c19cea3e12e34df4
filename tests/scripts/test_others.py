"""JAX and PyTorch that train without `tfmon.report` are noticed; JAX, which has no hook, also by being loaded."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import pytest
from support.waiting import PATIENCE_S

from tfmon.script import watching
from tfmon.script.watching import watch_other


def jax() -> SimpleNamespace:
    def grad(function):
        return lambda value: 2 * function(value)

    return SimpleNamespace(__name__="jax", grad=grad, value_and_grad=grad)


@pytest.fixture
def told(monkeypatch) -> queue.Queue[str]:
    monkeypatch.setattr(watching, "ENOUGH_S", 0.01)
    monkeypatch.setattr(watching, "LOADED_S", 3_600)
    monkeypatch.setattr(watching, "_told", set())
    reasons: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(watching, "_not_reported", reasons.put)
    return reasons


def test_gradients_by_jax_are_told_once_with_the_lines_to_add_and_stay_what_they_are(told):
    library = jax()
    watch_other(library)
    assert told.empty()
    assert [library.grad(lambda x: x)(3), library.value_and_grad(lambda x: x)(4)] == [6, 8]
    reason = told.get(timeout=PATIENCE_S)
    assert reason.startswith("JAX trains here. Add: from tfmon import report") and "report.step(" in reason
    with pytest.raises(queue.Empty):
        told.get(timeout=0.1)


def test_jax_that_is_loaded_and_reports_nothing_is_told(told, monkeypatch):
    monkeypatch.setattr(watching, "LOADED_S", 0.01)
    watch_other(jax())
    assert told.get(timeout=PATIENCE_S).startswith(
        "JAX is loaded, and nothing tells tfmon of its steps. Add: from tfmon"
    )
