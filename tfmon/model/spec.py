"""Lane specs: machine, device and settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import (
    BATCH_SCOPE,
    BATCH_SIZE,
    PER_REPLICA,
    Knob,
    KnobError,
    KnobValue,
    Settings,
    parse_settings,
    short_name,
    show,
)

ALL = "all"
MOST_DEVICES = 64
DEVICES = (
    "a lane runs on cpu, gpu or gpu:N; on several at once as gpu:0+1, gpu:all, 4xgpu or 2xcpu; "
    "on an instance as MIG-UUID"
)
INSTANCE = "MIG-"
SHORT_INSTANCE = len(INSTANCE) + 8
_INSTANCE = re.compile(r"(?i)MIG-[0-9a-f-]{1,36}")
ANY_GPU = "gpu"
"""Device of the idlest GPU."""


class SpecError(ValueError):
    """An invalid lane spec."""


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """A requested lane: `[HOST/]DEVICE[,KNOB=VALUE…]`."""

    device: str
    """`cpu`, `gpu:N`, `gpu:N+M`, `2xcpu` or `MIG-…`. Before planning also `gpu`, `gpu:all` or `4xgpu`."""
    settings: dict[str, KnobValue] = field(default_factory=dict)
    name: str = ""
    """Unique and constant. `LaneState.title` is displayed."""
    apart: tuple[str, ...] = ()
    number: int = 0
    id: str = ""
    """A constant letter."""
    host: str = ""
    """"" for this machine."""
    label: str = ""
    chosen: str = field(default="", compare=False)

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""
        return "gpu" if self.is_instance else self.device.partition(":")[0].rpartition("x")[2]

    @property
    def is_instance(self) -> bool:
        """Whether the device is an MIG instance."""
        return self.device.startswith(INSTANCE)

    @property
    def indexes(self) -> tuple[int, ...]:
        """The indexes of the chosen GPUs."""
        indexes = self.device.partition(":")[2]
        return tuple(map(int, indexes.split("+"))) if indexes not in ("", ALL) else ()

    @property
    def index(self) -> int:
        """The index of the first GPU, or 0."""
        return next(iter(self.indexes), 0)

    @property
    def devices(self) -> int:
        """The number of devices. 1 for `gpu:all`."""
        count, times, _ = self.device.partition("x")
        return int(count) if times else len(self.indexes) or 1

    @property
    def place(self) -> str:
        """The machine and device, such as `gpu2/gpu:0`."""
        return f"{self.host}/{self.device}" if self.host else self.device

    def place_of(self, index: int) -> str:
        """Return the machine and one device."""
        return replace(self, device=f"gpu:{index}").place if self.devices > 1 else self.place


def parse_lane(text: str, knobs: Sequence[Knob]) -> LaneSpec:
    """Parse a spec; raises SpecError or KnobError."""
    first, *assignments = [part.strip() for part in text.split(",")]
    host, slash, device = first.rpartition("/")
    if slash:
        check_host(host)
    return LaneSpec(_device(device), parse_settings(knobs, [word for word in assignments if word]), host=host)


def _device(text: str) -> str:
    if _INSTANCE.fullmatch(text):
        return INSTANCE + text[len(INSTANCE) :].lower()
    kind, colon, index = text.lower().partition(":")
    count, times, many = kind.rpartition("x")
    if kind in ("cpu", ANY_GPU) and not colon:
        return kind
    if times and many in ("cpu", "gpu") and not colon and _is_number(count):
        _check_count(text, int(count))
        return many if int(count) == 1 and many == "cpu" else f"{int(count)}x{many}"
    if kind == "gpu" and index == ALL:
        return f"gpu:{ALL}"
    indexes = index.split("+")
    if kind != "gpu" or not all(map(_is_number, indexes)):
        raise SpecError(f"there is no device {text!r}; {DEVICES}")
    numbers = [int(index) for index in indexes]
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        raise SpecError(f"{text} names gpu:{twice} twice; name each GPU once, or race two lanes on it")
    _check_count(text, len(numbers))
    return "gpu:" + "+".join(map(str, numbers))


def _check_count(text: str, count: int) -> None:
    if not 1 <= count <= MOST_DEVICES:
        raise SpecError(f"{text} is not possible; a lane trains on 1 to {MOST_DEVICES} devices")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def check_host(host: str) -> None:
    """Raise SpecError for an invalid host name."""
    if not host:
        raise SpecError("there is no host before the /; name one, as in gpu2/gpu:0, or leave out the /")
    if host.startswith("-"):
        raise SpecError(f"{host!r} is not a host: a name does not begin with -")
    if not host.isprintable() or any(char.isspace() for char in host):
        raise SpecError(f"{host!r} is not a host: a name has no spaces and no control characters")


def name_lanes(specs: Sequence[LaneSpec]) -> tuple[LaneSpec, ...]:
    """Name the lanes. The ids of a CPU and a GPU lane are C and G, otherwise from A."""
    result: list[LaneSpec] = []
    for spec in specs:
        twins = [other for other in specs if other.place == spec.place]
        contrast = tuple(
            knob
            for knob, value in spec.settings.items()
            if any(other.settings.get(knob) != value for other in twins)
        )
        same = [index for index, other in enumerate(specs) if other == spec]
        number = same.index(len(result)) + 1 if len(same) > 1 else 0
        numbered = replace(spec, apart=contrast, number=number)
        result.append(replace(numbered, name=title(numbered)))
    kinds = [spec.kind for spec in specs]
    if len(specs) > 1 and len(set(kinds)) == len(kinds):
        ids = [kind[0].upper() for kind in kinds]
    else:
        ids = [chr(ord("A") + index % 26) for index in range(len(specs))]
    return tuple(replace(spec, id=id) for spec, id in zip(result, ids, strict=True))


def title(spec: LaneSpec, settings: Settings | None = None, differs: Sequence[str] | None = None) -> str:
    """Return a title such as "gpu2/cpu batch_size=256"."""
    values = {**spec.settings, **(settings or {})}
    knobs = spec.apart if differs is None else differs
    parts = [spec.place, *filter(None, [spec.label])]
    parts += [f"{knob}={show(values[knob])}" for knob in knobs if knob in values]
    if spec.number:
        parts.append(f"#{spec.number}")
    return " ".join(parts)


def short_title(spec: LaneSpec, settings: Settings, differs: Sequence[str]) -> str:
    """Return a title such as "batch 256, graph off"."""
    values = {**spec.settings, **settings}
    shown = [(short_name(knob).partition(" ")[0], show(values[knob])) for knob in differs if knob in values]
    parts = [spec.label] if spec.label else []
    parts += [value if value.endswith("float16") else f"{name} {value}" for name, value in shown]
    not_local_cpu = spec.kind == "gpu" or spec.host or spec.devices > 1
    parts = [spec.place, *parts] if not_local_cpu or not parts else parts
    return ", ".join(parts) + (f" #{spec.number}" if spec.number else "")


SCOPE_HINT = (
    f"{BATCH_SCOPE.name} is for races with a lane on several devices, such as --lane 2xcpu or --lane gpu:all"
)
KINDS = {"gpus": "gpu", "cpus": "cpu"}
DEVICE_KNOBS = tuple(
    Knob(name, default=1, help=f"On how many devices {kind} a lane trains.", low=1, high=MOST_DEVICES)
    for name, kind in KINDS.items()
)


def step_batch(settings: Settings, devices: int) -> int | None:
    """Return the examples in a step on all devices."""
    size = settings.get(BATCH_SIZE.name)
    if not isinstance(size, int):
        return None
    return size * devices if settings.get(BATCH_SCOPE.name) == PER_REPLICA else size


def obstacle(settings: Settings, devices: int) -> str:
    """Return why the devices cannot train together."""
    if devices == 1:
        return ""
    if settings.get("xla"):
        return "xla=on compiles a step for one device, and this lane has several: it needs xla=off"
    if settings.get("mixed_precision") == "float16":
        return (
            "mixed_precision=float16 spoils the weights on several devices, because Keras looks for overflow on "
            "the first one only; bfloat16 does not"
        )
    size = step_batch(settings, devices)
    if size is not None and size < devices:
        return (
            f"batch_size={size} is too small for {devices} devices; it must be at least {devices}, "
            f"or {BATCH_SCOPE.name}={PER_REPLICA} gives each device so many"
        )
    return ""


def counted(names: Iterable[str]) -> str:
    """Return the name in `KINDS`, or ""; raises KnobError."""
    result = [name for name in names if name in KINDS]
    if len(set(result)) > 1:
        raise KnobError("gpus and cpus are on different devices; sweep one of them")
    return result[0] if result else ""


def devices_of(settings: Settings, kind: str = "") -> int:
    """Return the number of devices of a combination."""
    name = counted(settings)
    if name:
        return int(settings[name])
    count, times, _ = kind.partition("x")
    return int(count) if times and count.isdecimal() else kind.count("+") + 1


def device_names(names: Sequence[str]) -> str:
    """Return a text such as "2x NVIDIA H200"."""
    result = ((names.count(name), name) for name in dict.fromkeys(names))
    return " + ".join(f"{count}x {name}" if count > 1 else name for count, name in result)
