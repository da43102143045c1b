"""What follows from events (S58, S61 to S64, S68): symmetric, in one step, and never back to life."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from bare_maps import Bare, town
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.scenes.events import Controller, Ending, Event, Reason, Status
from skidpad.scenes.lanes import lane_lengths
from skidpad.simulation import state as at

CASES = {
    at.COLLISION_BEHAVIOUR: (Event.COLLISION_VEHICLE, Reason.COLLISION),
    at.OFFROAD_BEHAVIOUR: (Event.OFFROAD, Reason.OFFROAD),
    at.RED_LIGHT_BEHAVIOUR: (Event.RED_LIGHT, Reason.RED_LIGHT),
    at.STOP_SIGN_BEHAVIOUR: (Event.STOP_SIGN, Reason.STOP_SIGN),
}


def crowd(agents=4, name="Town05", controller=Controller.POLICY):
    """Active agents with goals, at distinct places, 5 m/s fast."""
    bare = Bare(town(name), agents)
    bare.u1[at.STATUS], bare.u1[at.BODY], bare.u1[at.CONTROLLER] = Status.ACTIVE, 1, controller
    bare.f4[at.X], bare.f4[at.SPEED], bare.f4[at.COS] = 10.0 * np.arange(agents), 5.0, 1.0
    bare.f4[at.LENGTH], bare.f4[at.WIDTH] = 4.5, 1.8
    for a in range(agents):
        bare.new_goals(a, int(bare.spawn_lane[a]), 1.0)
    return bare


@pytest.mark.parametrize("parameter", CASES)
@pytest.mark.parametrize("behaviour", [at.IGNORE, at.STOP, at.REMOVE])
def test_each_infraction_has_its_behaviour(parameter, behaviour):
    """S62, S63: ignore leaves the agent as it is, stop keeps its body at rest, remove takes it; the reason is kept, and
    the other classes are untouched by the setting."""
    event, reason = CASES[parameter]
    for other in CASES:
        bare = crowd()
        bare.parameters[parameter] = behaviour
        bare.events[1] = CASES[other][0]
        bare.outcomes()
        acts = behaviour != at.IGNORE and other == parameter
        wanted = {at.STOP: Status.STOPPED, at.REMOVE: Status.REMOVED}[behaviour] if acts else Status.ACTIVE
        assert bare.u1[at.STATUS].tolist() == [Status.ACTIVE, wanted, Status.ACTIVE, Status.ACTIVE]
        assert bare.u1[at.BODY, 1] == (wanted != Status.REMOVED)
        assert bare.i4[at.REASON, 1] == (reason if acts else Reason.NONE)
        assert bare.f4[at.SPEED, 1] == (0.0 if acts else 5.0)
        assert bare.f4[at.X, 1] == (0.0 if wanted == Status.REMOVED else 10.0)
    assert event


def test_the_stronger_behaviour_wins():
    """S63: with two infractions in one step, removal stands before stopping, whatever the order of the classes."""
    for first, second in itertools.permutations(CASES, 2):
        bare = crowd()
        bare.parameters[first], bare.parameters[second] = at.STOP, at.REMOVE
        bare.events[0] = CASES[first][0] | CASES[second][0]
        bare.outcomes()
        assert bare.u1[at.STATUS, 0] == Status.REMOVED
        assert bare.i4[at.REASON, 0] == CASES[second][1]


@pytest.mark.parametrize("pair", list(itertools.permutations(range(4), 2)))
def test_a_head_on_pair_is_removed_together(pair):
    """S63: both are charged and both go in the same step, for every order of the two (peer: the lower index first)."""
    bare = crowd()
    bare.parameters[at.COLLISION_BEHAVIOUR] = at.REMOVE
    bare.events[list(pair)] = Event.COLLISION_VEHICLE
    bare.outcomes()
    gone = bare.u1[at.STATUS] == Status.REMOVED
    assert sorted(np.flatnonzero(gone).tolist()) == sorted(pair)
    assert (bare.u1[at.BODY] == ~gone).all()
    assert (bare.events[list(pair)] == Event.COLLISION_VEHICLE).all()


@pytest.mark.parametrize("controller", [Controller.REPLAY, Controller.STATIC])
def test_the_log_is_not_to_be_stopped(controller):
    """S63: who does not drive is neither stopped nor removed nor counted."""
    bare = crowd(controller=controller)
    for parameter in CASES:
        bare.parameters[parameter] = at.REMOVE
    bare.events[:] = Event.COLLISION_VEHICLE | Event.OFFROAD
    bare.outcomes()
    assert (bare.u1[at.STATUS] == Status.ACTIVE).all()
    assert bare.world[at.GONE_AGENTS, 0] == bare.world[at.ACTIVE_AGENTS, 0] == 0


@settings(max_examples=150, deadline=None)
@given(
    behaviours=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    steps=st.lists(st.lists(st.integers(0, 31), min_size=4, max_size=4), min_size=1, max_size=12),
)
def test_nobody_comes_back(behaviours, steps):
    """S62, S68: over random events the status only goes active -> stopped, removed or retired and stays; active steps
    are those before that, so that an average over them knows no standing time."""
    bare = crowd()
    for parameter, behaviour in zip(CASES, behaviours, strict=True):
        bare.parameters[parameter] = behaviour
    bits = [event for event, _ in CASES.values()] + [Event.COMFORT]
    active = np.zeros(4, int)
    for step, codes in enumerate(steps):
        before = bare.u1[at.STATUS].copy()
        bare.world[at.STEP] = step + 1
        bare.events[:] = [sum(bit for n, bit in enumerate(bits) if code >> n & 1) for code in codes]
        bare.outcomes()
        active += before == Status.ACTIVE
        left = before != Status.ACTIVE
        assert (bare.u1[at.STATUS, left] == before[left]).all()
        assert (bare.u1[at.BODY] == (bare.u1[at.STATUS] != Status.REMOVED)).all()
        assert ((bare.i4[at.REASON] != 0) == (bare.u1[at.STATUS] != Status.ACTIVE)).all()
        assert bare.world[at.ACTIVE_AGENTS, 0] + bare.world[at.GONE_AGENTS, 0] == 4
    assert (bare.i4[at.ACTIVE_STEPS] == active).all()


@pytest.mark.parametrize(
    ("gone", "threshold", "ends"), [(1, 0.4, False), (2, 0.4, True), (2, 1.0, False), (4, 9.0, True)]
)
def test_too_few_left_end_the_episode(gone, threshold, ends):
    """S64: the episode ends when gone / active is above the threshold: 1 of 4 is 0.33, 2 of 4 is 1."""
    bare = crowd()
    bare.parameters[at.INACTIVE_THRESHOLD] = threshold
    bare.parameters[at.OFFROAD_BEHAVIOUR] = at.STOP
    bare.events[:gone] = Event.OFFROAD
    bare.outcomes()
    assert bare.world[at.GONE_AGENTS, 0] == gone
    assert bare.world[at.ENDING, 0] == (Ending.INACTIVE if ends else Ending.NONE)


def reach_all(bare, a):
    """Agent a has reached its whole set in this step."""
    bare.i4[at.GOAL_NEXT, a] = bare.goals.size[a]
    bare.events[a] = Event.GOAL


def test_the_egos_last_goal_ends_the_episode():
    """S64 `end_on_goal`: the ego's, nobody else's, and only if asked for."""
    for agent, asked in itertools.product((0, 2), (False, True)):
        bare = crowd()
        bare.world[at.EGO] = 2
        bare.parameters[at.END_ON_GOAL] = asked
        reach_all(bare, agent)
        bare.outcomes()
        assert bare.world[at.ENDING, 0] == (Ending.GOAL if agent == 2 and asked else Ending.NONE)


def test_goals_are_new_before_anybody_looks():
    """S61: after the step's outcomes the goal table already holds the next goals, ahead of the one reached."""
    bare = crowd()
    old = bare.goals.points[0].copy()
    reach_all(bare, 0)
    bare.outcomes()
    assert bare.i4[at.GOAL_NEXT, 0] == 0
    assert bare.u1[at.STATUS, 0] == Status.ACTIVE
    assert (bare.goals.points[0] != old).any()


