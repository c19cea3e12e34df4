"""Scenario files: which ones are taken, and where in them something went wrong."""

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tfmon.model.requests import Assign, Stop
from tfmon.trainer.channel import Mailbox, Reporter
from tfmon.trainer.child import Failure, _in_user_code, _set_up_device, _train
from tfmon.trainer.scenario import load
from trainer.running import FakeReporter

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

HEAD = """
import numpy as np
import tensorflow as tf
from tfmon.trainer import Scenario

class Mine(Scenario):
    def data(self):
        return np.zeros((64, 4), np.float32), np.zeros((64, 1), np.float32)

    def model(self):
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model
"""


def failure(path: Path) -> Failure:
    """Train as a child does after a request to stop; return the failure."""
    settings = {"batch_size": 8, "prefetch": "off"}
    mailbox: Mailbox[Any] = Mailbox()
    mailbox.post(Stop())
    assign = Assign(scenario=str(path), device="cpu", settings=settings)
    with pytest.raises(Failure) as caught:
        _in_user_code(path, lambda: _train(path, assign, mailbox, cast("Reporter", FakeReporter())))
    return caught.value


def place(path: Path) -> str:
    """Return the place of the line that ends in `# here`, as an explanation names it."""
    lines = path.read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith("# here")]
    return f"{path.name}:{number}: "


@pytest.mark.parametrize(
    ("text", "what", "kind"),
    [
        ("import tfmon_has_no_such_module  # here\n", "ModuleNotFoundError: No module named", "scenario"),
        ("x = 1\nif x  # here\n", "SyntaxError: ", "scenario"),
        (
            HEAD + "    def step(self, model):\n"
            "        def train(x, y):\n"
            "            z = tf.matmul(x, y)  # here\n"
            "            return z\n"
            "        return train\n",
            "InvalidArgumentError: Matrix size-incompatible: In[0]: [8,4], In[1]: [8,1]",
            "scenario",
        ),
        (
            HEAD + "    def batches(self, examples, batch_size):\n"
            "        def fail(x):\n"
            "            raise KeyError('no label')  # here\n"
            "        def label(x, y):\n"
            "            return x, tf.ensure_shape(tf.numpy_function(fail, [y], tf.float32), [1])\n"
            "        return examples.map(label).batch(batch_size)\n",
            "KeyError: 'no label'",
            "scenario",
        ),
        (
            HEAD.replace("(64, 4), np.float32), np.zeros((64, 1), np.float32)",
                         "(2**44, 2**14), np.int8)  # here"),
            "MemoryError",
            "out_of_memory",
        ),
        (
            HEAD + "    def step(self, model):\n"
            "        def train(x, y):\n"
            "            raise tf.errors.ResourceExhaustedError(None, None, 'OOM')  # here\n"
            "        return train\n",
            "OOM",
            "out_of_memory",
        ),
    ],
    ids=["import", "syntax", "step", "mapped Python function", "memory of NumPy", "memory of TensorFlow"],
)  # fmt: skip
def test_an_error_is_placed_in_the_users_file(tf, scenario_file, text, what, kind):
    path = scenario_file(text)
    error = failure(path)
    full = kind == "out_of_memory"
    assert error.kind == kind
    assert error.message.startswith(f"{'out of memory: ' if full else ''}{place(path)}")
    assert what in error.message
    assert "\n" not in error.message
    assert ("batch size" in error.hint) is full


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("None", "`data` returns nothing, and the default step needs examples; return a pair"),
        ("(x for x in [1])", "`data` returns a generator, which can be read once; return a pair"),
        ("np.zeros((64, 4)), np.zeros((60, 1))", "`data` returns arrays of 64 and 60 examples; each must have"),
        ("np.zeros((0, 4)), np.zeros((0, 1))", "`data` returns no examples"),
        ("tf.data.Dataset.from_tensor_slices(np.zeros((64, 4))).batch(8).prefetch(1)", "`data` returns batches;"),
        (
            "np.zeros((64, 3), np.float32), np.zeros((64, 1), np.float32)",
            "value 4, but received input with shape (None, 3)",
        ),
    ],
)
def test_data_that_cannot_be_trained_on_are_refused_in_a_line(tf, scenario_file, data, told):
    good = "np.zeros((64, 4), np.float32), np.zeros((64, 1), np.float32)"
    assert good in HEAD
    path = scenario_file(HEAD.replace(good, data))
    said = failure(path).message
    assert told in said
    line = 1 + path.read_text().splitlines().index("    def data(self):")
    assert said.startswith((f"{path.name}:{line}: `data`", f"{path.name}: ValueError: Input 0"))


def test_a_model_that_is_not_compiled_is_refused(tf, scenario_file):
    path = scenario_file(HEAD.replace('model.compile("sgd", "mse")', "pass"))
    assert failure(path).message == (
        f"{path.name}:10: `model` must return a compiled model: call model.compile(optimizer, loss)"
    )


@pytest.mark.usefixtures("tf")
def test_a_gpu_that_is_not_there_is_told_as_absent(monkeypatch):
    monkeypatch.setattr("tensorflow.config.list_physical_devices", lambda _kind: [])
    with pytest.raises(Failure, match="TensorFlow") as caught:
        _set_up_device(Assign(scenario="", device="gpu", settings={}))
    assert caught.value.kind == "device_absent"


def test_a_scenario_imports_the_package_of_its_own_checkout(tmp_path, monkeypatch):
    text = HEAD.replace("import tensorflow", "import ours_of_a_checkout\nimport tensorflow")
    text += "    title = ours_of_a_checkout.NAME\n"
    for checkout, source in (("base", ""), ("head", "src")):
        folder = tmp_path / checkout
        (folder / "scenarios").mkdir(parents=True)
        (folder / ".git").touch()
        (folder / source).mkdir(exist_ok=True)
        (folder / source / "ours_of_a_checkout.py").write_text(f"NAME = {checkout!r}\n")
        path = folder / "scenarios" / "mine.py"
        path.write_text(text)
        monkeypatch.delitem(sys.modules, "ours_of_a_checkout", raising=False)
        with monkeypatch.context() as context:
            context.setattr(sys, "path", [*sys.path])
            assert load(path).title == checkout
