"""The registry of rollout metrics: by hand, apart, golden, and checked against each other (Q8, Q9, Q35, Q36, Q41,
Q42)."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from golden_rollouts import golden, refusals
from hand_rollouts import HAND, moved
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_world import repeated, straight, world

from skidpad.errors import CaseError, UsageError
from skidpad.evaluation.metrics import displacement_sets as sets
from skidpad.evaluation.metrics import registry
from skidpad.evaluation.metrics import rollout_registry as rollouts_registry
from skidpad.evaluation.metrics.registry import MetricValue
from skidpad.evaluation.metrics.rollout_registry import (
    PEER_ROLLOUT_METRICS,
    ROLLOUT_METRICS,
    RolloutView,
    compute_rollouts,
    golden_rollout_values,
    rollout_cross_checks,
    rollout_spec_digest,
    value_of,
)
from skidpad.evaluation.metrics.view import measured
from skidpad.evaluation.rollouts import RolloutCase, Task, make_log

ALL = {**ROLLOUT_METRICS, **PEER_ROLLOUT_METRICS}


def test_every_metric_has_a_hand_case() -> None:
    """Q9: a metric without one may be a constant; and no name is taken twice."""
    assert sorted(HAND) == sorted(ALL)
    assert not set(ALL) & set(registry.METRICS)


@pytest.mark.parametrize("name", ALL)
def test_value_is_the_one_worked_out_by_hand(name: str) -> None:
    """Q9, Q35, Q36: numbers are in the docstring of each hand case."""
    case, rollouts, wanted = HAND[name]()
    found = compute_rollouts(case, rollouts, [name], not_standard=True)[name]
    # Positions are float32; 50 m has a last bit of 4e-6 m.
    assert found.value == pytest.approx(wanted, abs=2e-6)
    assert found.denominator == 1


@pytest.mark.parametrize("name", ALL)
def test_value_moves_when_it_should(name: str) -> None:
    """Q9: two worlds that differ in everything."""
    values = [compute_rollouts(*world(seed), [name])[name].value for seed in (0, 1)]
    if name == "miss_rate":
        values = [compute_rollouts(*moved((far, 0)), [name], not_standard=True)[name].value for far in (1, 20)]
    assert None not in values
    assert values[0] != values[1]


def test_values_are_the_golden_ones() -> None:
    """Q8: a refactoring that changes a number must raise the version. Eight digits are stored; single samples sit near
    bin edges only if a machine differs in float32 division, which none does."""
    stored, found = golden_rollout_values(), golden()
    assert list(stored) == list(ALL)
    for name, entry in found.items():
        assert stored[name]["version"] == ALL[name].version
        for golden_value, value in zip(stored[name]["values"], entry["values"], strict=True):
            assert (golden_value is None) == (value is None), name
            assert value is None or golden_value == pytest.approx(value, rel=1e-6, abs=1e-9), name
    assert refusals(stored, stored | {"ade": {"version": 1, "values": [0.0]}}) == ["ade"]


def test_digest_is_of_parameters_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q42: a changed weight or golden value is another metric; the order of names is not."""
    before = rollout_spec_digest(["realism_2025", "ade"])
    assert rollout_spec_digest(["ade", "realism_2025"]) == before
    assert rollout_spec_digest(["realism_2024", "ade"]) != before
    line = ROLLOUT_METRICS["realism_2025"]
    assert line.parameters["collision_indication_weight"] == 0.25
    assert line.parameters["angular_speed_number"] == 11
    changed = dataclasses.replace(line, parameters={**line.parameters, "collision_indication_weight": 0.26})
    with monkeypatch.context() as patch:
        patch.setattr(rollouts_registry, "ROLLOUT_METRICS", {**ROLLOUT_METRICS, "realism_2025": changed})
        assert rollout_spec_digest(["realism_2025", "ade"]) != before
    values = golden_rollout_values() | {"ade": {"version": 1, "values": [0.5]}}
    monkeypatch.setattr(rollouts_registry, "golden_rollout_values", lambda: values)
    assert rollout_spec_digest(["realism_2025", "ade"]) != before


def test_names_of_challenge_and_product_stay_out() -> None:
    """Q44: no claim in a metric's name until a person has decided."""
    for name, metric in ALL.items():
        assert not re.search(r"wos|waymo|sim_?agents|challenge", name + metric.aid, re.I)


def test_the_peers_value_stands_apart() -> None:
    """Q31: two definitions under similar names never stand in one table."""
    assert "puffer/realism" not in compute_rollouts(*world(0))
    with pytest.raises(UsageError, match="one at a time"):
        compute_rollouts(*world(0), ["puffer/realism", "realism_2025"])
    with pytest.raises(UsageError, match="did you mean 'diversity'"):
        compute_rollouts(*world(0), ["diversty"])


