"""Who trains when: scripts of events in a race, with the expected requests of the scheduler."""

import pytest
from support.scheduling import play

from tfmon.model.race import CONCURRENT, TURNS

START = """
ABC ready -: the signal comes with the last lane, and the first that was ready begins
    ready C, ready A -> ; starts 0
    ready B -> C1; starts 1

ABC at once ready -: at once all begin
    ready C, ready A -> ; starts 0
    ready B -> run C, run A, run B; starts 1

AB ready -: a lane that fails first does not block
    ended B, ready A -> A1; starts 1

AB ready -: a lane that fails last does not block
    ready A, ended B -> A1; starts 1

AB at once ready -: nor does one at once
    ready A, ended B -> run A; starts 1

AB at once ready -: nor does the first at once
    ended B, ready A -> run A; starts 1

AB ready -: lanes that wait for the signal are suspended in turns
    ready A -> ; suspended A

AB at once ready -: and at once are not
    ready A -> ; suspended -

AB ready -: lanes that are paused before the signal start when they may
    pause AB, ready A, ready B -> ; starts 0
    resume B -> B1; starts 1

AB: a restart is no second signal
    restarting A, ready A -> *; starts 1

AB ready -: a mode that is chosen before the signal counts
    ready A, set_mode concurrent ->
    ready B -> run A, run B; suspended -
"""
SLICES = """
AB: turns alternate
    idle A, idle B, idle B, idle A, idle A, idle B, idle B -> B1, B2, A2, A3, B3, B4, A4; slice A

ABC: all but the lane that trains are suspended
    idle A -> B1; slice B; suspended AC
    idle B -> C1; slice C; suspended AB
    idle C -> C2; slice C; suspended AB
    idle C -> B2; slice B; suspended AC
    idle B -> A2; slice A; suspended BC

A ready -: a lane alone trains without turns
    ready A -> run A; suspended -; slice -
    set_mode concurrent -> ; suspended -
    set_mode turns -> ; suspended -

AB: a lane that is over in its turn passes it on, and the last one to nobody
    ended A -> B1; slice B
    ended B -> ; slice -

AB: no slice is granted while a lane gets ready
    restarting B -> ; slice A
    idle A -> ; slice -; suspended AB
    ready B -> B1; slice B

AB: a lane that was over comes back
    ended B, restarting B, idle A ->
    ready B -> B1

AB: a restart that fails lets the others go on
    restarting A, ended A -> B1

AB at once: at once the others train on, and a new one joins
    restarting A ->
    ready A -> run A
"""
PAUSES = """
AB: in turns a paused lane is skipped
    pause B -> ; suspended B; slice A; paused B
    idle A -> A2

AB: a lane that is paused in its turn passes it on when it stands
    pause A -> pause A; slice A
    idle A -> B1; slice B; suspended A; paused A

AB: with all paused no slice is granted until one may run
    pause AB, idle A -> pause A; slice -; suspended AB
    resume AB -> B2; suspended A

AB at once: at once only the paused lane stands
    pause A, idle A -> pause A; suspended -
    resume A -> run A

AB at once: a lane that may run before it stopped runs on
    pause A, resume A -> pause A
    idle A -> run A

ABC: a lane that is over or not ready is told nothing
    ended C, restarting B, pause BC ->
"""
MODES = """
ABC: from turns to at once all run when the slice is over
    set_mode concurrent -> run B, run C; suspended -; slice -
    idle A -> run A; suspended -

AB at once: from at once to turns all stand still before the first turn
    set_mode turns -> pause A, pause B
    idle B -> ; suspended B
    idle A -> A1; suspended B; slice A

AB at once: a lane that stood already is suspended when turns begin
    pause B, idle B -> pause B
    set_mode turns -> pause A; suspended B
    idle A -> A1; suspended B

AB: rounds are not counted from the beginning again
    set_mode concurrent, idle A, set_mode turns -> *
    idle A, idle B -> B2
"""
EXCLUSIVE = """
AB: in turns it gets every slice when the other has ended its own
    set_exclusive B -> ; slice A
    idle A, idle B -> B1, B2; suspended A; slice B

AB at once: training at once the others hold, and it goes over to slices
    set_exclusive A -> pause A, pause B
    idle B ->
    idle A -> A1; suspended B

AB at once: afterwards all go on as the mode says
    set_exclusive A, idle B, idle A -> *
    set_exclusive - -> run B; slice -
    idle A -> run A; suspended -

A: a race of one lane goes over to slices and back
    set_exclusive A, idle A -> pause A, A1
    set_exclusive -, idle A -> run A; suspended -
"""
MACHINES = """
AB+C: lanes of one machine take turns, and those of others train meanwhile
    -> ; slice C; beside A
    idle A -> B1; slice B; beside C
    idle B -> ; slice -; beside C
    idle C -> C2, B2
    idle B -> A2

AB+C: a machine whose lanes are over keeps the others waiting no longer
    idle A, idle B -> B1
    ended C -> B2; beside -

AB+C: a lane that has the race for itself trains alone on all machines
    set_exclusive C 2.0, idle A, idle C -> C2; slice C; beside -
    set_exclusive -, idle C -> A3, C3
"""
HANGS = """
A: without others one that hangs is waited for
    skip A -> ; suspended -
    responded A -> ; answer True

AB at once: concurrent lanes are not suspended
    skip A -> ; suspended -
    responded A -> ; answer True

ABC ready BC: the others begin without one that hangs before it is ready
    -> ; starts 0
    skip A -> B1; starts 1; suspended C

ABC at once ready BC: the others begin at once without it
    -> ; starts 0
    skip A -> run B, run C; starts 1; suspended -

AB ready B: one that goes on getting ready has the machine for itself again
    skip A -> B1; slice B
    responded A -> ; answer True
    idle B -> ; slice -
    ready A -> B2; slice B

AB: it is ended and in the race again
    skip A, ended A -> *
    ready A, idle B, idle B -> B2, A2

AB: it is restarting and in the race again
    skip A, restarting A -> *
    ready A, idle B, idle B -> B2, A2
"""


def cases() -> list:
    """Return lanes, mode, the lanes that are ready, and script of each case; `AB+C` are lanes of two machines."""
    found = []
    for case in "".join((START, SLICES, PAUSES, MODES, EXCLUSIVE, MACHINES, HANGS)).strip().split("\n\n"):
        head, _, script = case.partition("\n")
        race, _, says = head.partition(": ")
        lanes, _, ready = race.partition(" ready ")
        mode = CONCURRENT if lanes.endswith(" at once") else TURNS
        lanes = lanes.removesuffix(" at once").replace("+", " ")
        found.append(pytest.param(lanes, mode, ready.strip("-") if ready else None, script, id=says))
    return found


@pytest.mark.parametrize(("lanes", "mode", "ready", "script"), cases())
def test_the_scheduler_follows_the_script(race, begin, lanes, mode, ready, script):
    play(race, begin(lanes, mode, ready), script)


def test_the_signal_is_given_again_in_the_next_race(race, begin):
    scheduler = begin()
    scheduler.begin("C", TURNS, 0.5)
    scheduler.ready("C")
    assert race.starts == 2


def test_slices_of_an_exclusive_lane_may_be_of_another_length(race, begin):
    scheduler = begin()
    scheduler.idle("A")
    race.seconds.clear()
    scheduler.set_exclusive("A", 0.25)
    scheduler.idle("B")
    scheduler.set_exclusive("")
    scheduler.idle("A")
    assert race.seconds == [0.25, 0.5]
