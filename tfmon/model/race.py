"""What is raced and on what machine; how far the recording of it is."""

from __future__ import annotations

from dataclasses import dataclass

from tfmon.model.knobs import Knob

TURNS, CONCURRENT = "turns", "concurrent"
MODES = (TURNS, CONCURRENT)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine is; settled at the start."""

    hostname: str = ""
    system: str = ""
    cpu_name: str = ""
    cores: int = 0
    """Logical processors of the machine."""
    usable_cores: float = 0
    """How many of them a lane may keep busy: affinity and container quota."""
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    """Model names of the GPUs that the driver lists."""
    no_gpu: str = ""
    """Why there is no GPU lane; empty where there is one or none was wanted."""


@dataclass(frozen=True, slots=True)
class Race:
    """What is raced, and how it goes."""

    scenario: str = ""
    title: str = ""
    mode: str = TURNS
    """`turns`: one lane trains at a time, in short slices; `concurrent`: all at once."""
    turn: str = ""
    """Name of the lane whose turn it is; empty between turns and while the lanes train at once."""
    knobs: tuple[Knob, ...] = ()
    started_ns: int | None = None
    """When the lanes got the start signal; None while they get ready."""
    number: int = 0
    """Which race of this run of tfmon it is, from 1."""
    alone: str = ""
    """Name of the lane that has the machine for itself, in slices, while the others hold; empty for none."""
    interrupted: str = ""
    """Why it was broken off, such as "interrupted by SIGINT"; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recording of a race."""

    path: str
    """Where it lies; empty where no file could be made."""
    stopped_ns: int | None = None
    """From when on nothing was recorded; None while all is well."""
    why: str = ""
    """Why it stopped, in words."""
