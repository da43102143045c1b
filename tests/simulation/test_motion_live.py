"""Motion, actions, coefficients and rewards inside the simulator: what kernels do alone, worlds do too."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import car, case_of, simulator, straight_road

from skidpad.errors import ActionError, ProtocolError, SettingsError
from skidpad.scenes.events import Event
from skidpad.scenes.scene import TYPE_CYCLIST, TYPE_PEDESTRIAN
from skidpad.settings.schema import CompatSettings, EnvSettings, PerturbationSettings, RewardSettings
from skidpad.simulation import state as at
from skidpad.simulation.batch import spread
from skidpad.simulation.coefficients import C_STEER
from skidpad.simulation.kernels.motion import BLOCK, move, move_all
from skidpad.simulation.rewards import TERMS

F = np.float32


def road(count=3, speed=6.0):
    """Cars in a row on a straight road, each with a goal far ahead."""
    return straight_road([car(20.0 + 25 * n, speed=speed) for n in range(count)])


def drive(sim, actions, steps=40):
    """Reset and step with `actions(step)`; the states (steps, A) of what matters to motion."""
    sim.reset()
    names, found = ("x", "y", "heading", "speed", "steering", "accel_long", "accel_lat"), []
    for step in range(steps):
        sim.step(actions(step))
        found.append([sim.agent[name].copy() for name in names])
    return np.array(found)


def test_blocks_move_to_the_bits_of_single_agents():
    """S35: sixteen agents at a time or one after the other, with other models and long turns among them, are the same
    bytes; who shares a block must not matter."""
    generator, count = np.random.default_rng(0), 83
    f4 = np.zeros((len(at.FLOAT_STATE), count), F)
    u1 = np.zeros((len(at.BYTE_STATE), count), np.uint8)
    coef = generator.uniform(0.8, 1.25, (36, count)).astype(F)
    angle = generator.uniform(-3, 3, count)
    f4[at.COS], f4[at.SIN], f4[at.HEADING] = np.cos(angle), np.sin(angle), angle
    f4[at.LENGTH] = np.where(generator.random(count) < 0.1, 0.3, 4.5)
    f4[at.SPEED], f4[at.COMMAND_STEER] = generator.uniform(-5, 30, count), generator.uniform(-1, 1, count)
    f4[at.COMMAND_ACCEL] = generator.uniform(-4, 4, count)
    u1[at.MODEL] = np.where(generator.random(count) < 0.3, generator.integers(0, 7, count), 0)
    parameters = np.zeros(at.PARAMETERS, F)
    parameters[at.P_DT] = 0.1
    together, block = f4.copy(), np.ones(BLOCK, F)
    for size in (count, 1, 16, 17):
        for _ in range(5):
            for a in range(size):
                move(a, f4, u1, coef, parameters)
            move_all(np.arange(count, dtype=np.int32), size, together, u1, coef, parameters, block)
            assert (f4 == together).all()


def test_state_blocks_do_not_compete_for_one_cache_set():
    """Rows of a multiple of 4 KiB made motion 2.5 times as dear; every block has an odd number of cache lines."""
    for agents in (1, 16, 31, 32, 2048, 4095, 65_536):
        assert agents <= spread(agents) < agents + 32
        assert spread(agents) // 16 % 2 == 1


def test_a_table_through_the_box_is_the_discrete_world():
    """S46: one-hot continuous actions and indices drive the same bytes, for both models."""
    for dynamics in ("classic", "jerk"):
        index = np.random.default_rng(1).integers(0, 12, (40, 3)).astype(np.int32)
        by_index = simulator(road(), EnvSettings(dynamics=dynamics, action_type="discrete"))
        index *= len(by_index.actions.box) // 12
        through_box = simulator(road(), EnvSettings(dynamics=dynamics))
        a = drive(by_index, lambda step, index=index: index[step])
        b = drive(through_box, lambda step, index=index, sim=by_index: sim.actions.box[index[step]])
        assert (a == b).all()


def test_factored_actions_of_the_older_jerk_world():
    """S44: [4, 3] is the joint index taken apart; an index outside its factor is refused by its row."""
    joint = np.random.default_rng(2).integers(0, 12, (30, 3)).astype(np.int32)
    worlds = [
        simulator(road(), EnvSettings(dynamics="jerk", action_type="discrete", compat=CompatSettings(dynamics=name)))
        for name in ("v2", "v2b")
    ]
    pairs = drive(worlds[0], lambda step: np.stack([joint[step] // 3, joint[step] % 3], axis=1), 30)
    assert (pairs == drive(worlds[1], lambda step: joint[step], 30)).all()
    with pytest.raises(ActionError, match=r"row 1.*\[0 3\]"):
        worlds[0].step(np.array([[0, 0], [0, 3], [0, 0]], np.int32))
    with pytest.raises(ProtocolError, match=r"int32 \(3, 2\)"):
        worlds[0].step(joint[0])


def test_jerk_world_brakes_by_jerk():
    """S39: full braking builds up by 15 m/s^3 to 5 m/s^2, and the acceleration that is shown is the model's own."""
    found = drive(simulator(road(1), EnvSettings(dynamics="jerk")), lambda step: np.array([[-1, 0]], F), 5)
    assert found[:, 5, 0] == pytest.approx([-1.5, -3.0, -4.5, -5, -5])
    assert found[:, 3, 0] == pytest.approx(6 - np.array([0.075, 0.3, 0.675, 1.15, 1.65]), abs=1e-5)


