"""`skidpad bench render`: frames per second drawn, and drawn and encoded, with 64 agents on a bundled town; bytes of a
page that plays 5,000 steps of it, and how long a browser takes to open that."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.bench.calibration import DRIFT_LIMIT, calibrate, drift, machine
from skidpad.rendering.clips import STATE_VIEWS
from skidpad.rendering.video import encode_film
from skidpad.rendering.views import Film
from skidpad.runs.trace import TRACE_ARRAYS, Trace, TraceMeta
from skidpad.scenes.archive import load_scene
from skidpad.scenes.events import Controller, Status
from skidpad.scenes.library import library_scenes
from skidpad.scenes.scene import TYPE_VEHICLE, Scene

SCHEMA = "skidpad.bench.render/1"
TOWN, AGENTS, SPEED, DT = "Town03", 64, 8.0, 0.1
BROWSERS, OPENED = ("chromium", "chromium-browser", "google-chrome"), 5
# Runs before the page's own script; the clock starts with the navigation.
WHEN_DRAWN = """
new MutationObserver((_, watcher) => {
  if (!document.querySelector("#player[data-ready]")) return;
  watcher.disconnect();
  requestAnimationFrame(() => { window.drawn = performance.now(); });
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-ready"] });
"""
SIZES = {"1080p": (1920, 1080), "512": (512, 512)}


def bench_render(*, quick: bool = False) -> dict[str, Any]:
    """Measure drawing and encoding; returns what `--json` prints. Frames per second are wall time with the two
    threads a film uses; the slower of the two views stands at the top level. `page_open_s` is absent where no browser
    is, and `page_not_opened` says why."""
    before = calibrate()
    scene = load_scene(next(path for path in library_scenes() if path.stem == TOWN))
    frames = 60 if quick else 300
    trace = convoy(scene, AGENTS, frames)
    rates: dict[str, dict[str, dict[str, float]]] = {}
    for size, (width, height) in SIZES.items():
        for view in STATE_VIEWS:
            film = Film(trace, scene, view, width=width, height=height)
            for k in range(0, frames, 10):
                film.frame(k)  # the map is drawn once per case, before the clock starts
            start = time.perf_counter()
            for k in range(frames):
                film.frame(k)
            drawn = frames / (time.perf_counter() - start)
            start = time.perf_counter()
            data = encode_film((film.planes(k) for k in range(frames)), width, height, Fraction(10))
            encoded = frames / (time.perf_counter() - start)
            rates.setdefault(size, {})[view] = {
                "drawn": drawn,
                "encoded": encoded,
                "bytes_per_frame": len(data) / frames,
            }
    page = town_page(scene)
    after = calibrate()
    return {
        "schema": SCHEMA,
        "machine": machine(),
        "calibration": {"before": before, "after": after, "reliable": drift(before, after) <= DRIFT_LIMIT},
        "scene": TOWN,
        "agents": AGENTS,
        "frames": frames,
        "fps_drawn_1080p": min(view["drawn"] for view in rates["1080p"].values()),
        "fps_encoded_1080p": min(view["encoded"] for view in rates["1080p"].values()),
        "fps_encoded_512": min(view["encoded"] for view in rates["512"].values()),
        "page_bytes_64x5000": len(page.encode()),
        **page_opens(page),
        "views": rates,
    }


def town_page(scene: Scene) -> str:
    """The page that plays one case of 64 agents over 5,000 steps."""
    from skidpad.reporting.films import replay_page
    from skidpad.reporting.report import Replay

    trace = convoy(scene, AGENTS, 5000)
    return replay_page(TOWN, [Replay("bench", TOWN, "64 agents, 5,000 steps", "policy", {"policy": trace}, scene)])


def page_opens(page: str) -> dict[str, float | str]:
    """Seconds in which an installed Chromium opens a page from a file, or why that was not measured.

    From the start of the navigation to the first frame after the player has drawn its first case; the median of OPENED
    loads in a browser that has started.
    """
    import shutil
    import tempfile
    from pathlib import Path

    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {"page_not_opened": "Playwright is not installed; it comes with the development tools"}
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        return {"page_not_opened": f"none of {', '.join(BROWSERS)} is on the PATH"}
    with tempfile.TemporaryDirectory(prefix="skidpad-page-") as folder, sync_playwright() as playwright:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        seconds = []
        for _ in range(OPENED):
            tab = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
            tab.add_init_script(WHEN_DRAWN)
            tab.goto(file.as_uri())
            while (drawn := tab.evaluate("window.drawn")) is None:  # asked from outside: the page runs no text as code
                tab.wait_for_timeout(5)
            seconds.append(float(drawn) / 1000)
            tab.close()
        browser.close()
    return {"page_open_s": float(np.median(seconds))}


def convoy(scene: Scene, agents: int, steps: int) -> Trace:
    """Cars that follow lanes of a town at a constant speed, the first of them under test: something to draw.

    Where the lanes end a car stands still.
    """
    lanes = np.flatnonzero(scene.road.drivable)
    starts = lanes[np.linspace(0, len(lanes) - 1, agents).astype(int)]
    distance = np.arange(steps + 1) * (SPEED * DT)
    x, y, heading = (np.zeros((steps + 1, agents), np.float32) for _ in range(3))
    for agent, lane in enumerate(starts.tolist()):
        path = follow_exits(scene, lane, float(distance[-1]) + 1.0)
        arc = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
        x[:, agent], y[:, agent] = (np.interp(distance, arc, path[:, axis]) for axis in range(2))
        segment = np.clip(np.searchsorted(arc, distance, side="right") - 1, 0, len(path) - 2)
        step = path[segment + 1] - path[segment]
        heading[:, agent] = np.arctan2(step[:, 1], step[:, 0])
    sizes = {"R": 1, "T": steps + 1, "U": steps, "N": agents, "M": 1, "G": 1, "Q": 1, "A": 2}
    sizes["S"] = scene.signals.count
    arrays: dict[str, NDArray[Any]] = {
        spec.name: np.zeros(
            [sizes.get(axis, 0) if axis.isalpha() else int(axis) for axis in spec.shape.split(",")], spec.dtype
        )
        for spec in TRACE_ARRAYS
    }
    arrays["x"], arrays["y"], arrays["heading"] = x[None], y[None], heading[None]
    arrays["speed"][:], arrays["length"][:], arrays["width"][:], arrays["height"][:] = SPEED, 4.5, 1.9, 1.5
    arrays["status"][:], arrays["controller"][:], arrays["goal_count"][:] = Status.ACTIVE, Controller.POLICY, 1
    arrays["type"][:], arrays["source_id"][:] = TYPE_VEHICLE, np.arange(agents)
    arrays["goals"][0, 0, 0, :2] = x[-1, 0], y[-1, 0]
    meta = TraceMeta(
        case="convoy",
        arm="policy",
        evaluator="bench",
        scene_id=scene.meta.scene_id,
        scene_digest=scene.digest,
        dt_us=round(DT * 1e6),
        start_row=0,
        action_selection="deterministic",
        profile="clean",
        ego=0,
        ego_rule="each",
        end_reason="length",
        settings={},
        observed={},
        state_hash=(),
    )
    return Trace(meta, arrays)


def follow_exits(scene: Scene, lane: int, length: float) -> NDArray[np.float64]:
    """Centre line from the start of a lane along its exits for at least `length` m, or until they end: (n, 2) f64."""
    road, reached, turn = scene.road, 0.0, 0
    found: list[NDArray[np.float64]] = []
    while reached < length:
        points = road.xyz[road.points(int(road.lane_element[lane])), :2].astype(np.float64)
        found.append(points if not found else points[1:])
        reached += float(np.hypot(*np.diff(points, axis=0).T).sum())
        exits = road.exit_lane[road.exit_offset[lane] : road.exit_offset[lane + 1]]
        if len(exits) == 0:
            break
        lane = int(exits[turn % len(exits)])
        turn += 1
    return np.concatenate(found)
