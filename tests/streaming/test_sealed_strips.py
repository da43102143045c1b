"""Small pictures of what each policy shows at hidden views: drawn from what is scored, kept only when asked for."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sealed_runs import make_world, run_sealed

from skidpad.evaluation.metrics.scene_metrics import Predicted
from skidpad.evaluation.sealed_strips import NOTHING, arm_strip, read_strips, truth_strip
from skidpad.evaluation.verify import verify_run
from skidpad.reporting.sealed_page import sealed_page
from skidpad.runs.folder import RunFolder


@dataclass
class View:
    """What a strip needs of a query."""

    rgb: Any
    depth: Any


def pixels(text: str) -> np.ndarray:
    """(H, W, 3) u8 of base64 of a PNG."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def test_tiles() -> None:
    """M97: colour, depth and error by hand: nothing covered is violet, and its error that of the fallback."""
    rgb = np.zeros((3, 1, 3), np.float32)
    rgb[0] = 1.0
    view: Any = View(rgb, np.array([[4.0, 2.0, 0.0]], np.float32))
    truth = pixels(truth_strip(view))
    assert truth.shape == (1, 6, 3)
    assert truth[0].tolist() == [[255, 0, 0]] * 3 + [[0, 0, 0], [128, 128, 128], list(NOTHING)]
    drawn = Predicted(np.array([[4.0, 0.0, 1.0]], np.float32), 1 - rgb, np.array([[1.0, 0.2, 1.0]], np.float32))
    found = pixels(arm_strip(drawn, view, 2.25))
    assert found.shape == (1, 9, 3)
    assert found[0, :3].tolist() == [[0, 255, 255], list(NOTHING), [0, 255, 255]]
    assert found[0, 3:6].tolist() == [[0, 0, 0], list(NOTHING), [191, 191, 191]]
    # Exact depth; a fallback off by an eighth, half of what is fully red; no label.
    assert found[0, 6:].tolist() == [[255, 255, 255], [255, 128, 128], list(NOTHING)]


def test_a_run_with_strips(tmp_path: Path) -> None:
    """M97, M98: every policy and the truth of every hidden view, on the page beside what it wrote and cost; the result
    is that of a run without; a changed picture is found."""
    world = make_world(tmp_path)
    plain = run_sealed(world, tmp_path / "plain", controls=["CONSTANT_DEPTH"])
    report = run_sealed(world, tmp_path / "run", controls=["CONSTANT_DEPTH"], strips=True, page=sealed_page)
    assert report["result_digest"] == plain["result_digest"]
    folder = RunFolder(tmp_path / "run")
    names = {name for name, _ in read_strips(folder)}
    episodes = report["subset"]["episode_ids"]
    assert names == {*episodes, *(f"{episode}@{arm}" for episode in episodes for arm in ("OFF", "FUSE"))}
    assert not read_strips(RunFolder(tmp_path / "plain"))
    page = folder.page.read_text()
    for text in read_strips(folder).values():
        assert text in page
    assert page.count("<figcaption><b>FUSE</b> FF, work ") == len(episodes)
    assert verify_run(folder.path, page=sealed_page).exit_code == 0
    file = folder.path / "sealed" / "strips.jsonl"
    file.write_bytes(file.read_bytes()[:-200])
    found = verify_run(folder.path, page=sealed_page)
    assert found.exit_code == 3
    assert any("strips.jsonl" in problem for problem in found.problems)


def test_setting(tmp_path: Path) -> None:
    """M97: a section asks for them by name."""
    from skidpad.settings.sealed import sealed_sections

    path = tmp_path / "suite.toml"
    path.write_text('[eval.a]\ntype = "sealed_stream"\nindex = "i"\ncheckpoint = "c"\nstrips = true\n')
    found = sealed_sections(path)
    assert found is not None
    assert found["a"].values["strips"] is True
