"""Contacts: how they are counted, and whose fault they are by fault.nuplan/1 (Q12, Q13)."""

from __future__ import annotations

import numpy as np
import pytest
from driving import car, lane, scene_of, trace_of
from hand_worked import FAULT, VEHICLE, crash, events

from skidpad.evaluation.metrics.contacts import find_contacts, judge_contacts
from skidpad.evaluation.metrics.fault import (
    Body,
    ContactType,
    LaneBoxes,
    contact_type,
    corners,
    is_at_fault,
    overlapping,
    straddles,
)
from skidpad.evaluation.metrics.registry import compute
from skidpad.evaluation.metrics.view import CaseView
from skidpad.scenes.events import Controller, Status

EGO = Body(0.0, 0.0, 0.0, 4.0, 2.0, 10.0)
LANES = scene_of([], [lane([(-100, 0), (100, 0)]), lane([(-100, 3.5), (100, 3.5)])]).road


@pytest.mark.parametrize(
    ("ego", "other", "agent", "kind", "fault"),
    [
        # Standing: 0.05 m/s is stopped, 0.06 is not.
        (EGO._replace(speed=0.05), Body(3.9, 0, 0, 4, 2, -5), True, ContactType.STOPPED_EGO, False),
        (EGO._replace(speed=0.06), Body(3.9, 0, 0, 4, 2, -5), True, ContactType.FRONT, True),
        # The other stands, or is a thing, wherever it is met.
        (EGO, Body(3.9, 0, 0, 4, 2, 0.05), True, ContactType.STOPPED_TRACK, True),
        (EGO, Body(-3.9, 0, 0, 4, 2, 5), False, ContactType.STOPPED_TRACK, True),
        (EGO, Body(0, 1.9, 0, 4, 2, 0.0), True, ContactType.STOPPED_TRACK, True),
        # Behind: bearing from the rear axle (at -1.13 m) above 150 degrees; at x = -3.9 that is up to 1.60 m aside.
        (EGO, Body(-3.9, 0, 0, 4, 2, 15), True, ContactType.REAR, False),
        (EGO, Body(-3.9, 1.5, 0, 4, 2, 15), True, ContactType.REAR, False),
        (EGO, Body(-3.9, 1.7, 0, 4, 2, 15), True, ContactType.LATERAL, False),
        # Own front face, square, at an angle, and only touching.
        (EGO, Body(3.9, 0, 0, 4, 2, 5), True, ContactType.FRONT, True),
        (EGO, Body(3.0, 1.5, np.pi / 2, 4, 2, 5), True, ContactType.FRONT, True),
        (EGO, Body(4.04, 0, 0, 4, 2, 5), True, ContactType.FRONT, True),
        # The other's front beside us, in lane and across its border (EGO's lane ends at y = 1.75).
        (EGO, Body(-1, 1.9, 0, 4, 2, 5), True, ContactType.LATERAL, False),
        (EGO._replace(y=1.0), Body(-1, 2.9, 0, 4, 2, 5), True, ContactType.LATERAL, True),
    ],
)  # fmt: skip
def test_staged_contacts(ego: Body, other: Body, agent: bool, kind: ContactType, fault: bool) -> None:
    """Q12: the rules in their order; each row differs from a neighbour in one thing."""
    found = contact_type(ego, other, agent)
    assert found is kind
    assert is_at_fault(found, straddles(ego, 0.0, LaneBoxes(LANES, 4.0))) is fault


def test_kinds_do_not_depend_on_where_and_which_way() -> None:
    """A turned or moved pair is the same contact; bearings and corners are easy to mix up in one frame."""
    other = Body(3.0, 1.5, 1.0, 4.5, 1.8, 5.0)
    for turn, dx, dy in ((0.5, 0, 0), (3.0, 100, -50), (-2.0, 1e4, 1e4)):

        def moved(body: Body, turn=turn, dx=dx, dy=dy) -> Body:
            cos, sin = np.cos(turn), np.sin(turn)
            return body._replace(
                x=dx + cos * body.x - sin * body.y, y=dy + sin * body.x + cos * body.y, heading=body.heading + turn
            )

        assert contact_type(moved(EGO), moved(other)) is contact_type(EGO, other)


