"""`skidpad bench` prints figures that a later run can be held against; no test asserts a time."""

from __future__ import annotations

import json

import pytest

from skidpad.bench.calibration import RING_BYTES, calibrate, drift, spread
from skidpad.cli import run


def test_figures_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Each bench names its schema, the machine and both calibrations; ratios need something to be ratios of (S130)."""
    for what, key in (("sim", "agent_steps_per_cpu_second"), ("scenes", "scenes")):
        assert run(["bench", what, "--quick", "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)
        assert figures["schema"] == f"skidpad.bench.{what}/1"
        assert figures["machine"]["cpu"]
        assert set(figures["calibration"]) == {"before", "after", "reliable"}
        assert figures[key]


def test_driven_rows_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Vehicles that left are no agent-steps: counting every row would make an empty road the fastest."""
    assert run(["bench", "sim", "--quick", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert 0 < figures["agent_steps"] < figures["rows"] * figures["steps"]


def test_drift_says_when_loops_disagree() -> None:
    """A machine that slowed down by half between the loops is seen, whichever loop slowed."""
    before = {"fill_reused": 10.0, "copy_ring": 4.0}
    assert drift(before, before) == 0.0
    assert drift(before, {"fill_reused": 10.0, "copy_ring": 2.0}) == 0.5
    assert spread([3.0, 1.0, 2.0]) == {"min": 1.0, "median": 2.0}


def test_calibration_streams_past_the_cache() -> None:
    """The ring is larger than the caches of today's processors, and every loop gives a rate."""
    assert RING_BYTES >= 256 << 20
    assert all(rate > 0 for rate in calibrate(repeats=1).values())
