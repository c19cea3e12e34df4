"""Lane specs: which device a lane trains on, with which settings, and what it is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tfmon.model.knobs import Knob, KnobValue, Settings, parse_settings, short_name, show


class SpecError(ValueError):
    """A lane spec that cannot be read; the text says what is allowed."""


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """What the user requested for one lane: `DEVICE[,KNOB=VALUE…]`."""

    device: str
    """`cpu`, or `gpu:N` with N the index that the driver lists."""
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

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""
        return self.device.partition(":")[0]

    @property
    def index(self) -> int:
        """The device's index; 0 for the CPU."""
        return int(self.device.partition(":")[2] or 0)


def parse_lane(text: str, knobs: Sequence[Knob]) -> LaneSpec:
    """Read a lane spec such as `gpu:0,batch_size=256`.

    Raises: SpecError for an unknown device, KnobError for a knob or a value that is not there.
    """
    device, *words = [part.strip() for part in text.split(",")]
    kind, colon, index = device.lower().partition(":")
    if kind == "cpu" and not colon:
        place = "cpu"
    elif kind == "gpu" and (not colon or index.isdecimal()):
        place = f"gpu:{int(index or 0)}"
    else:
        raise SpecError(f"there is no device {device!r}; a lane runs on cpu, gpu or gpu:N")
    return LaneSpec(place, parse_settings(knobs, [word for word in words if word]))


def name_lanes(specs: Sequence[LaneSpec]) -> tuple[LaneSpec, ...]:
    """Give every lane a unique name and an id.

    A device that only one lane uses names that lane; lanes that share a device add the settings that tell
    them apart, and lanes with the same spec a number. One CPU and one GPU lane are C and G; otherwise the
    ids go from A.
    """
    named: list[LaneSpec] = []
    for spec in specs:
        twins = [other for other in specs if other.device == spec.device]
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
    """Write a lane's device and the settings that tell it apart, such as "cpu batch_size=256 graph=off".

    Args:
        spec: The lane.
        settings: Those in effect; None for those of the spec.
        differs: The knobs to write, where they are known; None for those that the spec sets apart.
    """
    values = {**spec.settings, **(settings or {})}
    knobs = spec.apart if differs is None else differs
    words = [spec.device, *(f"{knob}={show(values[knob])}" for knob in knobs if knob in values)]
    if spec.number:
        words.append(f"#{spec.number}")
    return " ".join(words)


def short_title(spec: LaneSpec, settings: Settings, differs: Sequence[str]) -> str:
    """Write only what tells a lane apart, for narrow places: "batch 256 · graph off", or else its device."""
    values = {**spec.settings, **settings}
    words = [f"{short_name(knob)} {show(values[knob])}" for knob in differs if knob in values]
    words = [spec.device, *words] if spec.kind == "gpu" or not words else words
    return " · ".join(words) + (f" #{spec.number}" if spec.number else "")
