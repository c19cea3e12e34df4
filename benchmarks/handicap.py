"""A user's loop whose steps take a known share longer than their work, by the knob `handicap`, in percent."""

from __future__ import annotations

import time

import tensorflow as tf

from tfmon import report

MATRIX = tf.linalg.qr(tf.random.normal((64, 64)))[0]


@tf.function
def work() -> tf.Tensor:
    state = MATRIX
    for _ in tf.range(200):
        state = tf.matmul(state, MATRIX)
    return tf.reduce_sum(state)


def main() -> None:
    while True:
        began = time.perf_counter()
        float(work())
        until = began + (time.perf_counter() - began) * (1 + report.knob("handicap", 0.0) / 100)
        while time.perf_counter() < until:
            pass
        report.step(examples=1)


if __name__ == "__main__":
    main()
