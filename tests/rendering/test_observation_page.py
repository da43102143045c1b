"""The observation page, in a real browser: what it shows is what the trace holds (E93, E94)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from observed_traces import with_observations

from skidpad.rendering.observed import Observed
from skidpad.reporting.films import Chosen, gallery_page
from skidpad.runs.records import Record
from skidpad.runs.trace import Trace
from skidpad.scenes.scene import Scene

HOSTILE = "</script><script>document.title='broken'</script>" + "x" * 300


def record(trace: Trace) -> Record:
    """A finished record of a trace with one metric."""
    score = {"value": 0.25, "valid": True, "numerator": 0.25, "denominator": 1.0, "reason": None}
    return Record(
        evaluator="<b>e</b>", epoch=0, step=0, checkpoint="", case=trace.meta.case, arm=trace.meta.arm, case_index=0,
        scene_id=HOSTILE, scene_digest=trace.meta.scene_digest, seed=0, benchmark_seed=0, replicate=0, ego=0,
        ego_rule="each", status="ok", error=None,
        result={"n_agents": 1, "steps": trace.steps, "metrics": {"score": score}, "trace_digest": "", "state_hash": ""},
    )  # fmt: skip


@pytest.fixture
def traces(crossing: Scene, make_trace: Callable[..., Trace]) -> dict[str, Trace]:
    """The driver under test with observations, and the log without."""
    return {
        "policy": with_observations(make_trace(crossing, "policy", shift=0.5)),
        "log": make_trace(crossing, "log"),
    }


@pytest.fixture
def page(crossing: Scene, traces: dict[str, Trace], tmp_path: Path) -> Iterator[Any]:
    """The page, opened offline in Chromium, and failing on anything the browser complains about."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        if os.environ.get("SKIDPAD_REQUIRE_BROWSER"):
            pytest.fail("SKIDPAD_REQUIRE_BROWSER is set, and no chromium is on the PATH")
        pytest.skip("no chromium on the PATH")
    from playwright.sync_api import sync_playwright

    records = {arm: record(trace) for arm, trace in traces.items()}
    html = gallery_page([Chosen("e", records["policy"], traces, crossing, records)], HOSTILE, observations=True)
    assert "://" not in html
    (tmp_path / "page.html").write_text(html)
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.goto((tmp_path / "page.html").as_uri())
        opened.wait_for_selector("#player[data-ready]")
        opened.wait_for_selector("#observer[data-step='0']")
        yield opened
        browser.close()
    assert complaints == []


def at_step(page: Any, step: int) -> None:
    """Scrub to a step, and wait until the observation follows."""
    page.locator("#player input").fill(str(step))
    page.wait_for_selector(f"#observer[data-step='{step}']")


def test_what_is_shown_is_what_the_trace_holds(page: Any, traces: dict[str, Trace]) -> None:
    """E94: value, probability, action and filled slots of several steps equal the trace's numbers; recomputed ones
    would differ from those acted on."""
    trace = traces["policy"]
    observed = Observed(trace)
    for step in (0, 3, 11):
        at_step(page, step)
        shown = float(page.inner_text("#observer .value").split()[1].rstrip(";"))
        assert shown == pytest.approx(float(trace["value"][0, step, 0, 0]), rel=1e-5)
        taken = int(trace["action"][0, step, 0, 0])
        odds = page.inner_text("#observer .odds")
        assert f"probability {float(trace['distribution'][0, step, 0, taken]):.4g}"[:18] in odds
        action = page.inner_text("#observer .action")
        assert action.startswith(f"action {taken};")
        assert ("clipped" in action) is bool(trace["action_clipped"][0, step, 0])
        read = observed.read(step, 0)
        missed = observed.missed(step, 0, read["partners"])
        words = page.inner_text("#observer td[data-block=partners]")
        assert words.startswith(f"{len(read['partners'].slot)} of {read['partners'].slots}")
        assert (f"{len(missed.cut)} cut" in words) is bool(len(missed.cut))


def test_every_number_is_the_trace_s(page: Any, traces: dict[str, Trace]) -> None:
    """E94: the table of numbers holds the slots' values in their units, to five digits."""
    page.evaluate("document.querySelector('#observer details').open = true")
    at_step(page, 5)
    page.wait_for_selector("#observer .numbers table")
    tables = page.locator("#observer .numbers table")
    by_name = {tables.nth(n).locator("caption").inner_text(): tables.nth(n) for n in range(tables.count())}
    rows = Observed(traces["policy"]).read(5, 0)["partners"]
    found = by_name["partners"].locator("tbody tr")
    assert found.count() == len(rows.slot)
    for n in range(found.count()):
        texts = found.nth(n).locator("td").all_inner_texts()
        assert int(texts[0]) == rows.slot[n]
        np.testing.assert_allclose([float(text) for text in texts[1:]], rows.values[n], rtol=2e-4, atol=1e-5)


def test_agents_events_and_metrics(page: Any, traces: dict[str, Trace]) -> None:
    """Issue 5: the table's speeds are the trace's, an event jumps to its moment, the metrics of the case stand there;
    names that look like markup stay text."""
    page.evaluate("document.querySelectorAll('#facts details').forEach(one => { one.open = true; })")
    trace = traces["policy"]
    at_step(page, 4)
    page.wait_for_selector("#facts .agents tbody tr")
    for row in page.locator("#facts .agents tbody tr").all():
        agent = int(row.get_attribute("data-agent"))
        cells = row.locator("td").all_inner_texts()
        assert float(cells[2]) == pytest.approx(float(trace["speed"][0, 4, agent]), abs=0.006)
        assert float(cells[3].split(",")[0]) == pytest.approx(float(trace["x"][0, 4, agent]), abs=0.006)
    page.locator("#facts .events button").first.click()
    moment = int(np.flatnonzero(trace["events"][0, :, 0])[0])
    assert page.input_value("#player input") == str(moment)
    assert "0.2500" in page.inner_text("#facts .metrics")
    assert page.title().startswith("Cases of </script>")
    assert page.locator("#player .cases b").count() == 0


def test_a_driver_without_observations_says_so(page: Any) -> None:
    """E94: the log was given nothing; an empty picture would look like a blind driver."""
    page.focus("#player canvas")
    page.keyboard.press("2")
    page.wait_for_selector("#observer[data-step='']")
    assert "log is given no observation" in page.inner_text("#observer .who")


def test_a_link_opens_agent_and_moment(page: Any) -> None:
    """E93: a link taken while another agent is followed opens the same case, driver, moment and agent."""
    page.evaluate("document.querySelector('#facts .agents').open = true")
    at_step(page, 7)
    page.wait_for_selector("#facts .agents tbody tr")
    page.locator("#facts .agents tbody tr:not(.focus)").first.click()
    link = page.evaluate("location.href")
    assert "agent=" in link
    other = page.context.browser.new_page(offline=True)
    other.goto(link)
    other.wait_for_selector("#player[data-ready]")
    assert other.evaluate("location.hash") == link[link.index("#") :]
    assert other.input_value("#player input") == "7"