def test_identical_rollouts_have_no_diversity() -> None:
    """Q36: 32 equal rollouts can score well; this is how one sees it. A single one has no pairs: no data."""
    log = make_log(**straight(3))
    found = compute_rollouts(RolloutCase("a", log), repeated(log), ["diversity", "diversity_final", "spread_ratio"])
    assert (found["diversity"].value, found["diversity_final"].value) == (0, 0)
    assert found["spread_ratio"] == MetricValue(0.0, 0.0, False, "not_applicable")
    one = compute_rollouts(RolloutCase("a", log), repeated(log, 1), ["diversity"], not_standard=True)["diversity"]
    assert one == MetricValue(0.0, 0.0, False, "not_applicable")


def test_a_log_without_future_has_no_error() -> None:
    """Q3: nothing to compare with is not an error of 0 m."""
    case, rollouts = world(0)
    valid = case.log.valid.copy()
    valid[:, 11:] = False
    blind = dataclasses.replace(case, log=dataclasses.replace(case.log, valid=valid))
    found = compute_rollouts(blind, rollouts)
    missing = {name: value.reason for name, value in found.items() if not value.valid}
    assert missing == {
        name: "too_short" if name.startswith("realism") else "no_log"
        for name in ROLLOUT_METRICS
        if not name.startswith("diversity")
    }


def test_objects_without_log_do_not_weigh() -> None:
    """Q35: a track that ends now has no error; counted as 0 it would halve the mean."""
    case, rollouts = moved((1, 3), (5, 1))
    valid = case.log.valid.copy()
    valid[1, 11:] = False
    shorter = dataclasses.replace(case, log=dataclasses.replace(case.log, valid=valid))
    found = compute_rollouts(shorter, rollouts, ["ade", "fde", "min_ade_joint"], not_standard=True)
    assert [found[name].value for name in ("ade", "fde", "min_ade_joint")] == pytest.approx([3, 3, 1], abs=1e-5)


@pytest.mark.parametrize(("rows", "bound"), [(10, 6.0), (30, 6.0), (31, 8.0), (50, 8.0), (51, 16.0), (80, 16.0)])
def test_the_bound_of_a_miss_is_that_of_the_horizon(rows: int, bound: float) -> None:
    """Q35: a track that ends after 3 s is judged by 6 m, one after 3.1 s by the bound of 5 s."""
    for error, wanted in ((bound - 0.1, 0.0), (bound + 0.1, 1.0)):
        case, rollouts = moved((error, error))
        valid = case.log.valid.copy()
        valid[:, 11 + rows :] = False
        shorter = dataclasses.replace(case, log=dataclasses.replace(case.log, valid=valid))
        assert compute_rollouts(shorter, rollouts, ["miss_rate"], not_standard=True)["miss_rate"].value == wanted


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0, 100), min_size=3, max_size=3), min_size=1, max_size=5))
def test_marginal_joint_mean(error: list[list[float]]) -> None:
    """Q35, Q41: marginal <= joint <= mean, whatever the errors."""
    array = np.array(error)
    assert sets.min_marginal(array) <= sets.min_joint(array) + 1e-9
    assert sets.min_joint(array) <= array.mean() + 1e-9


def test_diversity_against_all_pairs() -> None:
    """Q36: the loop over first rollouts counts each pair once."""
    case, rollouts = world(2, count=5)
    xy = np.stack([rollouts.x, rollouts.y], axis=-1)[:, case.log.scored].astype(float)
    pairs = [np.linalg.norm(xy[a] - xy[b], axis=-1).mean() for a in range(5) for b in range(a)]
    assert sets.diversity(rollouts, case.log.scored) == pytest.approx(np.mean(pairs))


def test_cross_checks_each_violated_once() -> None:
    """Q41: silence when all is well, a sentence for each contradiction."""
    view = RolloutView(*world(0))
    values = {name: value_of(metric, view) for name, metric in ROLLOUT_METRICS.items()}
    results = list(view.results.values())
    assert rollout_cross_checks(values, results) == []
    low = MetricValue(0.0, 1.0, True, None)
    assert len(rollout_cross_checks(values | {"ade": low})) == 1
    assert "min_ade_marginal" in rollout_cross_checks(values | {"min_ade_joint": low})[0]
    for wrong in (0.0, 1.1):
        bad = dataclasses.replace(results[0], likelihoods={"linear_speed": wrong})
        assert "outside (0, 1]" in rollout_cross_checks({}, [bad])[0]


def test_value_outside_its_range_is_an_error() -> None:
    """Q2: it names metric and case instead of entering a mean."""
    broken = dataclasses.replace(ROLLOUT_METRICS["ade"], function=lambda view: measured(np.array([-1.0])))
    with pytest.raises(CaseError, match="ade/1 of case world-0 is -1"):
        value_of(broken, RolloutView(*world(0)))


def test_official_error_reads_low() -> None:
    """Q35: 12 % for a full track, 27 % with 30 valid rows after now."""
    for rows, share in ((80, 0.12), (30, 0.27)):
        fields = straight(1)
        fields["valid"][0, 11 + rows :] = 0
        log = make_log(**fields)
        task = Task(repeated(log, 1), log, ())
        task.rollouts.y[:] += 4
        assert 1 - float(sets.ade_official(task)[0, 0]) / float(sets.ade(task)[0, 0]) == pytest.approx(share, abs=0.005)
