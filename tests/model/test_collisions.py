"""Which lanes are in each other's way, from what each uses."""

from dataclasses import replace

import pytest

from tfmon.model.events import LaneEnded
from tfmon.model.folder_views import IN_PLACE, OVERLAY, View
from tfmon.model.lane_relations import collision_lines, collisions, explain_collision
from tfmon.model.lane_state import LaneEnd, LaneState, ScriptFacts, Trouble, copied
from tfmon.model.spec import LaneSpec

FOLDER = "/home/u/project"


def lanes(first: dict[str, str], second: dict[str, str], host: str = "") -> list[LaneState]:
    specs = [LaneSpec("cpu", name="A", number=1), LaneSpec("cpu", name="B", number=2, host=host)]
    return [
        LaneState(spec, script=ScriptFacts("train.py", uses=uses))
        for spec, uses in zip(specs, (first, second), strict=True)
    ]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"/tmp/log": "w"}, {"/tmp/log": "rw"}, "cpu #1 and cpu #2 both write /tmp/log"),
        ({"/tmp/backup": "w"}, {"/tmp/backup": "r"}, "cpu #1 wrote /tmp/backup, and cpu #2 read it"),
        ({"/tmp/out/1": "w"}, {"/tmp/out": "d"}, "cpu #2 removed /tmp/out, and cpu #1 uses it"),
        ({"port 8080": "b"}, {"port 8080": "b"}, "cpu #1 and cpu #2 both bind port 8080"),
        ({"port 8080": "bb"}, {"port 8080": "b43211b43211"}, "port 8080 is cpu #1's; cpu #2 has 43211 instead"),
        ({"/tmp/a": "r"}, {"/tmp/a": "r"}, ""),
        ({"/tmp/a": "d"}, {"/tmp/a": "d"}, ""),
        ({"/tmp/out": "d"}, {"/tmp/output": "w"}, ""),
        ({"/tmp/A": "w"}, {"/tmp/B": "w"}, ""),
    ],
)
def test_what_both_use_is_told_once_and_by_name_if_it_does_harm(first, second, text):
    views = {"": View(IN_PLACE, FOLDER)}
    assert [collision.text for collision in collisions(lanes(first, second), views)] == [text] * bool(text)


def test_other_machines_and_views_of_their_own_are_no_collision():
    both = {f"{FOLDER}/a": "w", "/tmp/a": "w"}
    views = {"": View(OVERLAY, FOLDER), "gpu2": View(OVERLAY, FOLDER)}
    assert [collision.name for collision in collisions(lanes(both, both), views)] == ["/tmp/a"]
    assert collisions(lanes(both, both, host="gpu2"), views) == []
    assert collisions(lanes(both, both), {}) == [], "one lane, or a race of an older recording"


def test_a_few_of_many_are_told():
    many = {f"/tmp/{number}": "w" for number in range(9)}
    shared = collisions(lanes(many, many), {"": View(IN_PLACE, FOLDER)})
    assert collision_lines(shared)[-1] == "4 more are used by several lanes"


def explained(lane: LaneState, lanes, views) -> LaneState:
    result = copied(lane, LaneState)
    explain_collision(result, lanes, views)
    return result


def test_a_failure_that_names_it_is_explained_by_it_once():
    views = {"": View(IN_PLACE, FOLDER)}
    first, second = lanes({f"{FOLDER}/out/1.txt": "w"}, {f"{FOLDER}/out/1.txt": "w"})
    ended = LaneEnded(
        lane="A", at_ns=1, exit_code=1, signal=None, requested=False, output_tail=("saved out/1.txt",)
    )
    reason = "the script exited with code 1: FileExistsError: 'out/1.txt'"
    failed = replace(first, end=LaneEnd(event=ended), trouble=Trouble(reason))
    told = explained(failed, [failed, second], views)
    assert told.trouble is not None
    assert told.trouble.message.startswith("cpu #1 and cpu #2 both write out/1.txt; the script exited")
    assert explained(told, [told, second], views) == told
    other = replace(failed, trouble=Trouble("the script exited with code 1: no out1.txt, 11.txt, b-1.txt"))
    assert explained(other, [other, second], views) == other


def test_a_full_disk_under_a_view_is_named_by_its_folder():
    lane, other = lanes({}, {})
    reason = "the script exited with code 1: OSError: [Errno 28] No space left on device"
    failed = replace(lane, trouble=Trouble(reason))
    views = {"": View(OVERLAY, FOLDER, store="/var/races/20260101.files")}
    told = explained(failed, [failed, other], views).trouble
    assert told.message == reason and told.hint.startswith("what lanes write goes to /var/races: make room there")
    assert explained(failed, [failed, other], {"": View(IN_PLACE, FOLDER)}) == failed
