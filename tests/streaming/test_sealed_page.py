"""The page of a sealed run: what it says is what the report says, whatever the names in it, in a real browser too."""

from __future__ import annotations

import html
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from sealed_example import example_record, example_registration, example_report

from skidpad.evaluation.scene_statistics import conclude
from skidpad.reporting.sealed_page import figure, sealed_page
from skidpad.runs.folder import RunFolder
from skidpad.streaming.report_format import document

HOSTILE = "<script>alert('x')</script>&\"'"
VALUES = {"OFF": 0.5, "FUSE": 0.2, "ALL": 0.1, "CACHE": 0.25, "FUSE+HARMONIC_FILL": 0.15}


def written(
    folder: Path, *, episodes: int = 7, hostile: bool = False, **registered: Any
) -> tuple[RunFolder, dict[str, Any]]:
    """A run folder with the full records of `episodes` rooms, and its report."""
    records = []
    for number in range(episodes):
        for arm, value in VALUES.items():
            shift = 0.001 * number * (1 + value)
            rows = {
                "depth_absrel": (value + shift, value + 2 * shift),
                "depth_absrel.seen": (value / 2, None),
                "depth_absrel.unseen": (value * 2, value),
                "coverage": (0.5 + value / 3, 0.6),
                "rgb_psnr": (15.0 - value, 17.0 - shift),
            }
            records.append(example_record(f"ep-{number}", arm, rows))
    if hostile:
        records[1] |= {"scene_id": HOSTILE}
        records[0] |= {"scene_id": HOSTILE}
        refused = example_record("ep-0", "FUSE", status="refused")
        refused["error"] = {"type": "RefusedError", "message": HOSTILE, "traceback": ""}
        records[1] = refused | {"scene_id": HOSTILE}
    registration = example_registration(bootstrap={"resamples": 300, "seed": 0, "level": 0.95}, **registered)
    (folder / "sealed" / "pairs").mkdir(parents=True)
    for record in records:
        (folder / "sealed" / "pairs" / f"{record['pair_id']}.json").write_bytes(document(record))
    report = example_report(records, registration=registration, **conclude(registration, records))
    return RunFolder(folder), report


def test_numbers_are_the_reports(tmp_path: Path) -> None:
    """Means, differences, intervals, counts, work and the verdict sentence of every arm stand on the page (M97)."""
    folder, report = written(tmp_path)
    page = html.unescape(sealed_page(folder, report))
    for row in report["summaries"]:
        entry = row["metrics"]["depth_absrel"]
        wanted = [figure(entry["mean"]), figure(entry["delta"], signed=True), figure(row["seconds"], 2)]
        if entry["low"] is not None:
            wanted.append(f"{figure(entry['low'], signed=True)} to {figure(entry['high'], signed=True)}")
            wanted.append(f"{entry['wins']} / {entry['ties']} / {entry['losses']}")
        line = re.search(rf"<tr class=\"{row['kind']}\"><td>{re.escape(row['arm'])}<small>.*?</tr>", page)
        assert line is not None, row["arm"]
        for text in wanted:
            assert f"<td>{text}</td>" in line[0], (row["arm"], text)
        for placement in row["placements"].values():
            assert f"<td>{figure(placement['mean'])}</td>" in page
    for row in report["controls"]["comparisons"]:
        assert figure(row["delta"], 4, signed=True) in page
    for sentence in [*report["caveats"], report["controls"]["claims"][0]["sentence"]]:
        assert sentence in page
    assert "rooms: ALL changed depth_absrel by -0.4" in page
    assert f"area {figure(report['frontier']['tracks'][0]['area']['value'], 2)}" in page
    for name in ("run_id", "chain_head", "result_digest"):
        assert report[name] in page


def test_it_is_a_pure_function(tmp_path: Path) -> None:
    """The same folder gives the same bytes, so that verification can compare them (M98)."""
    folder, report = written(tmp_path)
    assert sealed_page(folder, report) == sealed_page(folder, report)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    """Names and messages from files are escaped, refused pairs shown, and no address named (M97, F16, F57)."""
    folder, report = written(tmp_path, hostile=True)
    page = sealed_page(folder, report)
    assert HOSTILE in html.unescape(page)
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "This run is incomplete" in page


def test_few_scenes_subset_and_dirty_tree_are_said(tmp_path: Path) -> None:
    """Under ten scenes the table head warns, a subset stands in the title, a dirty tree is red (M32, M80, M97, F43)."""
    code = {"commit": "abc", "dirty": True, "source_digest": "0" * 64}
    folder, report = written(tmp_path, code=code)
    report["subset"] = {"requested": 2, "selected": 2, "available": 24, "episode_ids": ["ep-1", "ep-2"]}
    page = sealed_page(folder, report)
    assert "Fewer than ten scenes" in page
    assert "2 of 24 episodes" in page
    assert '<dd class="worse">abc, with uncommitted changes</dd>' in page


def test_a_run_without_any_score_has_a_page(tmp_path: Path) -> None:
    """All pairs refused is a page that says so, not a traceback (F57)."""
    records = [example_record(f"ep-{n}", arm, status="refused") for n in (1, 2) for arm in ("OFF", "FUSE")]
    registration = example_registration()
    report = example_report(records, **conclude(registration, records))
    page = sealed_page(RunFolder(tmp_path), report)
    assert "Nothing could be compared" in page


def test_in_a_browser(tmp_path: Path) -> None:
    """A real browser opens the file offline without a console message or a request (M97)."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        if os.environ.get("SKIDPAD_REQUIRE_BROWSER"):
            pytest.fail("SKIDPAD_REQUIRE_BROWSER is set, and no chromium is on the PATH")
        pytest.skip("no chromium on the PATH")
    from playwright.sync_api import sync_playwright

    folder, report = written(tmp_path, hostile=True)
    target = tmp_path / "page.html"
    target.write_text(sealed_page(folder, report), encoding="utf-8")
    complaints: list[str] = []
    requests: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(target.as_uri())
        arms = page.locator("table.arms tbody tr").count()
        browser.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith("file:")] == []
    assert arms == len(VALUES)
