"""Out of memory on a GPU, told as what it is where others hold the memory. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tfmon.model.gpu_others import held_text
from tfmon.model.lane_state import OUT_OF_MEMORY, LaneState
from tfmon.model.readings import GpuSample
from tfmon.model.records import replace

ELSEWHERE = "--lane gpu takes the idlest GPU, --wait-idle waits until one is free"
_SAID = re.compile(r"(?i)out[ _]of[ _]memory|ResourceExhausted|\bOOM\b|failed to allocate")
"""How TensorFlow and CUDA say it, also where a script's own last words are all that is known."""


def explained(lane: LaneState, gpus: Sequence[GpuSample], own: Collection[int]) -> LaneState:
    """Return a lane that ran out of its GPU's memory with who else holds it; any other lane as it is.

    Args:
        lane: A lane that has just failed.
        gpus: The latest samples of its GPUs; the first on which others hold much explains it.
        own: The processes of all lanes on its machine.
    """
    trouble = lane.trouble
    if trouble is None or (trouble.kind != OUT_OF_MEMORY and not _SAID.search(trouble.message)):
        return lane
    held = next(filter(None, (held_text(gpu, lane.spec.place_of(gpu.index), own) for gpu in gpus)), "")
    if not held or held in trouble.message:
        return lane
    message = f"out of memory, because {held}. The lane said: {trouble.message}"
    hint = "; ".join(filter(None, (ELSEWHERE, trouble.hint)))
    return replace(lane, trouble=replace(trouble, message=message, hint=hint))
