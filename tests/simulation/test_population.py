"""Who is under test and who drives: codes partition the tracks, ranks do not depend on the file (S50 to S54, E66)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from worlds import ROWS, car, case_of, simulator, straight_road

from skidpad.errors import CaseError, SettingsError
from skidpad.scenes.events import Controller, Exclusion
from skidpad.scenes.scene import SUBTYPE_NONE, SUBTYPE_STATIC, TYPE_PEDESTRIAN
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.population import eligible, select, span

LATE = np.arange(ROWS) >= 10
EARLY = np.arange(ROWS) < 60


def mixed(**options):
    """One track of every kind: 0 plain, 1 walker, 2 late, 3 parked, 4 expert, 5 short log, 6 plain, 7 thing."""
    return straight_road(
        [
            car(20.0, speed=5.0),
            car(40.0, speed=1.0, type=TYPE_PEDESTRIAN, subtype=SUBTYPE_NONE, length=0.5, width=0.5),
            car(60.0, speed=5.0, valid=LATE),
            car(80.0),
            car(100.0, speed=5.0, expert=True),
            car(140.0, speed=5.0, valid=EARLY),
            car(180.0, speed=5.0),
            car(220.0, speed=5.0, subtype=SUBTYPE_STATIC),
        ],
        **options,
    )


def test_codes_partition_the_tracks():
    """S52: every track has exactly one code, and it is the first reason that applies."""
    population = select(mixed(), case_of(mixed()), EnvSettings())
    assert [Exclusion(code).name for code in population.exclusion] == [
        "CONTROLLED", "WRONG_TYPE", "NOT_VALID_AT_START", "NO_GOAL", "EXPERT", "CONTROLLED", "CONTROLLED", "WRONG_TYPE",
    ]  # fmt: skip
    assert population.scored.tolist() == population.policy.tolist() == [0, 5, 6]
    assert population.ego_rule == ""
    assert eligible(mixed(), EnvSettings()).tolist() == [0, 5, 6]


def test_three_hundred_tracks_before_the_first_driver():
    """S51: eligible tracks are found first, then chosen; a cap on the search would find nobody (peer issue 205)."""
    scene = straight_road([car(1.0 + n, y=-40.0) for n in range(300)] + [car(100.0, speed=5.0), car(150.0, speed=5.0)])
    assert select(scene, case_of(scene), EnvSettings()).scored.tolist() == [300, 301]


def test_one_ego_by_each_rule():
    """E66: the case's own ego, else the file's, else the vehicle valid longest from the start, ties by source id."""
    sdc = EnvSettings(control="sdc")
    named = mixed(sdc=6)
    assert select(named, case_of(named), sdc)[-3:-1] == (6, "scene")
    scene = mixed()
    assert select(scene, case_of(scene), sdc)[-3:-1] == (0, "longest_valid")
    assert select(scene, case_of(scene, ego=5), EnvSettings())[-3:-1] == (5, "each")
    renumbered = straight_road([car(20.0, speed=5.0, source_id=9), car(60.0, speed=5.0, source_id=4)])
    assert select(renumbered, case_of(renumbered), sdc).ego == 1


@pytest.mark.parametrize("ego", [1, 2, 3, 4, 99])
def test_an_ego_that_cannot_drive_is_refused(ego):
    """A pedestrian, a late, parked or bound track as ego would be a case about nothing; the message says which."""
    scene = mixed()
    with pytest.raises(CaseError, match="ego"):
        select(scene, case_of(scene, ego=ego), EnvSettings())


def test_nobody_to_test_is_an_error():
    """S53: a scene without a controllable agent is an error that names it, never an empty world."""
    scene = straight_road([car(80.0)], name="parked-only")
    with pytest.raises(CaseError, match="parked-only: nobody to test"):
        select(scene, case_of(scene), EnvSettings())
    with pytest.raises(CaseError, match="parked-only"):
        select(scene, case_of(scene), EnvSettings(control="sdc"))


def test_limit_keeps_by_rank_whatever_the_order():
    """S52: the recording vehicle, tracks to predict, then distance to it; shuffling the file changes nothing."""
    cars = [car(20.0 * n, speed=5.0, source_id=50 - n) for n in range(1, 9)]
    kept = set()
    for order in list(itertools.permutations(range(8)))[:: 40320 // 12]:
        place = {number: position for position, number in enumerate(order)}
        scene = straight_road([cars[n] for n in order], sdc=place[3], predict=[place[7]])
        population = select(scene, case_of(scene), EnvSettings(max_controlled=4))
        kept.add(tuple(sorted(int(scene.tracks.source_id[track]) for track in population.scored)))
        assert (population.exclusion == Exclusion.OVER_LIMIT).sum() == 4
    # sdc (car 3), to predict (car 7), and the two nearest to car 3.
    assert kept == {tuple(sorted(50 - n - 1 for n in (3, 7, 2, 4)))}


def test_a_drawn_rank_is_the_cases_and_not_the_files():
    """S52: in training who comes first under a limit is drawn; every agent has its turn, the recording vehicle and
    tracks to predict keep theirs, and a shuffled file gives the same."""
    cars = [car(20.0 * n, speed=5.0, source_id=50 - n) for n in range(1, 9)]
    settings = EnvSettings(max_controlled=4, limit_rank="drawn")

    def kept(order, seed):
        scene = straight_road([cars[n] for n in order], sdc=order.index(3), predict=[order.index(7)])
        # The same case whatever the file: its digest enters the seed, so one case is asked about both.
        population = select(scene, case_of(scenes[0], benchmark_seed=seed), settings)
        return frozenset(int(scene.tracks.source_id[track]) for track in population.scored)

    scenes = [straight_road([cars[n] for n in range(8)], sdc=3, predict=[7])]
    found = [kept(list(range(8)), seed) for seed in range(60)]
    assert all({46, 42} <= ids and len(ids) == 4 for ids in found)
    assert set().union(*found) == {50 - n for n in range(1, 9)}
    assert [kept([5, 3, 0, 7, 1, 2, 6, 4], seed) for seed in range(60)] == found
    near = EnvSettings(max_controlled=4)
    assert len({tuple(select(scenes[0], case_of(scenes[0], benchmark_seed=s), near).scored) for s in range(9)}) == 1


def test_worlds_of_one_scene_draw_their_own_limit():
    """S52, S34: two cases of one scene choose apart, each as it would alone."""
    scene = straight_road([car(20.0 * n, speed=5.0) for n in range(1, 9)])
    settings = EnvSettings(max_controlled=2, limit_rank="drawn")
    cases = [case_of(scene, replicate=replicate) for replicate in range(6)]
    sim = simulator(scene, settings, cases=cases)
    chosen = [sim.scored(w).tolist() for w in range(6)]
    assert chosen == [select(scene, case, settings).scored.tolist() for case in cases]
    assert len({tuple(one) for one in chosen}) > 1


def test_tracks_to_predict_are_the_chosen():
    """S51: with tracks_to_predict the file's list is under test, the other eligible ones are NOT_SELECTED."""
    scene = mixed(predict=[6, 1])
    population = select(scene, case_of(scene), EnvSettings(control="tracks_to_predict"))
    assert population.scored.tolist() == [6]
    assert population.exclusion[0] == Exclusion.NOT_SELECTED


