"""Hand-worked cases and pairs of time to collision, other surrogates, and the scores of nuPlan and NAVSIM."""

from __future__ import annotations

import numpy as np
from driving import car, lane, scene_of, trace_of
from hand_worked import crash

# 400 m along +x, 3.5 m wide, limit 10 m/s.
LANE = lane([(0, 0), (400, 0)], limit=10.0)


def alone(speed=10.0, *, log_speed=10.0, steps=50, y=0.0, lanes=(LANE,), limit_over=None, start=100.0, **arrays):
    """A car (4 x 2 m) at `speed` m/s along the lane from x = `start`, whose log makes `log_speed`. `limit_over` gives
    the excess over 10 m/s at the end of each step instead of a constant speed."""
    t = np.arange(steps + 1) * 0.1
    route = [0] if lanes else []
    scene = scene_of([car(x=start + log_speed * t, vx=log_speed, route=route)], list(lanes))
    rows = {"x": [start + speed * t], "y": y, "speed": speed, "lane": 0 if lanes else -1, "lane_offset": y}
    if limit_over is not None:
        rows["speed"] = [[10.0, *(10.0 + np.asarray(limit_over))]]
    return trace_of(scene, rows | arrays, steps=steps), scene


def behind(gap, *, speed=10.0, leader=0.0, steps=2, **arrays):
    """A car at `speed` behind one at `leader` m/s on the same lane; `gap` m lie between them at the end."""
    t = np.arange(steps + 1) * 0.1
    x = np.stack([100 + speed * (t - t[-1]), 104 + gap + leader * (t - t[-1])])
    scene = scene_of([car(x=x[0], vx=speed, route=[0]), car(x=x[1], vx=leader, route=[0])], [LANE])
    rows = {"x": x, "speed": np.array([[speed], [leader]]), "lane": 0, "lane_arc": x}
    return trace_of(scene, rows | arrays, scored=[0]), scene


# -- time to collision --------------------------------------------------------------------------------------------


def hand_ttc_nuplan():
    """17 m behind a standing car at 10 m/s: 1.7 s, above 0.95: passes (the published fixture's 1.7)."""
    return *behind(17.0), [(1, 1)]


def pair_ttc_nuplan():
    return behind(17.0), behind(8.5)  # met at 0.85 s, seen at the sample of 0.9


def hand_ttc_navsim():
    """8.5 m at 10 m/s: in contact at 0.9 s: fails."""
    return *behind(8.5), [(0, 1)]


def pair_ttc_navsim():
    return behind(8.5), behind(9.25)  # met at 0.925 s, behind the last sample


def hand_ttc_gap():
    """12 m behind, closing at 10 - 4 = 6 m/s: 2 s at the end, more before."""
    return *behind(12.0, leader=4.0), [(2, 1)]


def pair_ttc_gap():
    return behind(12.0, leader=4.0), behind(12.0, leader=12.0)


def hand_ttc_sweep():
    """The same 2 s; the boxes meet front to tail."""
    return *behind(12.0, leader=4.0), [(2, 1)]


def pair_ttc_sweep():
    return behind(12.0, leader=4.0), behind(13.0, leader=4.0)


def hand_ttc_sweep_share():
    """Closing at 6 m/s, 4.8 m at the end of the last of four steps: 1.1, 1.0, 0.9, 0.8 s: two of four are 0.95 s or
    more."""
    return *behind(4.8, leader=4.0, steps=4), [(0.5, 1)]


def pair_ttc_sweep_share():
    return behind(4.8, leader=4.0, steps=4), behind(12.0, leader=4.0, steps=4)


def hand_ttc_vmax():
    """8.5 m at 10 m/s: contact at 0.85 s, seen at 0.9: fails."""
    return *behind(8.5), [(0, 1)]


def pair_ttc_vmax():
    return behind(17.0), behind(8.5)


def hand_ttc_puffer():
    """Boxes in line, so nearest corners are as far apart as boxes: two of four steps, as in `ttc.sweep_share`."""
    return *behind(4.8, leader=4.0, steps=4), [(0.5, 1)]


def pair_ttc_puffer():
    return behind(4.8, leader=4.0, steps=4), behind(12.0, leader=4.0, steps=4)


# -- other surrogates ---------------------------------------------------------------------------------------------


def hand_thw():
    """15 m behind at 10 m/s, both: 1.5 s."""
    return *behind(15.0, leader=10.0), [(1.5, 1)]


def pair_thw():
    return behind(15.0, leader=10.0), behind(10.0, leader=10.0)


def hand_drac():
    """Closing at 6 m/s with 4.8 m left: 36 / 9.6 = 3.75 m/s^2; earlier steps require less."""
    return *behind(4.8, leader=4.0, steps=4), [(3.75, 1)]


def pair_drac():
    return behind(4.8, leader=4.0), behind(4.8, leader=10.0)


