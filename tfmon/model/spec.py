"""Lane specs: on which machine and device a lane trains, with which settings, and what it is called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tfmon.model.knobs import Knob, KnobValue, Settings, parse_settings, short_name, show

INSTANCE = "MIG-"
"""How the UUID of an instance of a GPU that is split up (MIG) begins; a lane names as much of it as is unique."""
_INSTANCE = re.compile(r"(?i)MIG-[0-9a-f-]{1,36}")
ANY_GPU = "gpu"
"""The device of a lane that is to have the idlest GPU, before one is chosen."""


class SpecError(ValueError):
    """A lane spec that cannot be read; the text says what is allowed."""


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """What the user requested for one lane: `[HOST/]DEVICE[,KNOB=VALUE…]`."""

    device: str
    """`cpu`, `gpu:N` with N the index that the driver lists there, or the beginning of a UUID: `MIG-…`."""
    settings: dict[str, KnobValue] = field(default_factory=dict)
    name: str = ""
    """Internal key, unique in a race, such as "cpu" or "cpu prefetch=off"; stays when a key changes the knob.

    People read `LaneState.title`, which follows the settings.
    """
    apart: tuple[str, ...] = ()
    """Knobs that distinguish the lane from others on its device."""
    number: int = 0
    """Number among lanes with the same spec, from 1; 0 for a spec that only one lane has."""
    id: str = ""
    """One letter for the lane, which never changes: on the screen, in JSON and in recordings."""
    host: str = ""
    """The machine, as the user calls it: a destination of ssh, or a name of the settings file; "" for this one."""
    chosen: str = field(default="", compare=False)
    """Why the lane has this GPU, where it named none and tfmon chose it; else empty."""

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""
        return "gpu" if self.is_instance else self.device.partition(":")[0]

    @property
    def is_instance(self) -> bool:
        """Whether the device is an instance of a GPU that is split up (MIG)."""
        return self.device.startswith(INSTANCE)

    @property
    def index(self) -> int:
        """The device's index; 0 for the CPU and for an instance."""
        return int(self.device.partition(":")[2] or 0)

    @property
    def place(self) -> str:
        """Machine and device, such as `gpu2/gpu:0`; the device alone on the monitor's own machine."""
        return f"{self.host}/{self.device}" if self.host else self.device


def parse_lane(text: str, knobs: Sequence[Knob]) -> LaneSpec:
    """Read a lane spec such as `gpu:0,batch_size=256` or `me@gpu2/gpu`.

    Raises: SpecError for an unknown device or no possible host, KnobError for a knob or a value that is not there.
    """
    first, *words = [part.strip() for part in text.split(",")]
    host, slash, device = first.rpartition("/")
    if slash:
        check_host(host)
    kind, colon, index = device.lower().partition(":")
    if kind == "cpu" and not colon:
        place = "cpu"
    elif kind == "gpu" and (not colon or index.isdecimal()):
        place = f"gpu:{int(index)}" if colon else ANY_GPU
    elif _INSTANCE.fullmatch(device):
        place = INSTANCE + device[len(INSTANCE) :].lower()
    else:
        allowed = "cpu, gpu or gpu:N, or on an instance MIG-UUID"
        raise SpecError(f"there is no device {device!r}; a lane runs on {allowed}")
    return LaneSpec(place, parse_settings(knobs, [word for word in words if word]), host=host)


def check_host(host: str) -> None:
    """Raise SpecError for what cannot be the name of a host; an option of ssh is none."""
    if not host:
        raise SpecError("there is no host before the /; name one, as in gpu2/gpu:0, or leave out the /")
    if host.startswith("-"):
        raise SpecError(f"{host!r} is no host: a name does not begin with -")
    if not host.isprintable() or any(char.isspace() for char in host):
        raise SpecError(f"{host!r} is no host: a name has no spaces and no control characters")


def name_lanes(specs: Sequence[LaneSpec]) -> tuple[LaneSpec, ...]:
    """Give every lane a unique name and an id.

    A place that only one lane uses names that lane; lanes that share one add the settings that tell
    them apart, and lanes with the same spec a number. One CPU and one GPU lane are C and G; otherwise the
    ids go from A.
    """
    named: list[LaneSpec] = []
    for spec in specs:
        twins = [other for other in specs if other.place == spec.place]
        apart = tuple(
            knob
            for knob, value in spec.settings.items()
            if any(other.settings.get(knob) != value for other in twins)
        )
        same = [place for place, other in enumerate(specs) if other == spec]
        number = same.index(len(named)) + 1 if len(same) > 1 else 0
        named.append(
            replace(spec, name=title(replace(spec, apart=apart, number=number)), apart=apart, number=number)
        )
    kinds = [spec.kind for spec in specs]
    if len(set(kinds)) == len(kinds):
        ids = [kind[0].upper() for kind in kinds]
    else:
        ids = [chr(ord("A") + index % 26) for index in range(len(specs))]
    return tuple(replace(spec, id=id) for spec, id in zip(named, ids, strict=True))


def title(spec: LaneSpec, settings: Settings | None = None, differs: Sequence[str] | None = None) -> str:
    """Write a lane's place and the settings that tell it apart, such as "gpu2/cpu batch_size=256 graph=off".

    Args:
        spec: The lane.
        settings: Those in effect; None for those of the spec.
        differs: The knobs to write, where they are known; None for those that the spec sets apart.
    """
    values = {**spec.settings, **(settings or {})}
    knobs = spec.apart if differs is None else differs
    words = [spec.place, *(f"{knob}={show(values[knob])}" for knob in knobs if knob in values)]
    if spec.number:
        words.append(f"#{spec.number}")
    return " ".join(words)


def short_title(spec: LaneSpec, settings: Settings, differs: Sequence[str]) -> str:
    """Write only what tells a lane apart, for narrow places: "batch 256 · graph off", or else its place."""
    values = {**spec.settings, **settings}
    words = [f"{short_name(knob)} {show(values[knob])}" for knob in differs if knob in values]
    words = [spec.place, *words] if spec.kind == "gpu" or spec.host or not words else words
    return " · ".join(words) + (f" #{spec.number}" if spec.number else "")
