"""Contact between agents: swept boxes, onset, partners and fault (S54, S69, S78, S99)."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from stage import Actor, World, driving, lanes_of

from skidpad.scenes.events import Event
from skidpad.scenes.scene import SUBTYPE_CAR, SUBTYPE_STATIC, TYPE_CYCLIST, TYPE_PEDESTRIAN, TYPE_UNKNOWN, TYPE_VEHICLE
from skidpad.simulation.kernels.geometry import NEVER, turning_boxes

VEHICLE, FAULT, BEHIND = int(Event.COLLISION_VEHICLE), int(Event.AT_FAULT), int(Event.HIT_FROM_BEHIND)


def first_touch(a: naive.Move, b: naive.Move) -> float:
    """The kernel's contact time of two moves."""
    (xa, ya, ha), (xb, yb, hb) = a.start, b.start
    va, vb = np.subtract(a.stop[:2], a.start[:2]), np.subtract(b.stop[:2], b.start[:2])
    return turning_boxes(
        xb - xa,
        yb - ya,
        float(vb[0] - va[0]),
        float(vb[1] - va[1]),
        math.cos(ha),
        math.sin(ha),
        a.length / 2,
        a.width / 2,
        float(naive.wrap(a.stop[2] - ha)),
        math.cos(hb),
        math.sin(hb),
        b.length / 2,
        b.width / 2,
        float(naive.wrap(b.stop[2] - hb)),
    )


def near_misses(rng, count):
    """Pairs of turning boxes, cars and trucks, moved towards each other until they nearly touch."""
    while count:
        moves = []
        for _ in range(2):
            heading, turn = rng.uniform(-math.pi, math.pi), rng.normal(0, 0.15)
            dx, dy = rng.normal(0, 1.5, 2)
            length, width = (rng.uniform(0.5, 5), rng.uniform(0.4, 2.2)) if rng.random() < 0.8 else (16.0, 2.6)
            x, y = rng.uniform(-9, 9, 2)
            moves.append(naive.Move((x, y, heading), (x + dx, y + dy, heading + turn), length, width))
        a, b = moves
        direction = np.array([b.start[0] - a.start[0], b.start[1] - a.start[1]])
        direction /= np.hypot(*direction)
        # Two shifts along the line of centres bring the least separation close to zero.
        for _ in range(2):
            shift = naive.separations(a, b, 31).min() - rng.normal(0, 0.03)
            b = naive.Move(
                (b.start[0] - shift * direction[0], b.start[1] - shift * direction[1], b.start[2]),
                (b.stop[0] - shift * direction[0], b.stop[1] - shift * direction[1], b.stop[2]),
                b.length,
                b.width,
            )
        if abs(naive.separations(a, b, 51).min()) < 0.2:
            count -= 1
            yield a, b


@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_turning_boxes_against_sub_sampled_poses(count):
    """S69: no penetration above 1 cm is missed and no gap above 2 cm is a hit; larger pieces would be cheaper."""
    rng = np.random.default_rng(1)
    hits = 0
    for a, b in near_misses(rng, count):
        least = naive.separations(a, b).min()
        when = first_touch(a, b)
        if least < -0.01:
            assert when != NEVER, (a, b, least)
        if when != NEVER:
            hits += 1
            assert least < 0.02, (a, b, least)
            assert naive.separation(a.at(np.array(when)), b.at(np.array(when))) < 0.02  # the time is a time of touch
    assert 0.25 < hits / count < 0.75  # the sample holds both kinds


def test_sliding_boxes_are_exact():
    """Without turning there are no pieces, so contact time is exact: it is what pairs are ranked by."""
    ego = naive.Move((0, 0, 0), (2, 0, 0), 4, 2)
    assert first_touch(ego, naive.Move((5, 0, 0), (5, 0, 0), 4, 2)) == 0.5
    assert first_touch(ego, naive.Move((6, 2, 0), (6, 2, 0), 4, 2)) == 1.0  # touching at a corner is contact
    assert first_touch(ego, naive.Move((6.001, 0, 0), (6.001, 0, 0), 4, 2)) == NEVER
    assert first_touch(ego, naive.Move((3, 2.001, 0), (3, 2.001, 0), 4, 2)) == NEVER
    assert first_touch(ego, naive.Move((1, 0, 1), (1, 0, 1), 4, 2)) == 0.0


