"""Time to collision. There is no metric of that name: each variant has its own motion model, objects and threshold.

All but `ttc.gap` and `ttc.puffer` move boxes on at constant velocity and heading. For two such boxes the time in which
they overlap is one interval, whose ends are exact; `approaches` finds it once per pair and step, and the variants are
questions about these intervals. Values are at the ends of driven steps. Pairs that have overlapped since they came into
being are nobody's approach.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skidpad.evaluation.metrics.contacts import bodies, find_contacts, judge_contacts
from skidpad.evaluation.metrics.fault import REAR_AXLE_SHARE, corners
from skidpad.evaluation.metrics.road_area import CENTRE, box_places, in_junction, straddling
from skidpad.evaluation.metrics.view import F64, I64, AgentValues, Bool, CaseView, mean_over, measured, shared
from skidpad.scenes.scene import TYPE_VEHICLE

# The longest look ahead of any variant [s].
HORIZON_S = 5.0
# Rounding of a time that lies on a sample [s].
_TIE_S = 1e-9


class Approaches(NamedTuple):
    """Pairs whose boxes overlap now or within HORIZON_S if both keep velocity and heading, one row each.

    agent         (k,)  i64        row among the agents under test
    step          (k,)  i64        the step at whose end this is
    other         (k,)  i64        agent met
    begins, ends  (k,)  f64 [s]    of the overlap; 0 = now
    distance      (k,)  f64 [m]    between centres
    bearing       (k,)  f64 [rad]  of the other's centre from the agent's centre, 0 = ahead, up to pi
    axle_bearing  (k,)  f64 [rad]  the same from the agent's rear axle
    """

    agent: I64
    step: I64
    other: I64
    begins: F64
    ends: F64
    distance: F64
    bearing: F64
    axle_bearing: F64


class Boxes(NamedTuple):
    """Boxes in motion, each field (k,) f64: centre [m], heading as cosine and sine, size [m], velocity [m/s]."""

    x: F64
    y: F64
    cos: F64
    sin: F64
    length: F64
    width: F64
    vx: F64
    vy: F64


def overlap_interval(a: Boxes, b: Boxes) -> tuple[F64, F64]:
    """When boxes overlap that keep velocity and heading: begin and end (k,) f64 [s], begin > end where they never do.

    A separating axis sees the two intervals of a pair move past each other linearly, so each of the four axes allows
    one interval of time, and the overlap is what all allow.
    """
    x, y, vx, vy = b.x - a.x, b.y - a.y, b.vx - a.vx, b.vy - a.vy
    same, cross = np.abs(a.cos * b.cos + a.sin * b.sin), np.abs(a.cos * b.sin - a.sin * b.cos)
    begin, end = np.full(x.shape, -np.inf), np.full(x.shape, np.inf)
    for one, other in ((a, b), (b, a)):
        along = (one.length + other.length * same + other.width * cross) / 2
        across = (one.width + other.length * cross + other.width * same) / 2
        for axis_x, axis_y, half in ((one.cos, one.sin, along), (-one.sin, one.cos, across)):
            gap, rate = x * axis_x + y * axis_y, vx * axis_x + vy * axis_y
            still = np.abs(rate) < 1e-12
            rate = np.where(still, 1.0, rate)
            first, last = (-half - gap) / rate, (half - gap) / rate
            # Without motion along an axis it allows all times or none.
            never = still & (np.abs(gap) > half)
            begin = np.maximum(begin, np.where(still, np.where(never, np.inf, -np.inf), np.minimum(first, last)))
            end = np.minimum(end, np.where(still, np.where(never, -np.inf, np.inf), np.maximum(first, last)))
    return begin, end


def approaches(view: CaseView) -> Approaches:
    """All approaches to the agents under test in their driven steps, by agent, step and other."""
    return view.once("approaches", _approaches)


def _approaches(view: CaseView) -> Approaches:
    found = meetings(view)
    now = found.begins <= 0.0
    touching = np.zeros(len(now), dtype=bool)
    for contact in find_contacts(view):
        pair = (found.agent == contact.agent) & (found.other == contact.partner)
        touching |= pair & (found.step >= contact.first) & (found.step <= contact.last)
    kept = ~now | touching
    return Approaches._make(column[kept] for column in found._replace(begins=np.maximum(found.begins, 0.0)))


def meetings(view: CaseView) -> Approaches:
    """All approaches and all overlaps, also those that nobody drove into."""
    return view.once("meetings", _meetings)


def _meetings(view: CaseView) -> Approaches:
    blocks = [_meetings_of(view, rows) for rows in view.blocks()]
    nothing = Approaches(*(np.zeros(0, dtype=np.int64),) * 3, *(np.zeros(0),) * 5)
    return Approaches._make(np.concatenate(column) for column in zip(nothing, *blocks, strict=True))


def share_meetings(view: CaseView, other: CaseView) -> None:
    """Let `other`, whose states are the first ones of `view`, find its meetings where `view` does."""

    def cut(_: CaseView) -> Approaches:
        found = meetings(view)
        early = found.step < other.steps
        return Approaches._make(column[early] for column in found)

    other.once("meetings", cut)


def motion(view: CaseView) -> dict[str, F64]:
    """Everybody's cosine and sine of the heading and velocity [m/s], each (K, T, N) f64. Ask through
    `view.once("motion", motion)`."""
    boxes = view.once("bodies", bodies)
    cos, sin = np.cos(boxes["heading"]), np.sin(boxes["heading"])
    return {"cos": cos, "sin": sin, "vx": boxes["speed"] * cos, "vy": boxes["speed"] * sin}


def present(view: CaseView, rows: slice) -> Bool:
    """(R, U, N) bool, who else has a body on the level of some agents under test at the ends of their driven steps."""
    boxes, agents = view.once("bodies", bodies), view.agents[rows]
    there = view.around(boxes["body"], rows) & view.driven[rows][:, :, None]
    there[np.arange(len(agents)), :, agents] = False
    if view.scene.meta.has_z:
        gap = np.abs(view.around(boxes["z"], rows) - view.own(boxes["z"], rows))
        there &= gap <= (view.around(boxes["height"], rows) + view.own(boxes["height"], rows)) / 2
    return there


def relative(view: CaseView, rows: slice) -> tuple[F64, F64, F64, F64]:
    """Everybody's x, y [m] and velocity [m/s] as seen from some agents under test, each (R, U, N) f64."""
    boxes, moving = view.once("bodies", bodies), view.once("motion", motion)
    x, y, vx, vy = (
        view.around(array, rows) - view.own(array, rows)
        for array in (boxes["x"], boxes["y"], moving["vx"], moving["vy"])
    )
    return x, y, vx, vy


