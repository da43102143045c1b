"""`skidpad bench` prints figures that a later run can be held against; no test asserts a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skidpad.bench.calibration import RING_BYTES, calibrate, drift, spread
from skidpad.bench.history import append_history, read_history, regressions
from skidpad.bench.sim import AT_MOST, PHASES, TARGETS, Shape, open_worlds, rounds_of, verdicts
from skidpad.cli import run
from skidpad.errors import FormatError
from skidpad.scenes.library import library_scenes


def test_figures_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Each bench names its schema, the machine and both calibrations; ratios need something to be ratios of (S130)."""
    for what, version, key in (("sim", 2, "agent_steps_per_cpu_second"), ("scenes", 1, "scenes")):
        assert run(["bench", what, "--quick", "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)
        assert figures["schema"] == f"skidpad.bench.{what}/{version}"
        assert figures["machine"]["cpu"]
        assert set(figures["calibration"]) == {"before", "after", "reliable"}
        assert figures[key]
        if what == "scenes":
            assert all(row["convert_s"] > 0 and row["load_ms"] > 0 for row in figures["scenes"])
        else:
            named = {"layout", "map", "worlds", "agents", "threads", "copy_bound_share", "two_thread_speedup"}
            assert named <= figures.keys()
            assert set(figures["phases_ns"]) == set(PHASES)


@pytest.mark.slow
def test_shared_maps_cost_once(capsys: pytest.CaptureFixture[str]) -> None:
    """S25, S26, S128: a second process and 999 further worlds add no map memory, and a world little else."""
    assert run(["bench", "cache", "--quick", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["schema"] == "skidpad.bench.cache/1"
    assert min(figures[key] for key in ("build_ms", "open_cached_ms", "open_hashed_ms", "reset_world_ms")) > 0
    if not Path("/proc/self/smaps").exists():
        pytest.skip("the operating system does not tell proportional set sizes")
    assert figures["map_bytes_ratio_1000_worlds"] <= 1.05
    assert figures["second_process_share"] < 0.02
    assert figures["second_process_own_bytes"] < 0.5 * figures["map_bytes"]
    assert 0 < figures["kib_per_world"] <= 64


def test_files_are_for_scenes_only(capsys: pytest.CaptureFixture[str]) -> None:
    """An argument that is ignored misleads: only `bench scenes` takes files, and it measures those."""
    path = library_scenes("USA_US101-3_3_T-1")[0]
    assert run(["bench", "scenes", str(path), "--quick", "--json"]) == 0
    assert [row["file"] for row in json.loads(capsys.readouterr().out)["scenes"]] == [path.name]
    assert run(["bench", "sim", str(path)]) == 2


def test_driven_rows_are_counted() -> None:
    """Vehicles that left are no agent-steps: counting every row would make an empty road the fastest."""
    with open_worlds(Shape(2, 0, mode="replay")) as simulator:
        steps = int(simulator.world_steps.min()) - 1
        rates = rounds_of(simulator, steps, rounds=1)
        assert 0 < rates.agent_steps < len(simulator.row_world) * steps
        assert len(rates.cpu) == len(rates.wall) == 1


def test_a_verdict_flips_when_everything_takes_twice_as_long() -> None:
    """S130: a target that is missed is called missed, from either side; a verdict that cannot change says nothing."""
    fast = {name: target * (0.9 if name in AT_MOST else 1.1) for name, target in TARGETS.items()}
    slow = {name: value * (2 if name in AT_MOST else 0.5) for name, value in fast.items()}
    assert set(verdicts(fast).values()) == {"met"}
    assert set(verdicts(slow).values()) == {"missed"}
    assert verdicts({}) == {}


def test_a_slower_release_is_named(tmp_path: Path) -> None:
    """S131: ratios 15 % worse than the last reliable entry are named; an unreliable run vouches for nothing."""
    path = tmp_path / "bench.jsonl"
    good = {"schema": "x/1", "copy_bound_share": 0.5, "calibration": {"reliable": True}}
    assert read_history(path, "x/1") == []
    append_history(path, good)
    append_history(path, {**good, "copy_bound_share": 0.9, "calibration": {"reliable": False}})
    append_history(path, {**good, "schema": "y/1", "copy_bound_share": 9.0})
    history = read_history(path, "x/1")
    assert [entry["copy_bound_share"] for entry in history] == [0.5, 0.9]
    assert regressions(history, {"copy_bound_share": 0.43}) == []
    assert regressions(history, {"copy_bound_share": 0.42}) == ["copy_bound_share: 0.420, was 0.500"]
    path.write_text("not figures\n")
    with pytest.raises(FormatError, match=r"bench\.jsonl:1"):
        read_history(path, "x/1")


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