def test_an_agent_without_a_goal_retires():
    """S61, S62: at the end of all roads the agent retires with its reason, loses its body, and counts as gone."""
    bare = crowd(name="straight")
    road = bare.scene.road
    end = int(next(lane for lane in bare.spawn_lane if not len(road.exits(lane))))
    bare.routes.size[0] = 0
    bare.new_goals(0, end, float(lane_lengths(road)[end]) - 25.0)
    reach_all(bare, 0)
    bare.outcomes()
    assert bare.u1[at.STATUS, 0] == Status.RETIRED
    assert bare.u1[at.BODY, 0] == 0
    assert bare.i4[at.REASON, 0] == Reason.NO_GOAL
    assert bare.world[at.GONE_AGENTS, 0] == 1


def test_leaving_at_the_goal():
    """S61, S62 `retire`: at its last goal, not before, a driver leaves with its body and its reason, so that nobody can
    run into it; whoever has arrived is not gone, or a full success would end the episode as a failure."""
    bare = crowd()
    bare.parameters[at.GOAL_BEHAVIOUR] = at.GOALS_RETIRE
    bare.parameters[at.INACTIVE_THRESHOLD] = 0.0
    bare.i4[at.GOAL_NEXT, 2], bare.events[2] = bare.goals.size[2] - 1, Event.GOAL
    reach_all(bare, 3)
    bare.outcomes()
    assert bare.u1[at.STATUS].tolist() == [Status.ACTIVE] * 3 + [Status.RETIRED]
    assert bare.u1[at.BODY].tolist() == [1, 1, 1, 0]
    assert bare.i4[at.REASON, 3] == Reason.GOAL
    assert bare.world[at.GONE_AGENTS, 0] == 0
    assert bare.world[at.ENDING, 0] == Ending.NONE


