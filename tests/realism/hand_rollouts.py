"""For every metric of rollouts a case worked out by hand (Q9).

A hand case returns (case, rollouts, expected). Rollouts are few, so all are not_standard.
"""

from __future__ import annotations

import numpy as np
from rollout_world import no_lights, repeated, square_edges, straight

from skidpad.evaluation.rollouts import RolloutCase, Rollouts, make_log


def moved(*offsets, rows=slice(None), z=0.0, **more):
    """Two cars at 10 m/s, 50 m apart; rollout r is the log moved sideways by offsets[r] = (first car, second car)."""
    log = make_log(**straight(2, **more))
    plain = repeated(log, len(offsets))
    y, up = plain.y.copy(), plain.z.copy()
    y[:, :, rows] += np.array(offsets, dtype=np.float32)[:, :, None]
    up += np.float32(z)
    return RolloutCase("hand", log, square_edges(), no_lights()), Rollouts(
        plain.object_id, plain.x, y, up, plain.heading
    )


def ends(*offsets):
    """The same, moved in the last row alone."""
    return moved(*offsets, rows=slice(-1, None))


# Four rollouts that are the log itself, all in one bin but for the undefined last rows: of 320 samples 4 speeds and 8
# accelerations are undefined, in the top bin.
SPEED10, SPEED11 = 316.1 / 321, 316.1 / 321.1
ACCELERATION10, ACCELERATION11 = 312.1 / 321, 312.1 / 321.1
FULL, EVENT = 320.1 / 321, 4.001 / 4.002
POOLED, POOLED_EVENT = 640.1 / 641, 8.001 / 8.002


def itself():
    return moved((0, 0), (0, 0), (0, 0), (0, 0))


def hand_realism_2023():
    """The log four times. Weights: .09 for each of two speeds, two accelerations, three distances, .18 for two
    events."""
    value = 0.09 * (2 * SPEED10 + 2 * ACCELERATION10 + 3 * FULL) + 0.18 * 2 * EVENT
    return *itself(), value


def hand_realism_2024():
    """.05 for the motion, of which only linear speed has ten bins; .10 for three distances, .25 for two events, lights
    without weight."""
    return *itself(), 0.05 * (SPEED10 + SPEED11 + 2 * ACCELERATION11) + 0.10 * 3 * FULL + 0.25 * 2 * EVENT


def hand_realism_2025():
    """The road edge at .05, and .05 for lights that nobody can violate."""
    value = 0.05 * (SPEED10 + SPEED11 + 2 * ACCELERATION11) + (0.10 * 2 + 0.05) * FULL + (0.25 * 2 + 0.05) * EVENT
    return *itself(), value


def hand_realism_2025_gen():
    """Two objects in one histogram: 640 samples, 8 and 16 undefined, all other values alike; lights stay per object."""
    motion = 632.1 / 641 + 632.1 / 641.1 + 2 * 624.1 / 641.1
    value = 0.05 * motion + (0.10 * 2 + 0.05) * POOLED + 0.25 * 2 * POOLED_EVENT + 0.05 * EVENT
    return *itself(), value


def hand_puffer_realism():
    """Equal objects: its arithmetic mean is ours; without the lights, over .95."""
    value = 0.05 * (SPEED10 + SPEED11 + 2 * ACCELERATION11) + (0.10 * 2 + 0.05) * FULL + 0.25 * 2 * EVENT
    return *itself(), value / 0.95


def hand_ade():
    """Errors (1, 3) and (5, 1) m: mean 2.5."""
    return *moved((1, 3), (5, 1)), 2.5


def hand_ade_3d():
    """3 m aside and 4 m up: 5."""
    return *moved((3, 3), z=4.0), 5.0


def hand_fde():
    """Only the last row is off, by (2, 4) and (0, 0) m: mean 1.5."""
    return *ends((2, 4), (0, 0)), 1.5


def hand_miss_rate():
    """At 8 s the bound is 16 m: of 15.9, 16.1, 0 and 30 m two are misses: 0.5."""
    return *ends((15.9, 16.1), (0, 30)), 0.5


def hand_min_ade_joint():
    """Means of the rollouts 2 and 3: the better one is 2."""
    return *moved((1, 3), (5, 1)), 2.0


def hand_min_ade_marginal():
    """The best of each car: 1 and 1, mean 1."""
    return *moved((1, 3), (5, 1)), 1.0


def hand_ade_official():
    """2.5 m over 80 rows, divided by the 91 valid ones."""
    return *moved((1, 3), (5, 1)), 2.5 * 80 / 91


def hand_min_ade_official():
    """2 m over 80 rows, divided by 91."""
    return *moved((1, 3), (5, 1)), 2.0 * 80 / 91


def hand_diversity():
    """Two straight lines 4 m apart for one car, 2 m for the other: 3."""
    return *moved((1, 3), (5, 1)), 3.0


def hand_diversity_final():
    """Apart in the last row alone, by 4 and 2 m: 3; over all rows it would be 3 / 80."""
    return *ends((1, 3), (5, 1)), 3.0


def hand_spread_ratio():
    """ADE 2.5, joint minADE 2: 0.2."""
    return *moved((1, 3), (5, 1)), 0.2


HAND = {name.removeprefix("hand_"): make for name, make in list(globals().items()) if name.startswith("hand_")}
HAND["puffer/realism"] = HAND.pop("puffer_realism")
