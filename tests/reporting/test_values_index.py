"""What stands beside the tables: values as CSV, failures, cost, links to films, and the page over many runs."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from skidpad.artifacts.digests import canonical_json
from skidpad.cli import run
from skidpad.errors import EXIT_USAGE
from skidpad.reporting import index
from skidpad.reporting.report import report_page
from skidpad.reporting.values import as_link, cost, failures, pictures, values_csv
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import Record

HOSTILE = '<script>alert(1)</script>, "x"'


class Links(HTMLParser):
    """Every link and script of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.scripts = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def test_every_value_is_in_the_csv(report: dict[str, Any]) -> None:
    """Issue 5: a standard reader finds one line per driver and metric, a missing value empty with its reason and never
    0; through the page's link it is the same text."""
    report["evaluators"]["traffic"]["arms"][HOSTILE] = report["evaluators"]["traffic"]["arms"]["idm"]
    text = values_csv(report)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 12
    by_key = {(row["arm"], row["metric"]): row for row in rows}
    assert float(by_key["idm", "score"]["value"]) == 0.4
    assert float(by_key["idm", "score"]["low"]) == pytest.approx(0.3)
    assert (by_key["idm", "red_light_rate"]["value"], by_key["idm", "red_light_rate"]["reason"]) == ("", "no_signal")
    assert by_key["log", "ade_log"]["low"] == ""
    assert (HOSTILE, "score") in by_key
    assert unquote(as_link(text).split(",", 1)[1]) == text


def test_the_page_says_what_failed_and_what_it_cost(report: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Issue 5, E30: failed runs are named with their reason, hostile text stays text; drawing has its own seconds."""
    record = Record(
        evaluator="traffic", epoch=0, step=0, checkpoint="", case="c" * 20, arm="idm", case_index=0, scene_id=HOSTILE,
        scene_digest="", seed=0, benchmark_seed=0, replicate=0, ego=0, ego_rule="", status="error", result=None,
        error={"type": "CaseError", "message": HOSTILE, "traceback": ""},
    )  # fmt: skip
    failed = failures([record] * 60)
    assert (failed["count"], len(failed["rows"])) == (60, 50)
    part = report["evaluators"]["traffic"]
    part["renders"] = [{"step": 3, "epoch": 0, "seconds": 2.5, "files": {}, "error": None}]
    assert cost(report)[0]["render_seconds"] == "2.50 s"
    html = report_page(report, manifest, [], {}, failed=failed)
    assert "CaseError" in html
    assert "The first 50 of 60" in html
    assert Links(html).scripts == 0


def test_links_lead_to_the_films(report: dict[str, Any], tmp_path: Path) -> None:
    """E90: links are relative, from wherever the page lies, to the very files the writer named; a failure is said."""
    file = "renders/traffic/a b_epoch0_step0.mp4"
    drawing = {"step": 0, "epoch": 0, "seconds": 1.0, "files": {"traffic/render/sim_state": [file]}, "error": None}
    broken = {**drawing, "files": {}, "error": {"type": "RuntimeError", "message": "pen", "traceback": ""}}
    report["evaluators"]["traffic"]["renders"] = [drawing, broken]
    inside, failed = pictures(report, tmp_path / "run", tmp_path / "run" / "report.html")
    assert inside["groups"][0]["files"][0]["link"] == "renders/traffic/a%20b_epoch0_step0.mp4"
    assert failed["error"] == "RuntimeError: pen"
    beside = pictures(report, tmp_path / "run", tmp_path / "run-report.html")[0]
    assert beside["groups"][0]["files"][0]["link"] == "run/renders/traffic/a%20b_epoch0_step0.mp4"


def test_a_page_over_many_runs(
    report: dict[str, Any], manifest: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 5: one row per run and evaluator with value, interval and a link to its page; rows that cannot be compared
    say so; names of folders are text; all values are in one CSV."""
    folders = []
    for name, section in (("one", "s" * 64), ("<b>two</b>"[:3] + "two", "s" * 64), ("three", "t" * 64)):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        changed = json.loads(json.dumps(report))
        changed["schema"] = "skidpad.report/3"
        changed["evaluators"]["traffic"]["digests"]["section"] = section
        folder.report.write_bytes(canonical_json(changed).encode())
        folder.page.write_text("page")
        folders.append(folder)
    monkeypatch.setattr(index, "read_manifest", lambda folder: manifest)
    index.write_index(folders[:2], tmp_path / "same.html")
    html = (tmp_path / "same.html").read_text()
    assert "says nothing by itself" not in html
    assert "40.0 %" in html
    found = Links(html)
    assert found.scripts == 0
    assert "one/report.html" in found.links
    assert "%3Cb%3Etwo/report.html" in found.links
    table = next(link for link in found.links if link.startswith("data:"))
    rows = list(csv.DictReader(io.StringIO(unquote(table.split(",", 1)[1]))))
    assert {row["run"] for row in rows} == {"one", "<b>two"}
    index.write_index(folders, tmp_path / "other.html")
    assert "says nothing by itself" in (tmp_path / "other.html").read_text()


def test_report_needs_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """`skidpad report` alone is a mistake, not an empty page."""
    assert run(["report"]) == EXIT_USAGE
    assert "Name at least one run folder" in capsys.readouterr().err