def test_stopping_at_the_goal():
    """S61 `stop` (compat v2): the agent stands at its last goal, with its body."""
    bare = crowd()
    bare.parameters[at.GOAL_BEHAVIOUR] = at.GOALS_STOP
    reach_all(bare, 3)
    bare.outcomes()
    assert bare.u1[at.STATUS, 3] == Status.STOPPED
    assert bare.u1[at.BODY, 3] == 1
    assert bare.i4[at.REASON, 3] == Reason.GOAL


def test_going_back_as_a_ghost():
    """S58 `respawn` (compat v2): the agent is put back to its own start with its own goals before it, as a ghost; no
    other agent is looked at, so none can be hit by a wrong window."""
    for agent in range(4):
        bare = crowd()
        bare.parameters[at.GOAL_BEHAVIOUR] = at.GOALS_RESPAWN
        bare.f4[at.START_X], bare.f4[at.START_Y] = 100.0 + np.arange(4), 7.0
        bare.f4[at.START_HEADING], bare.f4[at.START_SPEED] = 0.5, 2.0
        others = np.arange(4) != agent
        before = bare.f4[:, others].copy()
        reach_all(bare, agent)
        bare.outcomes()
        assert bare.f4[at.X, agent] == 100.0 + agent
        assert bare.f4[at.SPEED, agent] == 2.0
        assert bare.f4[[at.COS, at.SIN], agent] == pytest.approx([np.cos(0.5), np.sin(0.5)], abs=1e-6)
        assert bare.u1[at.GHOST].tolist() == (~others).tolist()
        assert bare.i4[at.GOAL_NEXT, agent] == 0
        assert bare.u1[at.STATUS, agent] == Status.ACTIVE
        np.testing.assert_array_equal(bare.f4[:, others], before)
