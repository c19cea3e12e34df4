"""What is known of a graph that trains, or computes gradients; it lies on the graph."""

from __future__ import annotations

from typing import Any

from tfmon.script.looking import rows_in

MARK = "_tfmon_mark"
UNTRAINED = object()
"""The mark of a function that neither trains nor computes gradients."""


class Mark:
    """What was seen while a graph was traced."""

    __slots__ = ("loops", "loss_path", "optimizer", "pulls", "sources", "trains")

    def __init__(self) -> None:
        self.trains = self.loops = self.pulls = False
        self.optimizer: Any = None
        self.sources: dict[int, Any] = {}
        self.loss_path: tuple[Any, ...] | None = None

    def loss_in(self, result: Any) -> Any:  # noqa: ANN401
        """Return the loss in what the function returned; None if it returned none."""
        if self.loss_path is None:
            return None
        for key in self.loss_path:
            result = result[key]
        return result

    def rows_in(self, tensors: Any) -> int:  # noqa: ANN401
        """Return the examples of a call as far as its arguments tell; -1 if the graph counts them itself."""
        if self.pulls:
            return -1
        return 0 if self.loops else rows_in(tensors)