def test_lanes_hold_points() -> None:
    """Ribbons end square, have round gaps at bends, know levels, and leave out lanes that are not driven."""
    road = scene_of(
        [],
        [
            lane([(0, 0, 0), (10, 0, 0), (10, 10, 0)], width=4.0),
            lane([(0, 0, 10), (10, 0, 10)], width=4.0),
            lane([(0, 0), (10, 0)], width=40.0, drivable=False),
        ],
        has_z=True,
    ).road
    boxes = LaneBoxes(road, 4.0)
    points = np.array([[5, 1.9], [5, 2.1], [-0.1, 0], [11.3, -1.3], [11.5, -1.5], [8.1, 5], [10, 10.1]])
    assert [len(found) for found in boxes.at(points, 0.0)] == [1, 0, 0, 1, 0, 1, 0]
    assert boxes.at(points[:1], 10.0) == [{1}]
    assert boxes.at(points[:1], 5.0) == [set()]


def test_straddling_allows_lanes_that_lead_into_each_other() -> None:
    """Q12: a car whose front is in the next lane of its way is in lane; beside it, it is not."""
    road = scene_of([], [lane([(0, 0), (10, 0)], exits=[1]), lane([(10, 0), (20, 0)]), lane([(10, 0), (20, 8)])]).road
    boxes = LaneBoxes(road, 4.0)
    assert not straddles(EGO._replace(x=10.0), 0.0, boxes)
    assert straddles(EGO._replace(x=10.0, y=1.5), 0.0, boxes)
    lonely = LaneBoxes(scene_of([], [lane([(0, 0), (10, 0)]), lane([(10, 0), (20, 0)])]).road, 4.0)
    assert straddles(EGO._replace(x=10.0), 0.0, lonely)


def test_overlap_of_boxes() -> None:
    """Separating axes of both boxes: two crossed bars overlap, and a corner beside a corner does not."""

    def box(*pose: float) -> np.ndarray:
        return corners(*(np.float64(value) for value in pose))

    assert overlapping(box(0, 0, 0, 10, 1), box(0, 0, np.pi / 2, 10, 1))
    assert not overlapping(box(0, 0, 0, 2, 2), box(2.5, 2.5, np.pi / 4, 2, 2))
    assert overlapping(box(0, 0, 0, 2, 2), box(1.6, 1.6, np.pi / 4, 2, 2))


def verdicts(made):
    return judge_contacts(CaseView(*made), 4.0)


def test_contact_is_judged_at_the_moment_it_began() -> None:
    """Two cars of 20 and 10 m/s, 1.5 m apart: contact at 0.15 s, half of step 2, energy (20 - 10) / 2 = 5 m/s."""
    made = crash()
    mine, theirs = verdicts(made)
    assert (mine.contact.first, mine.contact.last) == (1, 3)
    assert mine.contact.share == pytest.approx(0.5, abs=1e-5)
    assert (mine.kind, mine.fault) == (ContactType.FRONT, True)
    assert (theirs.kind, theirs.fault) == (ContactType.REAR, False)
    assert mine.energy == pytest.approx(5.0)


def test_rules_differ_and_say_so() -> None:
    """Q13: creeping at 0.1 m/s into a moving car is nobody's fault by fault.skidpad/1 (stopped below 0.2) and the
    front's by fault.nuplan/1 (stopped below 0.05)."""
    trace, scene = crash(speeds=(0.1, -10.0), gap=1.5)
    arrays = dict(trace.arrays)
    arrays["events"] = arrays["events"] & ~np.uint32(FAULT)  # as the simulator's own rule leaves it
    trace = type(trace)(trace.meta, arrays)
    found = compute(trace, scene)
    assert found["at_fault_collision_rate"].numerator == 1
    assert found["at_fault_skidpad_rate"].numerator == 0


def test_head_on_by_the_log_is_both_fronts_and_not_by_log() -> None:
    """`collision_by_log` is the replayed partner's fault and *not* ours; fronts that meet are ours as well."""
    heads = crash(
        speeds=(10.0, 10.0), gap=1.5, heading=np.pi, controllers=[Controller.POLICY, Controller.REPLAY], scored=[0]
    )
    assert [(item.fault, item.by_log) for item in verdicts(heads)] == [(True, False)]