def _meetings_of(view: CaseView, rows: slice) -> Approaches:
    boxes, moving = view.once("bodies", bodies), view.once("motion", motion)
    there = present(view, rows)
    x, y, vx, vy = relative(view, rows)
    # Circles around the boxes, at the moment when they are nearest.
    pace = vx * vx + vy * vy
    nearest = np.clip(-(x * vx + y * vy) / np.maximum(pace, 1e-12), 0.0, HORIZON_S)
    reach = view.around(boxes["reach"], rows) + view.own(boxes["reach"], rows)
    meets = there & ((x + nearest * vx) ** 2 + (y + nearest * vy) ** 2 <= reach**2)
    row, step, other = np.nonzero(meets)
    row += rows.start
    case, agent = view.case[row], view.agents[row]

    def moved(who: I64) -> Boxes:
        sources = (boxes, boxes, moving, moving, boxes, boxes, moving, moving)
        columns = zip(sources, Boxes._fields, strict=True)
        return Boxes(*(source[name][case, step + 1, who] for source, name in columns))

    me, them = moved(agent), moved(other)
    begins, ends = overlap_interval(me, them)
    hit = (begins <= ends) & (ends >= 0.0) & (begins <= HORIZON_S)
    dx, dy = them.x - me.x, them.y - me.y
    along, across = dx * me.cos + dy * me.sin, dy * me.cos - dx * me.sin
    axle = along + REAR_AXLE_SHARE * me.length
    columns = (
        row,
        step,
        other,
        begins,
        ends,
        np.hypot(dx, dy),
        np.abs(np.arctan2(across, along)),
        np.abs(np.arctan2(across, axle)),
    )
    return Approaches._make(column[hit] for column in columns)


