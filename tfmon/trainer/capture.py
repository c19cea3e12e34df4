"""A profile of some training steps, written by TensorFlow's own profiler."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tfmon.profile.trace import CALL, STEP


class CaptureError(Exception):
    """Why no profile was taken, in a user's words."""


class Capture:
    """One profile: start it, train steps with what `follow` returns, then stop it.

    The caller waits for the device before `start` and before `stop`, so that the work of the captured steps and
    no other is in it. Starting takes some 0.3 ms, stopping 5 to 60 ms; the first time on a GPU, its profiling
    library is loaded.

    Thread: the one that trains. A process can take one profile at a time.
    Source: `tf.profiler.experimental`.
    """

    def __init__(self, folder: Path) -> None:
        self.steps = 0
        """Steps that were begun."""
        self._folder = folder
        self._before: set[tuple[Path, int]] = set()
        self._running = False

    def start(self) -> None:
        """Begin to record.

        Errors: CaptureError; nothing is recorded then.
        """
        import tensorflow as tf

        self._before = self._files()
        try:
            tf.profiler.experimental.start(str(self._folder))
        except tf.errors.AlreadyExistsError as error:
            raise CaptureError("another profile is being taken in this process") from error
        except (tf.errors.OpError, OSError, RuntimeError) as error:
            raise CaptureError(f"TensorFlow's profiler does not start: {_words(error)}") from error
        self._running = True

    def step(self) -> AbstractContextManager[Any]:
        """Return the marker that the next step is trained in: from taking its batch to reading its result."""
        import tensorflow as tf

        marker: AbstractContextManager[Any] = tf.profiler.experimental.Trace(STEP, step_num=self.steps, _r=1)
        self.steps += 1
        return marker

    def follow(
        self, batches: Iterator[Any], step: Callable[..., Any]
    ) -> tuple[Generator[Any, None, None], Callable[..., Any]]:
        """Return the batches and the step with markers around each step and around its call.

        A step lasts until the next one's batch is asked for; close the generator after the last one.
        """
        import tensorflow as tf

        trace = tf.profiler.experimental.Trace

        def marked() -> Generator[Any, None, None]:
            while True:
                with self.step():
                    batch = next(batches, None)
                    if batch is None:
                        return
                    yield batch

        def call(*batch: Any) -> Any:  # noqa: ANN401
            with trace(CALL):
                return step(*batch)

        return marked(), call

    def stop(self) -> Path:
        """Write the profile, and return the path of its `.xplane.pb` file.

        Errors: CaptureError; the profiler is free again then.
        """
        import tensorflow as tf

        if not self._running:
            raise CaptureError("no profile is being taken")
        self._running = False
        try:
            tf.profiler.experimental.stop()
        except (tf.errors.OpError, OSError, RuntimeError) as error:
            raise CaptureError(f"TensorFlow could not write the profile: {_words(error)}") from error
        written = sorted(self._files() - self._before, key=lambda file: file[1])
        if not written:
            raise CaptureError(f"TensorFlow wrote no profile into {self._folder}")
        return written[-1][0]

    def abandon(self) -> None:
        """Stop without writing anything; harmless when nothing is being recorded."""
        import tensorflow as tf

        if self._running:
            self._running = False
            try:
                tf.profiler.experimental.stop(save=False)
            except tf.errors.UnavailableError:
                return

    def _files(self) -> set[tuple[Path, int]]:
        """Return the profiles in the folder, and when each was written."""
        found = self._folder.glob("plugins/profile/*/*.xplane.pb")
        return {(path, path.stat().st_mtime_ns) for path in found}


def _words(error: Exception) -> str:
    return str(getattr(error, "message", None) or error) or type(error).__name__
