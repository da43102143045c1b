"""The page of a real run, in a real browser: it opens offline, plays, answers the keyboard, and remembers a moment.

Needs a Chromium that is already installed. Without one the tests are skipped, except where SKIDPAD_REQUIRE_BROWSER is
set, as CI does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skidpad.cli import run
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic

SUITE = """
[eval.traffic]
type = "human_replay"
env.scenes = "*.scene"
env.num_goals = 1
eval.egos = "each"
eval.num_scenarios = 2
eval.worst_n = 3
eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
eval.resamples = 200
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over two generated scenes."""
    folder = tmp_path_factory.mktemp("run")
    for name in ("crossing", "merge"):
        save_scene(synthetic(name, seed=1), folder / f"{name}.scene")
    (folder / "suite.toml").write_text(SUITE)
    assert run(["eval", str(folder / "suite.toml"), "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        if os.environ.get("SKIDPAD_REQUIRE_BROWSER"):
            pytest.fail("SKIDPAD_REQUIRE_BROWSER is set, and no chromium is on the PATH")
        pytest.skip("no chromium on the PATH")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-sync"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=flags)
        yield opened
        opened.close()


class Page:
    """One opened report, with everything the browser complained about."""

    def __init__(self, browser: Any, url: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)
        self.page.wait_for_selector("#player[data-ready]")

    def hash(self) -> str:
        """The deep link of the moment shown."""
        return str(self.page.evaluate("location.hash"))

    def pixels(self) -> str:
        """The drawing as a data URL."""
        return str(self.page.evaluate("document.querySelector('#player canvas').toDataURL()"))

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait up to 10 s; asked from outside, since the page's policy forbids evaluating text inside it."""
        for _ in range(200):
            if holds():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError("did not happen within 10 s")

    def press(self, key: str) -> None:
        """A key while the drawing has the focus."""
        self.page.focus("#player canvas")
        self.page.keyboard.press(key)


@pytest.fixture
def page(browser: Any, finished: Path) -> Iterator[Page]:
    """The report of the run."""
    opened = Page(browser, (finished / "report.html").as_uri())
    yield opened
    opened.page.close()


def test_opens_offline_without_complaint(page: Page) -> None:
    """No request but the file itself, no console message, no error: a page that needs a server is no record (E93)."""
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert page.page.inner_text("#verdict")
    assert page.page.locator("table.drivers tbody tr").count() == 4


def test_steps_and_scrubs(page: Page) -> None:
    """Keys step through the trace and the drawing follows; End and Home are the ends of the case."""
    start, moment = page.pixels(), page.hash()
    for _ in range(10):
        page.press("ArrowRight")
    assert page.hash() != moment
    assert "t=1.0" in page.hash()
    assert page.pixels() != start
    page.press("End")
    end = page.hash()
    page.press("ArrowRight")
    assert page.hash() == end
    page.press("Home")
    assert "t=0.0" in page.hash()
    assert page.pixels() == start


def test_plays_and_pauses(page: Page) -> None:
    """Space plays and pauses; time moves while it plays and stands still afterwards."""
    page.press(" ")
    page.wait_until(lambda: int(page.page.input_value("#player input")) > 2)
    page.press(" ")
    stopped = page.page.input_value("#player input")
    page.page.wait_for_timeout(200)
    assert page.page.input_value("#player input") == stopped


def test_arms_and_cases_change_the_picture(page: Page) -> None:
    """Digits choose the driver, n the next case; both are remembered in the link."""
    page.press("End")
    first = page.pixels()
    page.press("2")
    assert page.pixels() != first
    case = page.hash().split("&")[0]
    page.press("n")
    page.wait_until(lambda: not page.hash().startswith(case))


def test_speed_zoom_follow(page: Page) -> None:
    """Speed, zoom, drag and follow do what their keys say."""
    page.press("]")
    assert page.page.inner_text("#player .rate") == "2x"
    before = page.pixels()
    page.press("+")
    assert page.pixels() != before
    box = page.page.locator("#player canvas").bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 380, box["y"] + 240)
    page.page.mouse.up()
    assert page.page.get_attribute("#player .follow", "aria-pressed") == "false"
    page.press("f")
    assert page.page.get_attribute("#player .follow", "aria-pressed") == "true"


def test_link_opens_the_moment(browser: Any, page: Page, finished: Path) -> None:
    """A link taken at one moment opens the same case, driver and time in a new page."""
    page.press("2")
    for _ in range(15):
        page.press("ArrowRight")
    link, picture = page.hash(), page.pixels()
    again = Page(browser, (finished / "report.html").as_uri() + link)
    assert again.hash() == link
    assert again.pixels() == picture
    again.page.close()


def test_small_window(browser: Any, finished: Path) -> None:
    """On a narrow screen nothing but tables scrolls sideways."""
    opened = Page(browser, (finished / "report.html").as_uri())
    opened.page.set_viewport_size({"width": 480, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    opened.page.close()
