"""Distinguishing names of lanes, and shared files and ports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import PurePath

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.folder_views import IN_PLACE, View
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import LaneState
from tfmon.model.race import Race
from tfmon.model.spec import LaneSpec, title


def contrast(specs: Sequence[LaneSpec]) -> frozenset[str]:
    """Return the knobs in which the specs differ."""
    knobs = {knob for spec in specs for knob in spec.settings}
    return frozenset(knob for knob in knobs if len({distinct(spec.settings.get(knob)) for spec in specs}) > 1)


def differing(lanes: Sequence[LaneState], race: Race) -> tuple[str, ...]:
    """Return the differing knobs, the contrast first."""
    started = contrast([lane.spec for lane in lanes])
    result = []
    for knob in {knob: None for lane in lanes for knob in lane.in_effect}:
        values = [lane.in_effect[knob] for lane in lanes if knob in lane.in_effect]
        unknown = len(values) < len(lanes)
        if len(set(map(distinct, values))) > 1 or (unknown and knob in started):
            result.append(knob)
    order = {knob.name: index for index, knob in enumerate(race.knobs)}
    return tuple(sorted(result, key=lambda knob: (knob not in started, order.get(knob, len(order)), knob)))


def also_differing(lanes: Sequence[LaneState]) -> tuple[str, ...]:
    """Return the differing knobs besides the contrast."""
    started = contrast([lane.spec for lane in lanes])
    return tuple(knob for knob in (lanes[0].differs or () if lanes else ()) if knob not in started)


def ordered_settings(lane: LaneState) -> list[tuple[str, KnobValue, bool]]:
    """Return each knob, value, and whether lanes differ."""
    values, differs = lane.in_effect, lane.differs or ()
    first = [(knob, values[knob], True) for knob in differs if knob in values]
    return first + [(knob, value, False) for knob, value in values.items() if knob not in differs]


def set_names(lanes: Sequence[LaneState], race: Race) -> None:
    """Set `differs` and `mark` of all lanes."""
    differs = differing(lanes, race)
    titles = [title(lane.spec, lane.settings, differs) for lane in lanes]
    alike = Counter(titles)
    for lane, text in zip(lanes, titles, strict=True):
        lane.differs, lane.mark = differs, f"#{lane.spec.id}" if alike[text] > 1 else ""


def distinct(value: KnobValue | None) -> tuple[str, KnobValue | None]:
    """Return a key that distinguishes 1 from True."""
    return type(value).__name__ if isinstance(value, bool) else "", value


PORTS = 'port = {} + int(os.environ["TFMON_LANE_NUMBER"]) gives each lane its own'
OWN = "without --in-place each lane has its own"
NONE = "views would keep the lanes apart; tfmon doctor says why there are none"
OWN_PORT = "only its own Python processes reach it as {}"
PORT, IN_USE = "port ", "address already in use"
FULL = "No space left on device"
ROOM = "what lanes write goes to {}: make room there, name another folder by TFMON_RECORDINGS, or use --in-place"
MOST = 5


@dataclass(frozen=True, slots=True)
class Collision:
    """A file, folder or port that two lanes share."""

    name: str
    lanes: tuple[str, ...]
    text: str
    helps: str


def collisions(lanes: Sequence[LaneState], views: Mapping[str, View]) -> list[Collision]:
    """Return the lanes' collisions outside a view."""
    result: dict[str, Collision] = {}
    for lane, other in combinations(lanes, 2):
        view = views.get(lane.spec.host)
        if view is None or lane.spec.host != other.spec.host:
            continue
        for path, text in _between(lane, other):
            name, helps = path, 'os.environ["TFMON_LANE"] in its path keeps the lanes apart'
            if path.startswith(PORT):
                helps = PORTS.format(path.removeprefix(PORT))
            elif _is_in(path, view.folder):
                if view.kind != IN_PLACE:
                    continue
                name, helps = str(PurePath(path).relative_to(view.folder)), NONE if view.reason else OWN
            result.setdefault(path, Collision(name, (lane.title, other.title), text.format(name), helps))
    return [*result.values(), *(moved for lane in lanes for moved in _moved_ports(lane, lanes))]


def _moved_ports(lane: LaneState, lanes: Sequence[LaneState]) -> Iterator[Collision]:
    for port, use in lane.script.uses.items():
        if port.startswith(PORT) and (number := re.search(r"\d+", use)):
            beside = (other for other in lanes if other.spec.host == lane.spec.host)
            has = (other.title for other in beside if set(other.script.uses.get(port, "")) == {"b"})
            text = f"{port} is {next(has, 'another lane')}'s; {lane.title} has {number[0]} instead"
            yield Collision(port, (), text, OWN_PORT.format(port.removeprefix(PORT)))


def collision_lines(result: Sequence[Collision]) -> list[str]:
    """Return lines about the first collisions."""
    lines = [f"{relation.text}: {relation.helps}" for relation in result[:MOST]]
    return lines + ([f"{len(result) - MOST} more are used by several lanes"] if len(result) > MOST else [])


def _between(lane: LaneState, other: LaneState) -> Iterator[tuple[str, str]]:
    for first, second in permutations((lane, other)):
        second_uses = second.script.uses
        for path, use in first.script.uses.items():
            if "d" in use and any(
                _is_in(other_path, path) and set(other_use) - {"d"}
                for other_path, other_use in second_uses.items()
            ):
                yield path, f"{first.title} removed {{}}, and {second.title} uses it"
            elif "w" in use and "r" in second_uses.get(path, "") and "w" not in second_uses[path]:
                yield path, f"{first.title} wrote {{}}, and {second.title} read it"
    for path in sorted(set(lane.script.uses) & set(other.script.uses)):
        both = lane.script.uses[path], other.script.uses[path]
        if all(set(use) == {"b"} for use in both) or all("w" in use for use in both):
            yield path, f"{lane.title} and {other.title} both {'write' if 'w' in both[0] else 'bind'} {{}}"


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def explain_collision(lane: LaneState, lanes: Sequence[LaneState], views: Mapping[str, View]) -> None:
    """Add a collision or full disk to a script's failure."""
    trouble, view = lane.trouble, views.get(lane.spec.host)
    if trouble is None or not lane.script.command or view is None:
        return
    if FULL in trouble.message and view.store:
        lane.trouble = replace(trouble, hint=ROOM.format(PurePath(view.store).parent))
        return
    for collision in collisions(lanes, views):
        name = IN_USE if collision.name.startswith(PORT) else PurePath(collision.name).name
        contained = re.search(rf"(?i)(?<![\w.-]){re.escape(name)}(?![\w-])", trouble.message)
        if lane.title in collision.lanes and contained and collision.text not in trouble.message:
            lane.trouble = replace(trouble, message=f"{collision.text}; {trouble.message}", hint=collision.helps)
            return