def _earliest(view: CaseView, found: Approaches, chosen: Bool, time: F64) -> F64:
    """(M, U) f64 [s], the least `time` of the chosen approaches to each agent in each step, +inf without any."""
    least = np.full(view.driven.shape, np.inf)
    np.minimum.at(least, (found.agent[chosen], found.step[chosen]), time[chosen])
    return least


def _missing(view: CaseView) -> tuple[tuple[object, str], ...]:
    return ((view.never_active | ~view.driven.any(axis=1), "no_exposure"),)


def _sampled(found: Approaches, first: int, last: int, sample: float) -> F64:
    """(k,) f64 [s], the first of the times `first` x `sample` ... `last` x `sample` at which the boxes overlap, else
    +inf."""
    number = np.maximum(np.ceil((found.begins - _TIE_S) / sample), first)
    time = number * sample
    return np.where((number <= last) & (time <= found.ends + _TIE_S), time, np.inf)


# -- nuPlan and those who follow it -------------------------------------------------------------------------------


@shared
def nuplan_times(view: CaseView, *, ahead: float, behind: float, sample: float, samples: float, stopped: float,
                 level_gate: float) -> F64:  # fmt: skip
    """Time to collision [s] by nuPlan's rule at the end of each driven step: (M, U) f64, +inf where nothing is met.

    ahead, behind    [rad]  bearing below which objects always count, and above which they never do; those between
                            count while the agent straddles lanes, has left the road or is in a junction
    sample, samples  [s]    spacing and number of the projected moments
    stopped          [m/s]  an agent no faster meets nobody
    level_gate       [m]    lanes further above or below do not hold a box (for fault)
    """
    found = approaches(view)
    time = _sampled(found, 1, int(samples), sample)
    chosen = (found.begins > 0.0) & np.isfinite(time) & _counts(view, found, ahead, behind)
    times = _earliest(view, found, chosen, time)
    times[np.abs(view.ends("speed")) <= stopped] = np.inf
    for verdict in judge_contacts(view, level_gate) if view.has_lanes else []:
        if verdict.fault:
            times[verdict.contact.agent, verdict.contact.first : verdict.contact.last + 1] = 0.0
    return np.where(view.driven, times, np.inf)


def _counts(view: CaseView, found: Approaches, ahead: float, behind: float) -> Bool:
    counts = found.axle_bearing < ahead
    beside = ~counts & (found.axle_bearing <= behind)
    for row in np.unique(found.agent[beside]):
        mine = np.flatnonzero(beside & (found.agent == row))
        counts[mine] = _off_its_lane(view, int(row))[found.step[mine] + 1]
    return counts


def _off_its_lane(view: CaseView, row: int) -> Bool:
    """(T,) bool, the agent straddles lanes, has a corner off the road, or is in a junction."""

    def make(view: CaseView) -> Bool:
        places, road = box_places(view, row), view.scene.road
        off_road = (places.outside_m[:, :CENTRE] > 0.0).any(axis=1)
        return np.asarray(off_road | straddling(places, road) | in_junction(places, road))

    return view.once(f"off its lane {row}", make)


@shared
def ttc_nuplan(view: CaseView, *, threshold: float, **rule: float) -> AgentValues:
    """1 where the time to collision stays above `threshold` [s]; `rule` as in `nuplan_times`."""
    passes = (nuplan_times(view, **rule) > threshold).all(axis=1)
    return measured(passes, 1.0, *_missing(view), (not view.has_lanes, "no_lane"))


