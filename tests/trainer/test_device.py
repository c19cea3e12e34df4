"""The device of a lane on a machine without a GPU."""

import ctypes
from typing import Any

import pytest

from tfmon.trainer import runtime

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]


class Cuda:
    """A CUDA library with one device, whose calls return these error codes."""

    def __init__(self, init: int = 0, get: int = 0, uuid: int = 0) -> None:
        self.cuInit = lambda _flags: init
        self.cuDeviceGet = lambda _device, _index: get
        self.cuDeviceGetUuid_v2 = lambda raw, _device: raw.__setitem__(slice(None), range(16)) or uuid


def without_library(_name: str) -> Any:
    raise OSError("libcuda.so.1: cannot open shared object file")


def test_the_uuid_is_as_the_driver_writes_it_and_none_where_cuda_does_not_tell_it(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Cuda())
    assert runtime.gpu_uuids() == ("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",)
    assert len(runtime.gpu_uuids(3)) == 3
    for call in ("init", "get", "uuid"):
        monkeypatch.setattr(ctypes, "CDLL", lambda _name, call=call: Cuda(**{call: 100}))
        assert runtime.gpu_uuids() == ()
    for library in (lambda _name: object(), without_library):  # a library that is too old, and a missing one
        monkeypatch.setattr(ctypes, "CDLL", library)
        assert runtime.gpu_uuids() == ()


def test_a_lane_on_the_cpu_hides_the_gpus_and_has_no_gpus_name(tf):
    assert runtime.choose_device("cpu") == ""
    assert tf.config.get_visible_devices("GPU") == []


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_memory_that_tensorflow_does_not_tell_is_none_and_not_zero(tf, kind):
    assert runtime.gpu_memory(kind) == (None, None)