def test_head_on_at_speed_is_not_jumped_over():
    """Two 2 m boxes at 40 m/s each with dt 0.3 move 24 m relative in a step: only a swept test sees them meet (S69)."""
    actors = [driving(-10, 0, 0, 40, 0.3, length=2.0), driving(10, 0, math.pi, 40, 0.3, length=2.0)]
    found = World(2).step(actors)
    assert found.events.tolist() == [VEHICLE | FAULT] * 2
    assert found.partner.tolist() == [1, 0]
    np.testing.assert_allclose(found.time, 18 / 24, atol=1e-6)


def test_a_turn_on_the_spot_sweeps():
    """A 90 degree turn in place meets what stands beside the box at neither end of the step (S69)."""
    turner = Actor((0, 0, -math.pi / 4), (0, 0, math.pi / 4), length=6.0, width=1.0)
    post = Actor((2.8, 0, 0), (2.8, 0, 0), length=0.2, width=0.2, subtype=SUBTYPE_STATIC)
    assert (
        naive.separations(naive.Move(turner.start, turner.stop, 6, 1), naive.Move(post.start, post.stop, 0.2, 0.2))[
            [0, -1]
        ].min()
        > 1
    )
    found = World(2).step([turner, post])
    assert found.events[0] & Event.COLLISION_STATIC


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, where nothing is compiled
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", range(3))
def test_a_broken_pose_touches_nobody(bad, field):
    """NaN compares false in every direction; a test written the other way round would report contact with everybody."""
    pose = [0.0, 0.0, 0.0]
    pose[field] = bad if field < 2 else math.nan
    others = [driving(0, 0, 0, 5), Actor((0, 0, 0), (0, 0, 0))]
    for broken in (Actor(tuple(pose), (0, 0, 0)), Actor((0, 0, 0), tuple(pose))):
        found = World(3).step([broken, *others])
        assert found.events[0] == 0
        assert found.partner.tolist() == [-1, 2, 1]


def test_empty_single_and_far_worlds():
    """No agent, one agent, and agents at 1e7 m, where float32 knows whole metres only."""
    assert World(0).step([]).events.tolist() == []
    assert World(1).step([driving(0, 0, 0, 5)]).partner.tolist() == [-1]
    far = [Actor((1e7, 1e7, 0), (1e7 + 2, 1e7, 0)), Actor((1e7 + 5, 1e7, 0), (1e7 + 5, 1e7, 0))]
    near = [Actor((0, 0, 0), (2, 0, 0)), Actor((5, 0, 0), (5, 0, 0))]
    for there, here in zip(World(2).step(far), World(2).step(near), strict=True):
        assert there.tolist() == here.tolist()