@pytest.mark.parametrize("sdc", ["policy", "replay", "idm", "pdm", "static"])
@pytest.mark.parametrize("vehicle", ["policy", "replay", "idm", "pdm", "static"])
@pytest.mark.parametrize("other", ["auto", "policy", "replay", "idm", "pdm", "static"])
def test_all_controllers_construct(sdc, vehicle, other):
    """S49: every combination; rows are the policy's agents; whoever is not under test never asks a policy."""
    scene = mixed(sdc=0)
    settings = EnvSettings(sdc_controller=sdc, vehicle_controller=vehicle, other_controller=other)
    code = {
        "policy": Controller.POLICY,
        "replay": Controller.REPLAY,
        "idm": Controller.IDM,
        "pdm": Controller.PDM,
        "static": Controller.STATIC,
    }
    population = select(scene, case_of(scene), settings)
    assert population.controller[0] == code[sdc]
    assert population.controller[6] == code[vehicle]
    walker = "replay" if other == "auto" and vehicle in ("idm", "pdm") else vehicle if other == "auto" else other
    # Pedestrians are not under test here, so no policy drives them: they follow their log.
    assert population.controller[1] == (Controller.REPLAY if walker == "policy" else code[walker])
    assert population.controller[3] == (Controller.REPLAY if vehicle == "policy" else code[vehicle])
    assert population.controller[4] == Controller.REPLAY  # bound to its log by the file
    assert population.policy.tolist() == np.flatnonzero(population.controller == Controller.POLICY).tolist()
    assert population.scored.tolist() == [0, 5, 6]  # who is scored does not depend on who drives


