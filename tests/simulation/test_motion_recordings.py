"""The compatible motion models reproduce another simulator's recordings, step by step (S38, S40)."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.simulation.actions import LATERAL_JERKS, LONGITUDINAL_JERKS, SPACES
from skidpad.simulation.kernels.dynamics import CLASSIC_V2, CLASSIC_V2B, JERK_V2, moved
from skidpad.simulation.kernels.trig import sincos

F = np.float32
DT = F(0.1)
ONES = (F(1), F(1), F(1), F(1))

RECORDINGS = [
    ("classic_continuous", CLASSIC_V2),
    ("classic_discrete", CLASSIC_V2),
    ("classic_discrete_goal_stop", CLASSIC_V2),
    ("v2_classic_continuous", CLASSIC_V2B),
    ("v2_classic_discrete", CLASSIC_V2B),
    ("v2_classic_discrete_stop", CLASSIC_V2B),
    ("jerk_continuous", JERK_V2),
    ("jerk_discrete", JERK_V2),
    ("jerk_discrete_straight", JERK_V2),
    ("v2_jerk_discrete", JERK_V2),
    ("v2_jerk_discrete_remove", JERK_V2),
]
# What an independent double-precision implementation reached from the recorded states [m, rad].
TOLERANCE = {CLASSIC_V2: 8e-6, CLASSIC_V2B: 8e-6, JERK_V2: 1.3e-4}


STATE = (
    "x", "y", "heading", "vx", "vy", "speed", "a_long", "a_lat", "steering_angle", "respawn_count", "stopped",
)  # fmt: skip


def signed(state):
    """The speed with the sign of velocity along the heading; the recording's own has none."""
    forward = state["vx"] * np.cos(state["heading"]) + state["vy"] * np.sin(state["heading"])
    return np.copysign(state["speed"], forward)


def commands_of(actions, name, model):
    """(steps, n, 2) f32 physical commands of recorded actions; the recorded box was not clipped."""
    later = name.startswith("v2_")
    space = SPACES["jerk" if model == JERK_V2 else "classic", "v2b" if later else "v2"]
    if "continuous" in name:
        return space.physical(actions.astype(np.float32))
    if model == JERK_V2 and not later:
        joint = actions[..., 0] * len(LATERAL_JERKS) + actions[..., 1]
        assert space.factors == (len(LONGITUDINAL_JERKS), len(LATERAL_JERKS))
    else:
        joint = actions.reshape(actions.shape[:2])
    return space.table[joint.astype(np.int64)]


@pytest.mark.parametrize(("name", "model"), RECORDINGS)
def test_one_step_from_each_recorded_state(shared, name, model):
    """S38, S40: position and heading one step on from every recorded state of a driven agent, within the tolerances
    that the recordings state; a limit, a sign or a table that differs shows here."""
    path = shared / "oracles" / "pufferdrive" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    with np.load(path) as file:
        data = {key: file[key] for key in file.files}
    commands = commands_of(data["actions"], name, model)
    driven = data["controlled_object_index"]
    length = data["length_after_shrink"]
    compared, worst = 0, np.zeros(4)
    for step in range(len(commands)):
        for column, agent in enumerate(driven):
            before, after = (
                {key: data[f"state_{key}"][t, agent] for key in STATE if f"state_{key}" in data}
                for t in (step, step + 1)
            )
            if after["respawn_count"] != before["respawn_count"] or after["stopped"] or before["stopped"]:
                continue  # Put back to the start, or standing at the goal.
            if after["x"] < -5000 or before["x"] < -5000:
                continue
            sine, cosine = sincos(F(before["heading"]))
            along, aside, wheel = (before.get(key, 0.0) for key in ("a_long", "a_lat", "steering_angle"))
            state = (before["x"], before["y"], cosine, sine, signed(before), wheel, along, aside, length[agent])
            got = moved(model, *map(F, state), *commands[step, column], *ONES, False, DT)
            compared += 1
            turn = np.arctan2(float(got[3]), float(got[2])) - after["heading"]
            speed = got[4] if model != CLASSIC_V2 else abs(got[4])
            error = [got[0] - after["x"], got[1] - after["y"], np.angle(np.exp(1j * turn))]
            error.append(speed - (signed(after) if model != CLASSIC_V2 else after["speed"]))
            worst = np.maximum(worst, np.abs(error))
            if model == JERK_V2:
                assert got[6] == pytest.approx(after["a_long"], abs=1e-5)
                assert got[7] == pytest.approx(after["a_lat"], abs=2e-3)
    assert compared > 300
    assert (worst[:3] <= TOLERANCE[model]).all()
    assert worst[3] <= 4e-6
