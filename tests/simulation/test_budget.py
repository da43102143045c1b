"""Exact agent budgets (S53): sums always fit, bounds always hold, and what cannot be is an error before it starts."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import simulator

from skidpad.errors import CaseError, ProtocolError, SettingsError
from skidpad.scenes.case import Case
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.budget import cut_budget, drawn_worlds
from skidpad.simulation.episodes import Draws
from skidpad.simulation.population import Population, Span
from skidpad.simulation.training import training_simulator


def test_a_thousand_random_budgets_are_met_exactly():
    """S53: for 1,000 random (B, min, max) the sizes add up to B and none leaves [min, max], or no sizes exist and the
    error says so; whether they exist is decided by trying all numbers of worlds."""
    random = np.random.default_rng(53)
    met, refused = 0, 0
    for case in range(1000):
        low = int(random.integers(1, 40))
        high = low + int(random.integers(0, 40))
        budget = int(random.integers(1, 3000 if case % 2 else 90))
        possible = [n for n in range(1, budget + 1) if n * low <= budget <= n * high]
        asked = None if case % 3 else int(random.integers(1, 30))
        fits = bool(possible) if asked is None else asked in possible
        if not fits:
            with pytest.raises(SettingsError, match=f"budget of {budget}"):
                cut_budget(budget, low, high, seed=case, worlds=asked)
            refused += 1
            continue
        count = cut_budget(budget, low, high, seed=case, worlds=asked)
        assert count.sum() == budget
        assert ((count >= low) & (count <= high)).all()
        assert len(count) in possible
        assert asked is None or len(count) == asked
        met += 1
    assert met > 400
    assert refused > 50


def test_sizes_are_drawn_evenly():
    """S53: U[min, max]: over a large budget every size occurs about as often."""
    count = cut_budget(200_000, 8, 24, seed=1)
    often = np.bincount(count, minlength=25)[8:]
    assert len(often) == 17
    assert often.min() > 0.75 * often.mean()
    assert (cut_budget(200_000, 8, 24, seed=1) == count).all()
    assert (cut_budget(200_000, 8, 24, seed=2)[:50] != count[:50]).any()


@pytest.mark.parametrize(("low", "high"), [(0, 3), (4, 3)])
def test_bounds_that_are_none(low, high):
    """S53: a minimum of nobody, or above the maximum, is refused with both numbers."""
    with pytest.raises(SettingsError, match=f"{low} to {high}"):
        cut_budget(12, low, high, seed=0)


def made_up(counts, limits_seen=None):
    """`take` of `drawn_worlds` over cases with so many drivers each, and the draws of them."""
    cases = [Case(f"{n:064x}", f"scene-{n}", 7) for n in range(len(counts))]
    number = {case.scene_id: n for n, case in enumerate(cases)}

    def take(case, world, limit):
        count = counts[number[case.scene_id]]
        if count is None:
            raise CaseError(f"scene {case.scene_id}: nobody to test")
        if limit is not None:
            limits_seen.append(limit)
            count = min(count, limit)
        policy = np.arange(count, dtype=np.int32)
        return Population(*[None] * 7, policy, -1, "", False), Span(0, 10, 100_000)

    return Draws(cases, 3), take


def test_worlds_of_logs_are_filled_to_the_budget():
    """S53, S67: each scene comes once per pass, those without anybody are passed over, and only the last world is
    limited; for 1,000 random sets the rows add up exactly."""
    random = np.random.default_rng(7)
    for _ in range(1000):
        counts = random.integers(0, 9, int(random.integers(1, 12))).tolist()
        counts[random.integers(0, len(counts))] = 3
        if len(counts) > 1 and random.integers(0, 2):
            counts[counts.index(3) - 1] = None
        budget, limits = int(random.integers(1, 200)), []
        draws, take = made_up(counts, limits)
        found = drawn_worlds(draws, budget, EnvSettings(), take)
        names = [case.scene_id for case, _, _ in found]
        rows = [len(population.policy) for _, population, _ in found]
        usable = {f"scene-{n}" for n, count in enumerate(counts) if count}
        assert sum(rows) == budget
        assert len(limits) <= 1
        assert all(
            row == counts[int(name.removeprefix("scene-"))] for row, name in zip(rows[:-1], names[:-1], strict=True)
        )
        for start in range(0, len(names) - len(usable) + 1, len(usable)):
            assert set(names[start : start + len(usable)]) == usable
        assert len({case.id for case, _, _ in found}) == len(found)


def test_nobody_to_control_is_an_error_naming_the_maps():
    """S53: a set without any controllable agent ends in a sentence, never in a loop (peer: an endless one)."""
    for counts in ([0, 0], [None, 0], [None]):
        draws, take = made_up(counts)
        with pytest.raises(SettingsError, match=r"nobody can be controlled on any of .*scene-0"):
            drawn_worlds(draws, 8, EnvSettings(), take)
    draws, take = made_up([2])
    with pytest.raises(SettingsError, match="budget of 0"):
        drawn_worlds(draws, 0, EnvSettings(), take)


def test_a_number_of_worlds_that_logs_do_not_give():
    """S53: B rows over W worlds that cannot be had is an error with both numbers."""
    draws, take = made_up([2, 3], [])
    assert len(drawn_worlds(draws, 5, EnvSettings(), take, worlds=2)) == 2
    draws, take = made_up([2, 3], [])
    with pytest.raises(SettingsError, match="5 policy rows take 2 worlds of these scenes, and 4 are asked for"):
        drawn_worlds(draws, 5, EnvSettings(), take, worlds=4)


# ------------------------------------------------------------------------------------- through the simulator

GIGAFLOW = EnvSettings(simulation_mode="gigaflow", min_agents_per_world=3, max_agents_per_world=5)


@pytest.fixture(scope="module")
def scenes():
    """Two maps with traffic, one without."""
    return [synthetic("crossing"), synthetic("straight"), synthetic("curve", traffic=False)]


@pytest.mark.parametrize("rows", [1, 7, 40])
def test_training_on_logs(scenes, rows):
    """S53: exactly the rows asked for; a scene without traffic is passed over; every world but the last has
    everybody."""
    with training_simulator(scenes, EnvSettings(), rows=rows, seed=4) as sim:
        assert len(sim.row_world) == rows == len(sim.reset().obs)
        assert {case.scene_id for case in sim.cases} <= {scene.meta.scene_id for scene in scenes[:2]}
        whole = {scene.digest: len(simulator(scene).row_world) for scene in scenes[:2]}
        sizes = np.bincount(sim.row_world)
        assert [whole[case.scene_digest] for case in sim.cases[:-1]] == sizes[:-1].tolist()
        assert len({case.seed for case in sim.cases}) == len(sim.cases)


@pytest.mark.parametrize(("rows", "worlds"), [(3, None), (13, 3), (13, 4), (60, None)])
def test_training_on_bare_maps(scenes, rows, worlds):
    """S53: the sum is exact and no world leaves [min, max], also after the next scenes were drawn."""
    with training_simulator(scenes, GIGAFLOW, rows=rows, worlds=worlds, seed=4, resample_every=2) as sim:
        for step in range(6):
            sizes = np.bincount(sim.row_world)
            assert sizes.sum() == rows
            assert ((sizes >= 3) & (sizes <= 5)).all()
            assert worlds is None or len(sizes) == worlds
            sim.reset() if step == 0 else sim.step(np.zeros((rows, 2), np.float32))


def test_training_one_driver_among_others(scenes):
    """S53, S49: where the policy drives one agent of each bare map, rows are worlds."""
    settings = GIGAFLOW.model_copy(update={"control": "sdc", "vehicle_controller": "idm"})
    with training_simulator(scenes, settings, rows=6) as sim:
        assert sim.row_world.tolist() == list(range(6))
        assert ((np.diff(sim.world_agents) >= 3) & (np.diff(sim.world_agents) <= 5)).all()


@pytest.mark.parametrize(
    ("settings", "asked", "says"),
    [
        (GIGAFLOW, {"rows": 2}, "2 agents in worlds of 3 to 5 takes no number of worlds"),
        (GIGAFLOW, {"rows": 30, "worlds": 2}, "takes 6 to 10 worlds, and 2 are asked for"),
        (EnvSettings(), {"rows": 3, "worlds": 3}, "3 policy rows take 1 worlds"),
        (EnvSettings(), {"rows": 0}, "budget of 0 agents"),
        (EnvSettings(control="none"), {"rows": 4}, "nobody can be controlled"),
        (EnvSettings(init_step=5000), {"rows": 4}, "nobody can be controlled"),
    ],
)
def test_impossible_training(scenes, settings, asked, says):
    """S53: what cannot be met is an error at construction."""
    with pytest.raises(SettingsError, match=says):
        training_simulator(scenes, settings, **asked)


def test_training_without_scenes():
    """S53: no scene at all."""
    with pytest.raises(ProtocolError, match="no scene"):
        training_simulator([], EnvSettings(), rows=3)