def test_a_substitute_drives_the_same_agents():
    """E71: baseline arms put a controller on the agents under test and leave everybody else as they were."""
    scene = mixed()
    case = case_of(scene, ego=0)
    plain = select(scene, case, EnvSettings())
    other = select(scene, case, EnvSettings(), substitute="idm")
    assert other.scored.tolist() == plain.scored.tolist()
    changed = np.flatnonzero(plain.controller != other.controller)
    assert changed.tolist() == [0]
    assert other.controller[0] == Controller.IDM
    assert len(other.policy) == 0


def test_who_exists():
    """S50: with several under test only those present at the start; with one ego also those that come later."""
    scene = mixed()
    assert not select(scene, case_of(scene), EnvSettings()).exists[2]
    assert select(scene, case_of(scene, ego=0), EnvSettings()).exists[2]


def test_only_the_controllable():
    """S50: with `controllable` nobody but those under test exists; with one ego the whole log still takes part."""
    scene = mixed()
    population = select(scene, case_of(scene), EnvSettings(init="controllable"))
    assert np.flatnonzero(population.exists).tolist() == population.scored.tolist() == [0, 5, 6]
    assert (population.controller[~population.exists] == Controller.NONE).all()
    alone = select(scene, case_of(scene, ego=0), EnvSettings(init="controllable"))
    assert alone.exists.all()


def test_agents_of_every_kind_and_nobody():
    """S51: `agents` puts pedestrians under test too; `none` leaves everybody to the controllers, with no row."""
    scene = mixed()
    everyone = select(scene, case_of(scene), EnvSettings(control="agents", other_controller="policy"))
    assert everyone.scored.tolist() == [0, 1, 5, 6]
    assert everyone.policy.tolist() == [0, 1, 5, 6]
    nobody = select(scene, case_of(scene), EnvSettings(control="none", vehicle_controller="idm"))
    assert nobody.scored.tolist() == nobody.policy.tolist() == []
    assert nobody.exclusion[0] == Exclusion.NOT_SELECTED


def test_a_limit_on_bodies_keeps_those_under_test():
    """S52: `max_agents` takes bodies away by rank, those under test last; a code tells who was taken."""
    scene = mixed()
    population = select(scene, case_of(scene), EnvSettings(max_agents=4))
    assert population.scored.tolist() == [0, 5, 6]
    assert population.exists.sum() == 4
    tight = select(scene, case_of(scene), EnvSettings(max_agents=2))
    assert len(tight.scored) == tight.exists.sum() == 2
    assert (tight.exclusion == Exclusion.OVER_LIMIT).sum() == 1
    assert len(select(scene, case_of(scene), EnvSettings(), limit=1).scored) == 1


def test_a_parked_car_that_is_driven_through_can_be_dropped():
    """S54: off by default; on, the parked box in another's path is gone with its reason, one beside it stays."""
    scene = straight_road([car(20.0, speed=8.0), car(60.0, y=0.3), car(60.0, y=-4.0)])
    assert select(scene, case_of(scene), EnvSettings()).exists.all()
    population = select(scene, case_of(scene), EnvSettings(drop_static_in_path=True))
    assert population.exists.tolist() == [True, False, True]
    assert population.exclusion[1] == Exclusion.REMOVED_BY_OVERLAP
    predicted = straight_road([car(20.0, speed=8.0), car(60.0, y=0.3), car(60.0, y=-4.0)], predict=[1])
    assert select(predicted, case_of(predicted), EnvSettings(drop_static_in_path=True)).exists.all()


