"""Steps of a loop that are all alike: noted while they run, and told to the lane together.

A step is alike if it pulls one batch, from the iterator that the loop reads first, and is updated once, by the
same function as the step before. What runs between two training steps has left the CPU's caches by then: a call
of a Python function takes 2 µs there, and 0.1 µs in a loop by itself. So the hooks write such a step's times into
this object without calling anything, and the rest is done once a bundle.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any

from tfmon.script.marks import Mark
from tfmon.script.rounds import Updater
from tfmon.script.sources import Source, nothing

if TYPE_CHECKING:
    from tfmon.script.lane import Lane

MOST = 256
"""Most steps of a bundle."""


class Bundle:
    """The steps that were noted since the last one that was told.

    Thread: that of the loop; the hooks compare `thread` before they write.
    Units: nanoseconds of `time.monotonic_ns`.
    """

    __slots__ = (
        "at", "begun_ns", "busy", "function", "given", "loss", "loss_before", "mark", "next_function",
        "next_pull", "pull", "rows", "rows_path", "source", "thread", "traced", "traces", "until_ns",
        "updated_ns", "updater", "waiting", "waits_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        """Note nothing until `follow`."""
        self.next_pull: Callable[[], Any] | None = None
        """Returns the iterator whose pull begins the next step; None while no step may begin."""
        self.next_function: Callable[[], Any] = nothing
        """Returns the function whose call is the next update; `nothing` while none may be made."""
        self.busy = False
        """Whether a noted pull or update is under way."""
        self.begun_ns: list[int] = []
        """When the noted steps began; each is the end of the step before, the first that of the last one told."""
        self.rows: list[int] = []
        self.waits_ns: list[int] = []
        """Examples, and the wait for them, of the step that was told to begin last and of the noted ones."""
        self.given: list[int] = []
        """What the function was given of them."""
        self.loss: Any = None
        self.loss_before: Any = None
        """Loss of the last update, and of the one before; all else that a step returns is let go."""

    def follow(
        self,
        lane: Lane,
        source: Source,
        mark: Mark,
        function: Any,  # noqa: ANN401
        updater: Updater,
        rows: int,
        loss: object,
    ) -> None:
        """Note steps like the one that was just updated, until the lane's window is due.

        Args:
            lane: What says, also by `waiting` and `traces`, that a step must be told by itself.
            source: What the batch was pulled from.
            mark: What is known of the function's graph.
            function: What made the update, by `updater`.
            rows: Its examples.
            loss: Its loss.
        """
        iterator = source.ref()
        path = rows_path(getattr(iterator, "element_spec", None))
        self.at = next((at for at, one in enumerate(function.inputs) if one.shape.rank), None)
        self.until_ns = lane.alike_until()
        if path is None or self.at is None or not self.until_ns:
            return
        self.source, self.mark, self.function, self.pull = source, mark, weakref.ref(function), source.ref
        self.rows_path, self.loss, self.updater = path, loss, updater
        self.begun_ns, self.rows, self.waits_ns, self.updated_ns = [], [rows], [source.wait_ns], 0
        self.given = [rows]
        self.thread = threading.get_ident()
        self.waiting: Sized = lane.waiting
        traces: Any = lane.traces
        self.traces, self.traced = traces, traces.count
        self.next_pull, self.next_function = source.ref, nothing

    def tell(self, lane: Lane, examples: int) -> None:
        """Tell a lane of the steps that have ended, with their examples."""
        waited_ns = sum(self.waits_ns[: len(self.begun_ns)])
        loss = self.loss_before if self.updated else self.loss
        lane.end_steps(self.begun_ns, loss=loss, examples=examples, input_ns=waited_ns)

    @property
    def updated(self) -> bool:
        """Whether the step under way has its update."""
        return self.next_pull is not None

    @property
    def received(self) -> bool:
        """Whether the step under way has its batch."""
        return len(self.rows) > len(self.begun_ns)


def rows_path(spec: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
    """Return where in a batch the tensor is that tells the examples; None if it is no plain tensor."""
    if isinstance(spec, tuple | list) and spec:
        key: Any = 0
    elif isinstance(spec, dict) and spec:
        key = next(iter(spec))
    else:
        return () if type(spec).__name__ == "TensorSpec" and spec.shape.rank else None
    inner = rows_path(spec[key])
    return None if inner is None else (key, *inner)
