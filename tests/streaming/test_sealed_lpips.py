"""`rgb_lpips` in a sealed run: measured where its weights are, absent with a reason where they are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sealed_runs import make_world, run_sealed

from skidpad.artifacts.weights import save_weights
from skidpad.errors import IntegrityError
from skidpad.evaluation.evaluators import sealed_stream
from skidpad.evaluation.metrics import lpips
from skidpad.evaluation.sealed_scoring import _lpips
from skidpad.evaluation.verify import verify_run
from skidpad.reporting.sealed_page import sealed_page

SIZES = ((11, 3, 2), (5, 2, 2), (3, 2, 2), (3, 2, 2), (3, 2, 2))


def given_weights(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a small file of weights the user's."""
    rng = np.random.default_rng(0)
    arrays = {}
    for k, (size, inputs, outputs) in enumerate(SIZES):
        arrays[f"conv_{k}.weight"] = rng.normal(0, 1 / size, (outputs, inputs, size, size)).astype(np.float32)
        arrays[f"conv_{k}.bias"] = np.full(outputs, 0.1, np.float32)
        arrays[f"head_{k}.weight"] = np.ones(outputs, np.float32)
    digest = save_weights(path, arrays, {"kind": lpips.KIND})
    monkeypatch.setattr(lpips, "WEIGHTS_DIGEST", digest)
    monkeypatch.setattr(lpips, "available", lambda: path)
    monkeypatch.setattr(sealed_stream, "weights_file", lambda: path)


def test_present_or_absent_but_never_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M75: without weights no record, table or mean has the name, and a caveat says why; with weights every policy has
    a positive value, the registration says so, and the run verifies; a file changed in between ends the run."""
    world = make_world(tmp_path)
    without = run_sealed(world, tmp_path / "without", page=sealed_page)
    assert "rgb_lpips" not in without["metric_keys"]
    assert "rgb_lpips" not in without["registration"]["metrics"]
    reason = "rgb_lpips is absent: its weights were not on this machine (`skidpad weights lpips` obtains them)."
    assert reason in without["caveats"]
    assert "rgb_lpips" not in (tmp_path / "without" / "sealed" / "queries.csv").read_text()

    given_weights(tmp_path / "lpips.safetensors", monkeypatch)
    run = run_sealed(world, tmp_path / "with", page=sealed_page)
    assert run["registration"]["metrics"]["rgb_lpips"] == 1
    assert run["run_id"] != without["run_id"]
    assert reason not in run["caveats"]
    means = {row["arm"]: row["metrics"]["rgb_lpips"]["mean"] for row in run["summaries"]}
    assert all(value > 0 for value in means.values())
    assert "rgb_lpips" in (tmp_path / "with" / "report.html").read_text()
    assert verify_run(tmp_path / "with", page=sealed_page).problems == []

    _lpips.cache_clear()
    monkeypatch.setattr(lpips, "WEIGHTS_DIGEST", "0" * 64)
    with pytest.raises(IntegrityError, match="these are not the weights of rgb_lpips"):
        run_sealed(world, tmp_path / "changed")