def test_agents_of_a_bare_map():
    """S48, S53: numbers are drawn from [min, max] by the case, `limit` fixes them; one ego, or all under test; a log's
    ways of driving and choosing are refused."""
    scene = straight_road()
    settings = EnvSettings(simulation_mode="gigaflow", min_agents_per_world=3, max_agents_per_world=6)
    counts = [len(select(scene, case_of(scene, replicate=replicate), settings).exists) for replicate in range(200)]
    assert set(counts) == {3, 4, 5, 6}
    assert min(np.bincount(counts)[3:]) > 25
    population = select(scene, case_of(scene), settings, limit=5)
    assert population.policy.tolist() == population.scored.tolist() == [0, 1, 2, 3, 4]
    one = select(
        scene, case_of(scene), settings.model_copy(update={"control": "sdc", "vehicle_controller": "idm"}), limit=5
    )
    assert one.policy.tolist() == one.scored.tolist() == [0]
    assert one.ego == 0
    assert (one.controller[1:] == Controller.IDM).all()
    other = select(scene, case_of(scene), settings, limit=5, substitute="idm")
    assert (other.controller == Controller.IDM).all()
    for wrong in ({"vehicle_controller": "replay"}, {"control": "tracks_to_predict"}):
        with pytest.raises(SettingsError, match="log"):
            select(scene, case_of(scene), settings.model_copy(update=wrong))


def test_spans():
    """S56, S120: by default all rows left; a length the log does not have is an error with both numbers, unless time
    beyond the log is allowed; a bare map has 600 steps."""
    scene = mixed()
    case = case_of(scene)
    assert span(scene, case, EnvSettings()) == (0, 90, 100_000)
    assert span(scene, case, EnvSettings(init_step=30, dt=0.3)) == (30, 20, 300_000)
    assert span(scene, case, EnvSettings(scenario_length=12)).steps == 12
    for settings in (EnvSettings(scenario_length=91), EnvSettings(init_step=90), EnvSettings(init_step=200)):
        with pytest.raises(CaseError, match="91 rows"):
            span(scene, case, settings)
    assert span(scene, case, EnvSettings(scenario_length=91, allow_beyond_log=True)).steps == 91
    assert span(scene, case, EnvSettings(simulation_mode="gigaflow")) == (0, 600, 100_000)


def test_starts_are_spread():
    """S56: start rows cover [init_step, T - horizon_min] evenly, both ends included, avoid rows without the recording
    vehicle, and always leave room for the length; impossible ones are errors."""
    scene = straight_road([car(20.0, speed=5.0, valid=np.arange(ROWS) % 2 == 0), car(60.0, speed=5.0)], sdc=0)
    settings = EnvSettings(init_spread=True, init_step=20, horizon_min=31, control="vehicles")
    rows = [span(scene, case_of(scene, replicate=n), settings).start_row for n in range(600)]
    assert set(rows) == set(range(20, 61, 2))
    often = np.bincount(rows)[20:61:2]
    assert ((often - 600 / 21) ** 2 / (600 / 21)).sum() < 45
    exact = EnvSettings(init_spread=True, scenario_length=80)
    assert {span(scene, case_of(scene, replicate=n), exact).start_row for n in range(100)} == {0, 2, 4, 6, 8, 10}
    with pytest.raises(CaseError, match="no start row"):
        span(scene, case_of(scene), EnvSettings(init_spread=True, init_step=85))
    never = straight_road([car(20.0, valid=np.arange(ROWS) == 90), car(60.0, speed=5.0)], sdc=0)
    with pytest.raises(CaseError, match="recording vehicle"):
        span(never, case_of(never), EnvSettings(init_spread=True))
