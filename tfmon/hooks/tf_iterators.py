"""Hooks on iterators that report each pull."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

from tfmon.hooks.graph_marks import marks_around
from tfmon.hooks.patches import FILES, Hooks, hidden, unseen
from tfmon.hooks.step_machine import StepMachine
from tfmon.hooks.tf_feed import TensorFlowFeed, the_feed

FILES.add(__file__)
ENDS = ("StopIteration", "OutOfRangeError")


class IteratorHooks:
    """The hooks on pulls. Thread: any."""

    def __init__(self, steps: StepMachine, hooks: Hooks) -> None:
        self.steps, self.hooks = steps, hooks

    def install(self) -> None:
        """Replace the methods of TensorFlow."""
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.distribute import input_lib
        from tensorflow.python.eager import context
        from tensorflow.python.framework import ops

        self._eager, self._graph = context.executing_eagerly, ops.get_default_graph
        for kind in (iterator_ops.OwnedIterator, input_lib.DistributedIteratorBase):
            self.hooks.replace(kind, "__next__", self._pull)
            self.hooks.replace(kind, "get_next", self._pull)
            self.hooks.replace(kind, "get_next_as_optional", functools.partial(self._pull, optional=True))

    def _pull(self, original: Any, *, optional: bool = False) -> Any:
        steps, hooks = self.steps, self.hooks

        def pull(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            source = feed = None
            try:
                with hooks:
                    source = steps.bundle.begins_with(iterator)
                    if source is None and not hooks.off:
                        feed = self._feed_here()
                        if feed is None and not optional and self._eager():
                            source = steps.pull_begins(iterator)
                if feed is not None:
                    with hidden():
                        return feed.counted(original, iterator, args, kwargs, optional=optional)
                batch = original(iterator, *args, **kwargs)
                if source is not None:
                    with hooks:
                        steps.pull_ends(source, batch)
                return batch
            except BaseException as error:
                if source is not None:
                    with hooks:
                        steps.pull_fails(source, ended=type(error).__name__ in ENDS)
                unseen(error)
                raise

        return pull

    def _feed_here(self) -> TensorFlowFeed | None:
        feed = the_feed()
        if feed.busy:
            return None
        if feed.follows == get_ident():
            return feed
        if self.steps.off or self.steps.aside or self._eager():
            return None
        for mark in marks_around(self._graph()):
            mark.pulls = True
        return feed