@pytest.mark.parametrize("dynamics", ["classic", "jerk"])
def test_held_brakes_end_at_rest(dynamics):
    """S108: phantom braking never turns into driving backwards, whatever the model."""
    perturbation = PerturbationSettings(phantom_braking=1.0, phantom_braking_rate=50.0, perturbation_seconds=60.0)
    sim = simulator(road(1), EnvSettings(dynamics=dynamics, perturbation=perturbation))
    speed = drive(sim, lambda step: np.array([[1, 1]], F), 60)[:, 3, 0]
    assert speed.min() >= 0
    assert speed[-1] == pytest.approx(0, abs=1e-6)


def test_small_types_move_by_their_own_models():
    """S41: a pedestrian turns on the spot and a cyclist stops at 12 m/s; `compat.types = car` makes cars of both. They
    are under test here only where the control setting takes all agents."""
    scene = straight_road(
        [
            car(20.0, speed=1.0, type=TYPE_PEDESTRIAN, length=0.6, width=0.6),
            car(60.0, speed=5.0, type=TYPE_CYCLIST, length=1.8, width=0.6),
        ]
    )
    for types, turned, fastest in (("own", np.pi * 0.1, 12.0), ("car", None, 18.0)):
        settings = EnvSettings(
            control="agents", other_controller="policy", compat=CompatSettings(types=types), beyond_log="stay"
        )
        sim = simulator(scene, settings)
        found = drive(sim, lambda step: np.array([[0 if step == 0 else 1, 1 if step == 0 else 0]] * 2, F), 60)
        if turned is not None:
            assert found[0, 2, 0] == pytest.approx(turned, abs=1e-5)
        assert found[:, 3, 1].max() == pytest.approx(fastest) if types == "own" else found[:, 3, 1].max() > fastest


def test_rewards_are_the_sum_of_their_terms():
    """S97, S101: the reward is the sum of the columns, recomputed from them for every row and step; a collision and the
    time on the road are among them."""
    sim = simulator(straight_road([car(20.0, speed=10.0), car(60.0)]), EnvSettings())
    result, seen = sim.reset(), set()
    assert (result.reward == 0).all()
    for _ in range(60):
        result = sim.step(np.zeros((len(sim.row_world), 2), F))
        assert result.reward == pytest.approx(result.reward_terms.sum(axis=1), rel=1e-5, abs=1e-8)
        seen |= {term.name for term, column in zip(TERMS, result.reward_terms.T, strict=True) if column.any()}
        hit = result.events & np.uint32(Event.COLLISION_VEHICLE) != 0
        assert (result.reward_terms[hit, 0] < -1.5).all()
    assert {"collision", "lane align", "lane centre", "timestep"} <= seen


def test_a_callable_may_replace_the_sum():
    """S101: it sees terms and events of all rows and writes the reward; the terms stay."""
    sim = simulator(road(), reward=lambda terms, events: 2 * terms[:, 4] + (events != 0))
    sim.reset()
    for _ in range(5):
        result = sim.step(np.ones((3, 2), F))
        assert result.reward == pytest.approx(2 * result.reward_terms[:, 4] + (result.events != 0))
        assert result.reward_terms[:, 4].any()


def test_weights_of_rewards_never_change_what_happens():
    """S82, S100: motion and events are the same bytes whatever a reward weighs."""
    plain = drive(simulator(road()), lambda step: np.full((3, 2), 0.5, F))
    other = EnvSettings(reward=RewardSettings(collision=0.1, comfort=1.0, progress=3.0, ade=-1.0))
    assert (plain == drive(simulator(road(), other), lambda step: np.full((3, 2), 0.5, F))).all()


def test_progress_and_distance_to_the_log_are_paid_live():
    """S97: a car that coasts as its log did makes 0.6 m a step along its route and none away from its log."""
    settings = EnvSettings(reward=RewardSettings(progress=1.0, ade=-1.0))
    scene = straight_road([car(20.0, speed=6.0)])
    sim = simulator(scene, settings)
    sim.reset()
    names = [term.name for term in TERMS]
    for _ in range(5):
        result = sim.step(np.zeros((1, 2), F))
        assert result.reward_terms[0, names.index("progress")] == pytest.approx(0.6, abs=1e-4)
        assert result.reward_terms[0, names.index("ade")] == pytest.approx(0, abs=1e-4)
    result = sim.step(np.array([[1, 0]], F))
    assert result.reward_terms[0, names.index("ade")] == pytest.approx(-0.1 * 0.04, rel=1e-3)


def test_coefficients_need_a_layout_that_shows_them():
    """S100: conditioning without a place for coefficients would hide them silently."""
    with pytest.raises(SettingsError, match="no room for coefficients"):
        simulator(road(), EnvSettings(conditioning=True))


def test_drawn_coefficients_answer_commands():
    """S42, S95: with draws, cars steer by their own coefficient, the same one in any batch; without, exactly alike."""
    scene = road()
    one, many = simulator(scene), simulator([scene], cases=[case_of(scene, benchmark_seed=5), case_of(scene)])
    for sim in (one, many):
        sim._drawn[:] = 1  # as `randomise` does, whatever the layout shows
    small = F(0.04)  # rad, and 1.25 times it still below the slew
    act = small / F(0.667)
    first = drive(one, lambda step: np.tile(np.array([[0, act]], F), (3, 1)), 1)[0, 4]
    both = drive(many, lambda step: np.tile(np.array([[0, act]], F), (6, 1)), 1)[0, 4]
    assert (both[3:] == first).all()
    assert len(set(both.tolist())) == 6
    assert first == pytest.approx(one._coef[C_STEER, :3] * act * F(0.667), rel=1e-6)
    plain = drive(simulator(scene), lambda step: np.tile(np.array([[0, act]], F), (3, 1)), 1)[0, 4]
    assert len(set(plain.tolist())) == 1