def crossing(later_by=0):
    """Car 0 along +x and car 1 along +y through the origin, both 4 x 2 m and 10 m/s, a metre a step.

    Car 1's tail clears car 0's path (y = 1) when its centre passes y = 3, after 5.25 steps; car 0's front enters car
    1's path (x = -1) when its centre passes x = -3, after 14.5 steps, or `later_by` steps later.
    """
    t = np.arange(26.0)
    x = np.stack([t - 17.5 - later_by, np.zeros(26)])
    y = np.stack([np.zeros(26), t - 2.25])
    scene = scene_of([car(), car()], rows=26)
    rows = {"x": x, "y": y, "heading": np.array([[0.0], [np.pi / 2]]), "speed": 10.0}
    return trace_of(scene, rows, scored=[0]), scene


def hand_pet():
    """14.5 - 5.25 = 9.25 steps. Last state of car 1 in the way: 5 (y = 2.75); first of car 0 there: 15 (x = -2.5):
    ten steps, 1.0 s."""
    return *crossing(), [(1.0, 1)]


def pair_pet():
    return crossing(), crossing(later_by=3)


# -- nuPlan's terms -----------------------------------------------------------------------------------------------


def hand_nuplan_no_fault():
    """Car 0 runs with its front into car 1, a vehicle: none is allowed: 0. Car 1 is hit from behind: 1."""
    return *crash(), [(0, 1), (1, 1)]


def pair_nuplan_no_fault():
    return crash(scored=[0]), crash(scored=[1])


def hand_nuplan_drivable():
    """A car 2 m wide at y = 1.04 in a lane that ends at 1.75: its corners are at 2.04, 0.29 m outside: within 0.3."""
    return *alone(y=1.04), [(1, 1)]


def pair_nuplan_drivable():
    return alone(y=1.04), alone(y=1.06)  # 0.31 m outside


def hand_nuplan_direction():
    """5 m/s backwards: 5 m against the lane in any second: between 2 and 6: 0.5."""
    return *alone(-5.0), [(0.5, 1)]


def pair_nuplan_direction():
    return alone(-5.0), alone(-12.99, start=200.0)  # 12.99 m in a second, as in nuPlan's fixture: 0


def hand_nuplan_progress():
    """The expert makes 41.99 m in 5 s, the car 41.04 m: 0.977375 (nuPlan's fixture)."""
    return *alone(8.208, log_speed=8.398), [(41.04 / 41.99, 1)]


def pair_nuplan_progress():
    return alone(8.208, log_speed=8.398), alone(0.814, log_speed=5.166)  # 4.07 of 25.83 m: 0.158


def hand_nuplan_making_progress():
    """4.07 of 25.83 m is less than a fifth: 0."""
    return *alone(0.814, log_speed=5.166), [(0, 1)]


def pair_nuplan_making_progress():
    return alone(0.814, log_speed=5.166), alone(1.1, log_speed=5.0)  # 0.22


def hand_nuplan_speed():
    """1, 2, 0, 0 and 0 m/s above the limit: mean 0.6: 1 - 0.6/2.23."""
    return *alone(steps=5, limit_over=[1, 2, 0, 0, 0]), [(1 - 0.6 / 2.23, 1)]


def pair_nuplan_speed():
    # nuPlan's fixture: 6.59, 8.86, 11.28, 0, 0: mean 5.346 above 2.23: 0.
    return alone(steps=5, limit_over=[1, 2, 0, 0, 0]), alone(steps=5, limit_over=[6.59, 8.86, 11.28, 0, 0])


def hand_nuplan_cls():
    """12 m/s where 10 are allowed, the log at 10: every multiplier 1, P = T = F = 1, S = 1 - 2/2.23 = 0.103139:
    (5 + 5 + 4 x 0.103139 + 2) / 16 = 0.775785."""
    return *alone(12.0), [((12 + 4 * (1 - 2 / 2.23)) / 16, 1)]


def pair_nuplan_cls():
    return alone(12.0), alone(10.0)


# -- NAVSIM -------------------------------------------------------------------------------------------------------


def hand_pdms_by_log():
    """32 m in 4 s where the log makes 40: EP 0.8, all else 1: (4 + 5 + 2) / 12."""
    return *alone(8.0), [(11 / 12, 1)]


def pair_pdms_by_log():
    return alone(8.0), alone(10.0)


def hand_epdms_2025_09_by_log():
    """The same: (4 + 5 + 2 + 2 + 2) / 16."""
    return *alone(8.0), [(15 / 16, 1)]


def pair_epdms_2025_09_by_log():
    return alone(8.0), alone(8.0, lane_offset=0.6)  # off the centre for more than 2 s: LK 0


def _named(prefix):
    # A metric's name may hold a dot where a function's cannot.
    found = {name.removeprefix(prefix): make for name, make in globals().items() if name.startswith(prefix)}
    return {name.replace("ttc_", "ttc.", 1) if name.startswith("ttc_") else name: make for name, make in found.items()}


HAND, PAIRS = _named("hand_"), _named("pair_")