def ttc_navsim(view: CaseView, *, ahead: float, behind: float, sample: float, samples: float,
               stopped: float) -> AgentValues:  # fmt: skip
    """1 where no box is met at any of the moments 0, `sample`, ... [s]; objects as in `nuplan_times`.

    An agent slower than `stopped` [m/s] passes.
    """
    found = approaches(view)
    time = _sampled(found, 0, int(samples) - 1, sample)
    chosen = np.isfinite(time) & _counts(view, found, ahead, behind)
    moving = np.abs(view.ends("speed")) >= stopped
    met = np.isfinite(_earliest(view, found, chosen, time)) & moving
    return measured(~met.any(axis=1), 1.0, *_missing(view), (not view.has_lanes, "no_lane"))


@shared
def ttc_vmax(view: CaseView, *, threshold: float, ahead: float, sample: float, samples: float,
             stopped: float) -> AgentValues:  # fmt: skip
    """1 where the time to whatever is ahead (bearing below `ahead` [rad]) stays above `threshold` [s], as V-Max's paper
    has it: nuPlan's moments over 5 s, and no rule for objects beside."""
    found = approaches(view)
    time = _sampled(found, 0, int(samples), sample)
    times = _earliest(view, found, np.isfinite(time) & (found.axle_bearing < ahead), time)
    times[np.abs(view.ends("speed")) <= stopped] = np.inf
    return measured((times > threshold).all(axis=1), 1.0, *_missing(view))


# -- exact first contact ------------------------------------------------------------------------------------------


@shared
def in_contact(view: CaseView) -> Bool:
    """(M, U) bool, steps in which the agent touches anything."""
    touching = np.zeros(view.driven.shape, dtype=bool)
    for contact in find_contacts(view):
        touching[contact.agent, contact.first : contact.last + 1] = True
    return touching


@shared
def sweep_times(view: CaseView, *, reach: float, behind: float, horizon: float) -> F64:
    """Exact time to first contact [s] at constant velocity and heading, at the end of each driven step: (M, U) f64, at
    most `horizon` [s]; 0 during a contact.

    reach   [m]    objects further away do not count
    behind  [rad]  nor do those at a larger bearing
    """
    found = approaches(view)
    chosen = (found.distance <= reach) & (found.bearing <= behind)
    times = np.minimum(_earliest(view, found, chosen, found.begins), horizon)
    return np.where(in_contact(view), 0.0, times)


def ttc_sweep(view: CaseView, **rule: float) -> AgentValues:
    """Least exact time to contact [s] of the drive, the horizon where none is near; `rule` as in `sweep_times`."""
    times = np.where(view.driven, sweep_times(view, **rule), rule["horizon"])
    return measured(times.min(axis=1, initial=rule["horizon"]), 1.0, *_missing(view))


def ttc_sweep_share(view: CaseView, *, threshold: float, **rule: float) -> AgentValues:
    """Share of driven steps with an exact time to contact of at least `threshold` [s]."""
    return mean_over(sweep_times(view, **rule) >= threshold, view.driven, *_missing(view))


# -- one dimension ------------------------------------------------------------------------------------------------


def gap_times(view: CaseView, *, cap: float, turned: float, aligned: float, overlap: float) -> F64:
    """Gap over closing speed [s] to the nearest object in front, at the end of each driven step: (M, U) f64, at most
    `cap` [s].

    An object is in front if the gap along the agent's heading is positive, the two are turned by at most `turned`
    [rad], and they overlap sideways: by more than `overlap` [m], or at all if turned by at most `aligned` [rad].
    """
    times = np.full(view.driven.shape, cap)
    for rows in view.blocks():
        found = _gap_times_of(view, rows, cap, turned, aligned, overlap)
        times[rows] = np.where(view.driven[rows], found, cap)
    return times


