"""Scores that no run computes, because no trace holds what they are about: plans beside what then happened, tables of a
benchmark's routes, scenes of two stages. They are functions of arrays, to be called from Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from skidpad.evaluation.metrics.carla_score import b2d_table
from skidpad.evaluation.metrics.comfort import nuplan_series, percentile_90
from skidpad.evaluation.metrics.navsim_score import ego_progress, epdms, extended_comfort, pdms, plan_terms, two_stage
from skidpad.evaluation.metrics.open_loop import miss_shares, open_loop_errors, open_loop_score, pose_error
from skidpad.evaluation.metrics.plan import log_view, plan_view
from skidpad.evaluation.metrics.plan_tracking import tracked


class Called(NamedTuple):
    """A function, and one line on how to read what it returns."""

    function: Callable[..., Any]
    aid: str

    @property
    def line(self) -> str:
        """How to get at it."""
        return f"from {self.function.__module__} import {self.function.__name__}"


CALLED: Mapping[str, Called] = {
    called.function.__name__: called
    for called in (
        Called(open_loop_errors, "errors of plans at 3, 5 and 8 s; the input of open_loop_score"),
        Called(open_loop_score, "nuplan_ols/1, 0 to 1: says who imitates, not who drives well"),
        Called(miss_shares, "share of plans that went far astray; above 0.3 at any horizon makes nuplan_ols 0"),
        Called(pose_error, "metres between two poses, with headings weighted as told"),
        Called(plan_view, "a plan as a case: what every score of a drive, and plan_terms, can look at"),
        Called(log_view, "the recorded drive as such a case"),
        Called(tracked, "what a car makes of a plan: the poses that NAVSIM scores"),
        Called(plan_terms, "all terms of PDMS and EPDMS of a plan, progress in metres"),
        Called(ego_progress, "term EP against any reference; 1 where the better of the two moved no more than 5 m"),
        Called(pdms, "PDMS against any reference: hand over metres of PDM-Closed for the published definition"),
        Called(epdms, "EPDMS likewise, with the terms of the recorded driver as the filter"),
        Called(extended_comfort, "whether two plans in a row agree; one that changes its mind each time is no comfort"),
        Called(two_stage, "NAVSIM's score of a scene from both stages; near to the end of stage one weighs more"),
        Called(nuplan_series, "nuPlan's smoothed comfort series, whose bounds comfort_nuplan judges"),
        Called(percentile_90, "the 90th percentile that nuPlan prints beside a series; ties go to the odd rank"),
        Called(b2d_table, "Bench2Drive's table over its routes; a route without a result counts zero"),
    )
}  # fmt: skip


def facts(name: str) -> list[tuple[str, str]]:
    """What a function is as (heading, text), in reading order."""
    called = CALLED[name]
    definition = " ".join((inspect.getdoc(called.function) or "").split())
    return [("definition", definition), ("read it", called.aid), ("call it", called.line)]
