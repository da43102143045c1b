"""A frontier over real runs: one section per limit, one page and one file over all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sealed_runs import make_world, run_sealed

from skidpad.cli import run
from skidpad.reporting.sealed_page import sealed_page

LIMITS = (3e6, 6e6, 4e7, 1e8)


@pytest.mark.slow
def test_a_frontier_over_four_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M65, M88: runs of other limits have the same OFF; more budget never means less work; `skidpad report` over them
    writes page and document, of one run its page again, and refuses what is there already."""
    world = make_world(tmp_path)
    folders = [tmp_path / "whole"]
    run_sealed(world, folders[0], policies=["OFF", "FUSE", "ALL"], page=sealed_page)
    for limit in LIMITS:
        folders.append(tmp_path / f"at-{limit:g}")
        run_sealed(world, folders[-1], policies=["OFF", "RESIDUAL_THRESHOLD", "RANDOM", "EVEN"], max_units=limit)
    words = [str(folder) for folder in folders]
    assert run(["report", *words]) == 0
    found = json.loads((tmp_path / "frontier.json").read_text())
    (track,) = found["tracks"]
    assert [curve["name"] for curve in track["curves"]] == ["RESIDUAL_THRESHOLD 0.03", "EVEN", "RANDOM"]
    points = {row["name"]: row for row in track["points"]}
    for curve in track["curves"]:
        shares = [points[name]["work_share"] for name in curve["points"]]
        assert shares == sorted(shares)
        assert shares[0] < shares[-1]
        assert curve["area"]["value"] is not None
    assert (tmp_path / "frontier.html").read_text().count("<polyline") == 3
    assert run(["report", *words]) == 2
    assert run(["report", words[0]]) == 0
    assert (tmp_path / "whole-report.html").read_bytes() == (tmp_path / "whole" / "report.html").read_bytes()
    assert "already" in capsys.readouterr().err
