"""Cases that share a view are measured as if each were alone."""

from __future__ import annotations

import dataclasses

import numpy as np
from driving import cruise, drive
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.evaluation.metrics.guards import contradictions
from skidpad.evaluation.metrics.registry import METRICS, agents_of, by_case, compute, compute_agents, together
from skidpad.evaluation.metrics.view import CaseView
from skidpad.runs.trace import Trace

FEW = ("goals", "goal_count", "goal_first")
DRIVEN = ("action", "action_applied", "action_clipped", "observation", "value", "distribution")


def cases_of(seed: int, chosen: list[list[int]], made) -> tuple[list[Trace], object]:
    """Traces of different drives in one scene, each with some of its agents under test."""
    first, scene = made(seed)
    traces = []
    for offset, agents in enumerate(chosen):
        arrays = dict(made(seed + offset)[0].arrays)
        arrays |= {name: arrays[name][:, agents] for name in FEW} | {
            name: arrays[name][:, :, agents] for name in DRIVEN
        }
        arrays |= {name: arrays[name][agents] for name in ("scored", "policy_agent")}
        traces.append(dataclasses.replace(first, arrays=arrays))
    return traces, scene


@given(
    st.integers(0, 2**32),
    st.lists(st.lists(st.integers(0, 3), unique=True, max_size=3).map(sorted), min_size=2, max_size=4),
    st.sampled_from([drive, cruise]),
)
@settings(max_examples=12, deadline=None)
def test_a_shared_view_changes_no_bit(seed: int, chosen: list[list[int]], made) -> None:
    """E73, Q1: which cases share a view depends on batches and workers, and records must not. Windows, contacts and
    places are shared between rows, and one index of the wrong case would show here."""
    traces, scene = cases_of(seed, chosen, made)
    view = CaseView(traces, scene)
    found = agents_of(view)
    alone = [compute_agents(trace, scene) for trace in traces]
    for name, values in found.items():
        for column, together_ in enumerate(values):
            apart = np.concatenate([one[name][column] for one in alone])
            assert apart.tobytes() == together_.tobytes(), name
    assert by_case(view, found) == [compute(trace, scene) for trace in traces]
    assert len(found) == len(METRICS)
    assert bool(contradictions(view, found)) == any(
        contradictions(CaseView(trace, scene), one) for trace, one in zip(traces, alone, strict=True)
    )


def test_only_alike_cases_share_a_view() -> None:
    """Cases of other scenes, lengths or start rows, and episodes of bare maps, stand alone; nothing is left out."""
    (trace, scene), (longer, _), (_, other) = drive(0), drive(0, steps=20), drive(1)
    later = dataclasses.replace(trace, meta=dataclasses.replace(trace.meta, start_row=1))
    bare = dataclasses.replace(trace, meta=dataclasses.replace(trace.meta, settings={"simulation_mode": "gigaflow"}))
    again = dataclasses.replace(bare)
    cases = [
        (trace, scene),
        (longer, scene),
        (later, scene),
        (bare, scene),
        (again, scene),
        (trace, other),
        (trace, scene),
    ]
    assert together(cases) == [[0, 6], [1], [2], [3], [4], [5]]