def staged(x1, bits, partners, y1=0.0):
    """A standing car 0 and a car 1 at x1 per state; bits and partners of car 0 per state."""
    x1 = np.asarray(x1, dtype=float)
    n = len(x1)
    rows = np.zeros((2, n), dtype=np.int64)
    rows[0] = np.asarray(bits) * VEHICLE
    partner = np.full((2, n), -1)
    partner[0] = partners
    scene = scene_of([car(), car()], rows=n)
    return trace_of(
        scene, {"x": np.stack([0 * x1, x1]), "y": [[0.0], [y1]], "events": rows, "contact_partner": partner}, scored=[0]
    ), scene


@pytest.mark.parametrize(
    ("x1", "bits", "partners", "count"),
    [
        # Apart, touching, apart, touching again: two contacts with one partner.
        ([9, 3, 9, 3], [0, 1, 0, 1], [-1, 1, -1, 1], 2),
        # One that lasts, marked only where it began, or in every step: one.
        ([9, 3, 3, 3], [0, 1, 0, 0], [-1, 1, 1, 1], 1),
        ([9, 3, 3, 3], [0, 1, 1, 1], [-1, 1, 1, 1], 1),
        # The simulator names somebody else meanwhile, but the boxes still overlap: one.
        ([9, 3, 3, 3], [0, 1, 0, 0], [-1, 1, -1, 1], 1),
        # Swept through within a step: no overlap at any state, and still a contact.
        ([9, 9, -9, -9], [0, 0, 1, 0], [-1, -1, 1, -1], 1),
        # Overlapping from the start is none (S54) until they have been apart.
        ([3, 3, 3, 3], [0, 0, 0, 0], [-1, -1, -1, -1], 0),
        ([3, 9, 3, 3], [0, 0, 1, 0], [-1, -1, 1, 1], 1),
    ],
)
def test_contacts_that_last_are_one(x1, bits, partners, count: int) -> None:
    """S69, S54: distinct (partner, interval) pairs; counting steps would make a long contact a hundred crashes."""
    made = staged(x1, bits, partners)
    assert compute(*made, ["collision_events"])["collision_events"].numerator == count


def test_only_the_first_contact_with_a_partner_is_judged() -> None:
    """Q12: hit while standing, then rolling into the same car again: nuPlan looks at the first overlap only."""
    trace, scene = staged([9, 3, 9, 3], [0, 1, 0, 1], [-1, 1, -1, 1])
    speed = np.array([[0, 0, 5, 5], [-5, -5, 5, -5]], dtype=np.float32).T[None]
    again = type(trace)(trace.meta, trace.arrays | {"speed": speed})
    assert [item.kind for item in verdicts((again, scene))] == [ContactType.STOPPED_EGO]


def test_two_partners_in_one_step_are_two_contacts() -> None:
    """The trace names one partner a step; the other is found by its box, unless it overlapped from the start."""
    scene = scene_of([car(), car(), car(), car()])
    x = np.array([[0, 0, 0], [9, 3, 3], [-9, -3, -3], [0.5, 0.5, 0.5]], dtype=float)
    arrays = {
        "x": x,
        "events": events(4, 2, (0, 1, VEHICLE)),
        "contact_partner": [[-1, 1, 1], [-1, 0, 0], [-1, 0, 0], [-1, -1, -1]],
    }
    trace = trace_of(scene, arrays, scored=[0])
    assert [contact.partner for contact in find_contacts(CaseView(trace, scene))] == [1, 2]


def test_contact_with_a_newcomer_is_judged_where_it_stands() -> None:
    """Q12: who appears has no pose before; interpolating from the origin would put it kilometres away."""
    made, scene = crash()
    arrays = {name: array.copy() for name, array in made.arrays.items()}
    for name in ("x", "y", "speed"):
        arrays[name][0, :2, 1] = 0.0
    arrays["status"][0, :2, 1] = Status.ABSENT
    mine = verdicts((type(made)(made.meta, arrays), scene))[0]
    assert (mine.contact.agent, mine.kind) == (0, ContactType.FRONT)
    assert mine.energy == pytest.approx(5.0)


def test_nobody_named_is_still_a_contact() -> None:
    """A collision bit without a partner counts; it is judged by nobody."""
    made = staged([9, 9, 9], [0, 1, 0], [-1, -1, -1])
    assert compute(*made, ["collision_events"])["collision_events"].numerator == 1
    assert verdicts(made) == []
