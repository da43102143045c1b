"""Dead metrics (Q40) and contradictions (Q41): each guard finds what was planted, and nothing where all is well."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hand_worked import crash, goals

from skidpad.evaluation.metrics.guards import SUBSETS, cross_checks, dead_metrics
from skidpad.evaluation.metrics.registry import METRICS, compute_agents
from skidpad.evaluation.metrics.view import measured
from skidpad.runs.records import Record


def records(columns: dict[str, list[float | None]], scenes: int = 25) -> list[Record]:
    count = len(next(iter(columns.values())))
    rows = []
    for row in range(count):
        metrics = {name: {"value": values[row], "valid": values[row] is not None} for name, values in columns.items()}
        rows.append(
            Record(
                evaluator="e", epoch=0, step=0, checkpoint="", case=f"c{row}", arm="idm", case_index=row, scene_id="s",
                scene_digest=f"d{row % scenes}", seed=0, benchmark_seed=0, replicate=0, ego=-1, ego_rule="",
                status="ok", error=None, result={"metrics": metrics},
            )
        )  # fmt: skip
    return rows


SPEEDS = [5.0 + 0.01 * k for k in range(250)]


def test_planted_constant_is_dead() -> None:
    """Q40, EF22: the peer's comfort score was 1 for every car ever scored."""
    found = dead_metrics(records({"comfort_rate": [1.0] * 250, "avg_speed": SPEEDS}))
    assert [(dead.metric, dead.why, dead.expected) for dead in found] == [("comfort_rate", "constant 1", None)]


def test_planted_duplicate_is_dead() -> None:
    """Q40: two names for one number hide that one of the two was never computed."""
    found = dead_metrics(records({"lane_offset": SPEEDS, "avg_speed": SPEEDS}))
    assert [(dead.metric, dead.why) for dead in found] == [("lane_offset", "equal to avg_speed")]


def test_stuck_at_an_end_is_dead_unless_events_are_rare() -> None:
    """Q40: 249 of 250 at 1 is a broken comfort score, and a good driver's red lights."""
    column = [1.0] * 249 + [0.9]
    found = dead_metrics(records({"comfort_rate": column, "avg_speed": SPEEDS}))
    assert [dead.why for dead in found] == ["99.6 % of rows at 1"]
    assert dead_metrics(records({"red_light_rate": [1 - value for value in column], "avg_speed": SPEEDS})) == []


def test_declared_constants_carry_their_reason() -> None:
    """Q40: no lights in the set is right, said once, and still listed."""
    found = dead_metrics(records({"red_light_rate": [0.0] * 250}), {"red_light_rate": "no scene has lights"})
    assert [dead.expected for dead in found] == ["no scene has lights"]


def test_few_rows_or_scenes_are_not_judged() -> None:
    """Q40: a constant over 10 scenes is no evidence, nor are rows without a value."""
    assert dead_metrics(records({"comfort_rate": [1.0] * 199})) == []
    assert dead_metrics(records({"comfort_rate": [1.0] * 250}, scenes=19)) == []
    assert dead_metrics(records({"comfort_rate": [None] * 100 + [1.0] * 150})) == []
    failed = [dataclasses.replace(record, result=None) for record in records({"comfort_rate": [1.0] * 250})]
    assert dead_metrics(failed) == []


def test_sound_case_has_no_contradiction() -> None:
    """Q41: the checks must be silent on what the simulator writes."""
    for made in (crash(), goals(2)):
        trace, scene = made
        arrays = dict(trace.arrays)
        arrays["events"] = arrays["events"] | (np.diff(arrays["goal_index"], axis=1, prepend=0) > 0) * np.uint32(1 << 9)
        trace = dataclasses.replace(trace, arrays=arrays)
        assert cross_checks(trace, scene, compute_agents(trace, scene)) == []


def test_outcomes_that_do_not_sum_to_one_are_named() -> None:
    """Q41: a car that both scored and had an infraction."""
    trace, scene = goals(3)
    agents = compute_agents(trace, scene) | {"infraction_rate": measured(np.array([1.0]))}
    assert "outcomes of agent row 0 sum to 2, not 1" in cross_checks(trace, scene, agents)


@pytest.mark.parametrize(("small", "large"), SUBSETS)
def test_part_above_its_whole_is_named(small: str, large: str) -> None:
    """Q41: more cars at fault than cars in contact; each pair violated once."""
    trace, scene = crash()
    assert {small, large} <= METRICS.keys()
    agents = {small: measured(np.array([0.0, 1.0])), large: measured(np.array([1.0, 0.5]))}
    assert cross_checks(trace, scene, agents) == [f"{small} 1 of agent row 1 is above {large} 0.5"]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("contact_partner", -1, "collided in a step without a contact partner"),
        ("goal_index", 1, "has reached 1 goals without a goal event"),
    ],
)
def test_events_that_the_arrays_deny_are_named(name: str, value: int, sentence: str) -> None:
    """Q41: events recounted from the trace; a lost partner or goal event shows nowhere else."""
    trace, scene = crash()
    arrays = trace.arrays | {name: np.full_like(trace[name], value)}
    assert any(sentence in line for line in cross_checks(dataclasses.replace(trace, arrays=arrays), scene, {}))


def test_fault_without_collision_is_named() -> None:
    """Q41: fault is a property of a collision."""
    trace, scene = crash()
    arrays = trace.arrays | {"events": trace["events"] & ~np.uint32(1)}
    assert any("at fault" in line for line in cross_checks(dataclasses.replace(trace, arrays=arrays), scene, {}))