def test_place_on_the_map_does_not_matter():
    """A crash 16 km from the origin is the crash at the origin, bit for bit: relative positions are taken first."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        actors, moved = [], []
        for _ in range(6):
            x, y, dx, dy = (round(v * 64) / 64 for v in (*rng.uniform(-6, 6, 2), *rng.uniform(-2, 2, 2)))
            heading, turn = rng.uniform(-3, 3), rng.normal(0, 0.1)
            shift = 16384.0
            actors.append(Actor((x, y, heading), (x + dx, y + dy, heading + turn)))
            moved.append(Actor((x + shift, y - shift, heading), (x + dx + shift, y + dy - shift, heading + turn)))
        for here, there in zip(World(6).step(actors), World(6).step(moved), strict=True):
            assert here.tobytes() == there.tobytes()


def crowd(rng, count, spread):
    """Actors of all kinds, close together."""
    kinds = [(TYPE_VEHICLE, SUBTYPE_CAR), (TYPE_PEDESTRIAN, 0), (TYPE_CYCLIST, 0), (TYPE_UNKNOWN, 0)]
    kinds.append((TYPE_VEHICLE, SUBTYPE_STATIC))
    actors = []
    for _ in range(count):
        type_, subtype = kinds[rng.integers(len(kinds))]
        actors.append(
            driving(
                *rng.uniform(-spread, spread, 2),
                rng.uniform(-math.pi, math.pi),
                rng.uniform(0, 20),
                turn=rng.normal(0, 0.05),
                length=rng.uniform(0.5, 6),
                width=rng.uniform(0.4, 2.5),
                z=float(rng.integers(0, 2) * 6),
                type=type_,
                subtype=subtype,
                before=rng.random() > 0.1,
                after=rng.random() > 0.1,
            )
        )
    return actors


KIND_BIT = {
    (TYPE_VEHICLE, SUBTYPE_CAR): Event.COLLISION_VEHICLE,
    (TYPE_PEDESTRIAN, 0): Event.COLLISION_VRU,
    (TYPE_CYCLIST, 0): Event.COLLISION_VRU,
    (TYPE_UNKNOWN, 0): Event.COLLISION_STATIC,
    (TYPE_VEHICLE, SUBTYPE_STATIC): Event.COLLISION_STATIC,
}


def test_contacts_of_a_crowd_equal_the_twin():
    """Broad phase, level gate, missing bodies and kinds together give what testing every pair by samples gives."""
    rng = np.random.default_rng(5)
    collision = int(Event.COLLISION_VEHICLE | Event.COLLISION_VRU | Event.COLLISION_STATIC)
    compared = contacts = 0
    for _ in range(30):
        actors = crowd(rng, 12, 9.0)
        expected, doubtful = [0] * 12, False
        partners: list[set[int]] = [set() for _ in actors]
        for i, a in enumerate(actors):
            for j, b in enumerate(actors):
                if i == j or a.z != b.z or not (a.before and a.after and b.before and b.after):
                    continue
                if math.dist(a.start[:2], b.start[:2]) > 12:  # 6.5 m of boxes, 4 m of driving
                    continue
                least = naive.separations(
                    naive.Move(a.start, a.stop, a.length, a.width), naive.Move(b.start, b.stop, b.length, b.width), 201
                ).min()
                doubtful |= -0.02 < least < 0.02
                if least < 0:
                    expected[i] |= int(KIND_BIT[b.type, b.subtype])
                    partners[i].add(j)
        if doubtful:
            continue
        compared += 1
        contacts += sum(map(bool, expected))
        found = World(12, gate=4.0).step(actors)
        assert (found.events & collision).tolist() == expected
        assert found.touching.tolist() == [int(bool(p)) for p in partners]
        for partner, possible in zip(found.partner, partners, strict=True):
            assert partner in possible if possible else partner == -1
    assert compared > 10
    assert contacts > 50


def test_contact_is_mutual_and_order_free():
    """Permuting agents permutes the results and changes no bit (S36): a pair is tested once, in either order."""
    rng = np.random.default_rng(6)
    for _ in range(100):
        actors = crowd(rng, 10, 7.0)
        lanes = lanes_of(10)._replace(offset=rng.uniform(-2, 2, 10).astype(np.float32))
        plain = World(10, lanes, gate=4.0).step(actors)
        for i, partner in enumerate(plain.partner):
            assert partner < 0 or plain.touching[partner]
            assert bool(plain.touching[i]) == (partner >= 0)
        order = rng.permutation(10)
        mixed = World(10, type(lanes)(*(v[order] for v in lanes)), gate=4.0, keys=order).step(
            [actors[k] for k in order]
        )
        assert mixed.events.tobytes() == plain.events[order].tobytes()
        assert mixed.time.tobytes() == plain.time[order].tobytes()
        assert mixed.touching.tobytes() == plain.touching[order].tobytes()
        back = [order[p] if p >= 0 else -1 for p in mixed.partner]
        assert back == plain.partner[order].tolist()


def test_equal_times_go_to_the_lower_key():
    """Two walls hit at the same moment: the partner is named by track, not by slot (S36)."""
    ego = driving(0, 0, 0, 20)
    walls = [Actor((4.5, y, 0), (4.5, y, 0), width=0.5) for y in (0.5, -0.5)]
    assert World(3, keys=[5, 9, 8]).step([ego, *walls]).partner[0] == 2
    assert World(3, keys=[5, 8, 9]).step([ego, *walls]).partner[0] == 1


def test_a_world_inside_a_batch_is_the_world_alone():
    """Agents before and after the range are neither read as partners nor written (S34)."""
    from stage import bodies_of

    from skidpad.simulation.kernels.agent_grid import BLOCK, GRID_ROWS
    from skidpad.simulation.kernels.contact import CONTACT_SLOTS, Contacts, agent_contacts, pair_count

    rng = np.random.default_rng(8)
    actors = crowd(rng, 30, 8.0)
    alone = World(10).step(actors[10:20])
    batch = Contacts(
        np.zeros(30, np.uint32), np.full(30, 7, np.int32), np.full(30, 7, np.float32), np.zeros(30, np.uint8)
    )
    places = np.empty(CONTACT_SLOTS * 10 + 2, np.int32)
    bodies, scratch = bodies_of(actors), (np.empty((GRID_ROWS, 10 + BLOCK), np.float32), places)
    agent_contacts(bodies, lanes_of(30), 10, 20, np.inf, np.zeros(pair_count(10), np.uint8), *scratch, batch)
    for part, whole in zip(alone, batch, strict=True):
        assert part.tobytes() == whole[10:20].tobytes()
    assert (batch.partner[:10] == 7).all()
    assert (batch.partner[20:] == 7).all()


# ------------------------------------------------------------------------------------------------ onset and lasting


def test_a_lasting_contact_is_one_event():
    """A 20-step contact is charged once (S99); `touching` and the partner stay until it ends."""
    world = World(2)
    assert world.step([driving(0, 0, 0, 10), Actor((4.5, 0, 0), (4.5, 0, 0))]).time[0] == 0.5
    for step in range(19):
        found = world.step([driving(1 + 0.1 * step, 0, 0, 1), Actor((4.5, 0, 0), (4.5, 0, 0))])
        assert found.events.tolist() == [0, 0]
        assert found.touching.tolist() == [1, 1]
        assert found.partner.tolist() == [1, 0]
        assert found.time.tolist() == [0, 0]
    apart = world.step([driving(-3, 0, 0, 1), Actor((4.5, 0, 0), (4.5, 0, 0))])
    assert apart.touching.tolist() == [0, 0]
    assert world.step([driving(0, 0, 0, 10), Actor((4.5, 0, 0), (4.5, 0, 0))]).events[0] & VEHICLE


def test_a_new_contact_outranks_a_lasting_one():
    """The partner of a step is who was met in it, not who has been touched for a while."""
    world = World(3)
    wall, other = Actor((0, 2, 0), (0, 2, 0)), Actor((4.5, 0, 0), (4.5, 0, 0))
    world.step([Actor((0, -0.2, 0), (0, 0.1, 0)), wall, other])
    found = world.step([Actor((0, 0.1, 0), (1, 0.1, 0)), wall, other])
    assert found.partner[0] == 2
    assert found.time[0] == pytest.approx(0.5)


def test_overlap_at_the_start_is_no_collision_until_they_part():
    """S54: parked boxes that overlap in the log give no step-1 collision, but a later crash of the same pair counts."""
    parked = [Actor((0, 0, 0), (0, 0, 0)), Actor((3, 0.5, 0.1), (3, 0.5, 0.1))]
    world = World(2)
    for actors in ([Actor(a.start, a.stop, before=False) for a in parked], parked, parked):
        found = world.step(actors)
        assert found.events.tolist() == [0, 0]
        assert found.partner.tolist() == [-1, -1]
        assert found.touching.tolist() == [0, 0]
    leaving = world.step([driving(0, 0, 0, -20), parked[1]])
    assert leaving.events.tolist() == [0, 0]
    assert world.step([driving(-2, 0, 0, 30), parked[1]]).events[1] & VEHICLE


def test_an_agent_that_appears_on_top_of_another_has_not_driven_into_it():
    """The log may bring an agent where a simulated one stands: no driving led to the overlap, so it is like S54."""
    world = World(2)
    ego, late = Actor((0, 0, 0), (0, 0, 0)), Actor((1, 0, 0), (1, 0, 0), before=False)
    assert world.step([ego, late]).events.tolist() == [0, 0]
    assert world.step([ego, late.standing()]).events.tolist() == [0, 0]
    gone = Actor((1, 0, 0), (1, 0, 0), after=False)
    assert world.step([ego, gone]).touching.tolist() == [0, 0]
    # Absent ones keep no state: coming back apart and driving in is a collision.
    assert world.step([ego, Actor((9, 0, 0), (9, 0, 0), before=False)]).events.tolist() == [0, 0]
    assert world.step([ego, driving(9, 0, math.pi, 60)]).events[1] & VEHICLE


def test_levels_do_not_meet():
    """A bridge 6 m above is another road; without heights in the map nothing is above (S9)."""
    actors = [driving(0, 0, 0, 10), Actor((2, 0, 1), (2, 0, 1), z=6.0)]
    assert World(2, gate=4.0).step(actors).events.tolist() == [0, 0]
    assert World(2).step(actors).events.all()
    low = [driving(0, 0, 0, 10), Actor((4.5, 0, 1), (4.5, 0, 1), z=1.7)]
    assert World(2, gate=4.0).step(low).events.tolist() == [0, 0]  # 1.7 m up clears boxes of 1.5 m


# ------------------------------------------------------------------------------------------------------------- fault

STAGED = {
    # name: (self, other, own lane offset, expected bits of self)
    "stands and is hit": (Actor((0, 0, 0), (0, 0, 0)), driving(-4.5, 0, 0, 10), 0.0, 0),
    "creeps below the threshold": (driving(0, 0, 0, 0.19), driving(4.51, 0, math.pi, 10), 0.0, 0),
    "hits one that stands": (driving(0, 0, 0, 10), Actor((4.5, 0, 0), (4.5, 0, 0)), 0.0, FAULT),
    "hits one that creeps": (driving(0, 0, 0, 10), driving(4.5, 0, 0, 0.2), 0.0, FAULT),
    "backs into one that stands": (
        driving(0, 0, math.pi, -10),
        Actor((4.5, 0, math.pi), (4.5, 0, math.pi)),
        0.0,
        FAULT,
    ),
    "is rear-ended": (driving(0, 0, 0, 5), driving(-4.3, 0.3, 0, 10), 0.0, BEHIND),
    "rear-ends": (driving(0, 0, 0, 10), driving(4.3, 0.3, 0, 5), 0.0, FAULT),
    "head-on": (driving(0, 0, 0, 10), driving(4.5, 0, math.pi, 10), 0.0, FAULT),
    "T-bones": (driving(0, 0, 0, 10), driving(3.8, -0.5, math.pi / 2, 5), 0.0, FAULT),
    "is T-boned in its lane": (driving(0, 0, 0, 5), driving(0.5, -3.5, math.pi / 2, 8), 0.0, 0),
    "is side-swiped in its lane": (driving(0, 0, 0, 10), Actor((-0.5, 2.2, 0), (0.5, 1.9, 0), speed=10.0), 0.0, 0),
    "is side-swiped while straddling": (
        driving(0, 0, 0, 10),
        Actor((-0.5, 2.2, 0), (0.5, 1.9, 0), speed=10.0),
        1.2,
        FAULT,
    ),
}


@pytest.mark.parametrize("name", STAGED)
def test_fault_of_staged_collisions(name):
    """S78, twelve collisions with hand answers, each also turned by 2 rad: fault has no favourite direction."""
    me, other, offset, expected = STAGED[name]
    for turn in (0.0, 2.0):
        c, s = math.cos(turn), math.sin(turn)

        def turned(a, c=c, s=s, turn=turn):
            def pose(p):
                return p[0] * c - p[1] * s, p[0] * s + p[1] * c, p[2] + turn

            return Actor(pose(a.start), pose(a.stop), speed=a.speed)

        lanes = lanes_of(2)
        lanes.offset[0] = offset
        found = World(2, lanes).step([turned(me), turned(other)])
        assert found.events[0] & VEHICLE
        assert found.events[0] & (FAULT | BEHIND) == expected, name


def test_fault_off_the_lanes():
    """An agent on no lane that is hit from the side is at fault (S78): it should not be there."""
    me, other, _, _ = STAGED["is T-boned in its lane"]
    assert World(2, lanes_of(2, lane=-1)).step([me, other]).events[0] & FAULT
