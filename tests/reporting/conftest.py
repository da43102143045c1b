"""A report and a manifest written by hand, small enough to know every number on the page."""

from __future__ import annotations

from typing import Any

import pytest


def entry(value: float | None, unit: str = "rate", direction: str = "higher", **more: Any) -> dict[str, Any]:
    """One summarised metric as `report.json` holds it."""
    return {
        "value": value,
        "valid": value is not None,
        "reason": None if value is not None else "no_log",
        "n": 10,
        "invalid": 0,
        "by_scene": value,
        "by_agent": value,
        "interval": None if value is None else [value - 0.1, value + 0.1],
        "interval_reason": None,
        "bound": None,
        "unit": unit,
        "direction": direction,
        "clusters": 3,
        **more,
    }


@pytest.fixture
def report() -> dict[str, Any]:
    """Two arms, one of them without data in one metric and without an event in another."""
    arms = {
        "idm": {
            "n_cases": 10,
            "n_agents": 10,
            "metrics": {
                "score": entry(0.4),
                "ade_log": entry(2.5, "m", "lower"),
                "red_light_rate": entry(None, direction="lower", reason="no_signal"),
                "collision_rate": entry(0.3, direction="lower"),
            },
        },
        "log": {
            "n_cases": 10,
            "n_agents": 10,
            "metrics": {
                "score": entry(0.9),
                "ade_log": entry(0.0, "m", "lower", interval=None, interval_reason="constant"),
                "red_light_rate": entry(None, direction="lower", reason="no_signal"),
                "collision_rate": entry(0.0, direction="lower", interval=None, bound="below 63 % at 95 %"),
            },
        },
    }
    difference = {
        "n": 10,
        "difference": -0.5,
        "interval": [-0.7, -0.3],
        "interval_reason": None,
        "p": 0.03125,
        "wins": 1,
        "ties": 4,
        "losses": 5,
        "verdict": "worse",
    }
    case = {"case": "case0", "scene_id": "crossing-3", "metric": "score", "value": 0.0, "reason": None, "arms": {}}
    return {
        "schema": "skidpad.report/3",
        "pooled": {},
        "ok": True,
        "status": "complete",
        "verdict": "traffic: idm against log: worse on score.",
        "reproduce": "skidpad eval suite.toml --out run",
        "evaluators": {
            "traffic": {
                "type": "human_replay",
                "ok": True,
                "status": "ok",
                "primary": "score",
                "focus": "idm",
                "reference": "log",
                "cases": 10,
                "cluster": "log",
                "clusters": 3,
                "few_clusters": True,
                "coverage": {
                    "expected": 20,
                    "attempted": 20,
                    "finished": 19,
                    "failed": {"error": 1},
                    "distinct_scenes": 3,
                    "missing": [],
                    "duplicated": [],
                    "complete": True,
                },
                "arms": arms,
                "paired": {"idm": {"score": difference}},
                "worst": [case],
                "random": [],
                "digests": {"section": "s" * 64, "metrics": "m" * 64},
                "seconds": {"eval_seconds": 1.25},
            }
        },
    }


@pytest.fixture
def manifest() -> dict[str, Any]:
    """What ran: a checkout with uncommitted changes."""
    return {
        "identity": {"code": "c" * 64},
        "environment": {
            "skidpad": "0.1.0",
            "commit": "abc123",
            "dirty": True,
            "python": "3.11.7",
            "libraries": {"numpy": "2.0", "torch": None},
            "cpu": "a processor",
            "cpu_count": 2,
            "system": "Linux x86_64",
            "threads": 1,
        },
        "run": {"started": "2026-01-01T00:00:00Z", "host": "host"},
        "suite": {"config": "[eval]\nbenchmark_seed = 0  # default"},
        "evaluators": {},
    }
