"""Hooks on TensorFlow's iterators: pulls of batches, by Python or inside of a graph.

Source: classes whose paths are the same in TensorFlow 2.18 and 2.21.
"""

from __future__ import annotations

import functools
from threading import get_ident
from time import monotonic_ns
from typing import Any

from tfmon.script import hooking
from tfmon.script.bundle import MOST
from tfmon.script.hooking import Hooks, hidden, unseen
from tfmon.script.looking import rows_of
from tfmon.script.marks import marks_around
from tfmon.script.steps import StepWatcher
from tfmon.script.tf_feed import TensorFlowFeed, the_feed

hooking.FILES.add(__file__)


class PullHooks:
    """Show a `StepWatcher` each `next` of an iterator of tf.data or of a distribution strategy.

    Thread: any; the watcher ignores threads that it does not follow.
    """

    def __init__(self, watcher: StepWatcher, hooks: Hooks) -> None:
        self.watcher, self.hooks = watcher, hooks

    def install(self) -> None:
        """Replace the methods of TensorFlow, which is loaded."""
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.distribute import input_lib
        from tensorflow.python.eager import context
        from tensorflow.python.framework import ops

        self._eager, self._graph = context.executing_eagerly, ops.get_default_graph
        for kind in (iterator_ops.OwnedIterator, input_lib.DistributedIteratorBase):
            self.hooks.replace(kind, "__next__", self._next)
            self.hooks.replace(kind, "get_next", self._pull)
            self.hooks.replace(kind, "get_next_as_optional", functools.partial(self._pull, optional=True))

    def _next(self, own: Any) -> Any:  # noqa: ANN401
        """Return a pull that notes what the bundle expects, and has the rest told."""
        watcher, hooks, tell = self.watcher, self.hooks, self._pull(own)

        def pull(iterator: Any) -> Any:  # noqa: ANN401
            bundle = watcher.bundle
            next_pull, noted = bundle.next_pull, False
            try:
                if (
                    next_pull is None
                    or next_pull() is not iterator
                    or bundle.waiting
                    or bundle.traces.count != bundle.traced
                    or get_ident() != bundle.thread
                    or len(bundle.rows) >= MOST
                    or (began_ns := monotonic_ns()) >= bundle.until_ns
                ):
                    return tell(iterator)
                bundle.next_pull, bundle.busy, noted = None, True, True
                bundle.begun_ns.append(began_ns)
                given = own(iterator)
                try:
                    bundle.waits_ns.append(monotonic_ns() - began_ns)
                    first = given
                    for key in bundle.rows_path:
                        first = first[key]
                    bundle.rows.append(first._shape_tuple()[0])
                    bundle.next_function, bundle.busy = bundle.function, False
                except Exception as error:  # noqa: BLE001 - the script must go on, whatever is wrong with this
                    hooks.failure(error)
                return given
            except BaseException as error:
                if noted:
                    with hooks:
                        watcher.catch_up()
                        watcher.pull_fails(bundle.source, ended=ends_data(error))
                unseen(error)
                raise

        return pull

    def _pull(self, own: Any, *, optional: bool = False) -> Any:  # noqa: ANN401
        watcher, hooks = self.watcher, self.hooks

        def pull(iterator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            source = feed = None
            try:
                with hooks:
                    if not hooks.off:
                        feed = self._feed_here()
                        if feed is None and not optional and self._eager():
                            source = watcher.pull_begins(iterator)
                if feed is not None:
                    with hidden():
                        return feed.counted(own, iterator, args, kwargs, optional=optional)
                given = own(iterator, *args, **kwargs)
                if source is not None:
                    with hooks:
                        watcher.pull_ends(source, rows_of(given, batched=source.batched))
                return given
            except BaseException as error:
                if source is not None:
                    with hooks:
                        watcher.pull_fails(source, ended=ends_data(error))
                unseen(error)
                raise

        return pull

    def _feed_here(self) -> TensorFlowFeed | None:
        """Return what counts a batch that Keras pulls, or the graph that is built now; None for an eager loop."""
        feed = the_feed()
        if feed.busy:
            return None
        if feed.follows == get_ident():
            return feed
        if self.watcher.off or self.watcher.aside or self._eager():
            return None
        for mark in marks_around(self._graph()):
            mark.pulls = True
        return feed


def ends_data(error: BaseException) -> bool:
    """Return whether an error of a pull says that there are no more batches."""
    return type(error).__name__ in ("StopIteration", "OutOfRangeError")