def _gap_times_of(view: CaseView, rows: slice, cap: float, turned: float, aligned: float, overlap: float) -> F64:
    boxes, moving, there = view.once("bodies", bodies), view.once("motion", motion), present(view, rows)
    dx, dy, _, _ = relative(view, rows)
    length, width, cos, sin = (
        view.around(array, rows) for array in (boxes["length"], boxes["width"], moving["cos"], moving["sin"])
    )
    my_length, my_width, my_cos, my_sin = (
        view.own(array, rows) for array in (boxes["length"], boxes["width"], moving["cos"], moving["sin"])
    )
    same, cross = cos * my_cos + sin * my_sin, np.abs(sin * my_cos - cos * my_sin)
    gap = dx * my_cos + dy * my_sin - (my_length + length * np.abs(same) + width * cross) / 2
    aside = np.abs(dy * my_cos - dx * my_sin) - (my_width + length * cross + width * np.abs(same)) / 2
    near = there & (gap > 0) & (aside < 0)
    angle = np.arctan2(cross, same, where=near, out=np.full(near.shape, np.inf))
    front = near & (angle <= turned) & ((aside < -overlap) | (angle <= aligned))
    gap = np.where(front, gap, np.inf)
    leader = gap.argmin(axis=2)[:, :, None]
    least = np.take_along_axis(gap, leader, axis=2)[:, :, 0]
    speed = np.take_along_axis(view.around(boxes["speed"], rows), leader, axis=2)[:, :, 0]
    closing = np.abs(view.own(boxes["speed"], rows)[:, :, 0]) - np.abs(speed)
    behind = np.isfinite(least) & (closing > 0)
    return np.minimum(np.where(behind, least, cap) / np.where(behind, closing, 1.0), cap)


def ttc_gap(view: CaseView, **rule: float) -> AgentValues:
    """Least gap over closing speed [s] of the drive, as the realism features have it; vehicles only."""
    times = np.where(view.driven, gap_times(view, **rule), rule["cap"])
    vehicle = view.kinds("type")[view.case, view.agents] == TYPE_VEHICLE
    least = times.min(axis=1, initial=rule["cap"])
    return measured(least, 1.0, *_missing(view), (~vehicle, "not_applicable"))


@shared
def ttc_puffer(view: CaseView, *, threshold: float, reach: float, behind: float) -> AgentValues:
    """Share of driven steps with at least `threshold` [s] of nearest corner distance over closing speed, to anybody
    within `reach` [m] and a bearing of `behind` [rad]; a step in contact counts as 0 s."""
    safe = np.ones(view.driven.shape, dtype=bool)
    for rows in view.blocks():
        row, step = _corner_risks(view, rows, threshold, reach, behind)
        safe[row + rows.start, step] = False
    return mean_over(safe & ~in_contact(view), view.driven, *_missing(view))


def _corner_risks(view: CaseView, rows: slice, threshold: float, reach: float, behind: float) -> tuple[I64, I64]:
    """Rows, counted from the first of `rows`, and steps at which somebody is nearer than `threshold` [s]."""
    boxes, moving = view.once("bodies", bodies), view.once("motion", motion)
    x, y, vx, vy = relative(view, rows)
    distance = np.hypot(x, y)
    closing = -(x * vx + y * vy) / np.maximum(distance, 1e-9)
    extents = view.around(boxes["reach"], rows) + view.own(boxes["reach"], rows)
    near = present(view, rows) & (distance <= reach) & (closing > 0) & (distance - extents < threshold * closing)
    row, step, other = np.nonzero(near)
    dx, dy, pace = x[row, step, other], y[row, step, other], closing[row, step, other]
    case, agent = view.case[rows][row], view.agents[rows][row]
    cos, sin = moving["cos"][case, step + 1, agent], moving["sin"][case, step + 1, agent]
    bearing = np.abs(np.arctan2(dy * cos - dx * sin, dx * cos + dy * sin))
    shape = ("x", "y", "heading", "length", "width")
    mine, theirs = (corners(*(boxes[name][case, step + 1, who] for name in shape)) for who in (agent, other))
    apart = np.hypot(*np.moveaxis(mine[:, :, None] - theirs[:, None], -1, 0)).min(axis=(1, 2), initial=np.inf)
    risk = (bearing <= behind) & (apart < threshold * pace)
    return row[risk], step[risk]
