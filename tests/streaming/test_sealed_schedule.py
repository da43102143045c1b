"""Sealed sections inside training: when they run, what they report, and that their faults stay their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mapper_world import single_thread
from sealed_runs import make_world

from skidpad.errors import SettingsError
from skidpad.evaluation.sealed_schedule import SealedSchedule
from skidpad.evaluation.verify import verify_run
from skidpad.reporting.sealed_page import sealed_page
from skidpad.settings.sealed import SealedSection, sealed_sections
from skidpad.streaming.mapper_file import Carrier, save_mapper
from skidpad.streaming.presets import PRESETS
from skidpad.streaming.write_rule import Gate

SUITE = """\
[eval.mapper]
type = "sealed_stream"
interval = 2
index = "rooms/index.json"
checkpoint = "mapper.safetensors"
policies = ["OFF", "FUSE"]
warmup = 1
stream = 2
queries = 1
render_samples = 16
workers = 0

[eval.broken]
inherits = "mapper"
at_end = false
index = "nowhere/index.json"

[eval.last]
inherits = "broken"
interval = 0
at_end = true

[eval.off]
inherits = "mapper"
enabled = false
"""


def sections_of(folder: Path, text: str = SUITE) -> dict[str, SealedSection]:
    """The sealed sections of a suite."""
    (folder / "suite.toml").write_text(text)
    found = sealed_sections(folder / "suite.toml")
    assert found is not None
    return found


def test_passes_of_training(tmp_path: Path) -> None:
    """E22 to E24, E29: sections run at their epochs; equal weights are not evaluated twice, others are; a section that
    fails is a result, and a training that starts again takes up the pass that is there."""
    make_world(tmp_path, 1)
    schedule = SealedSchedule(sections_of(tmp_path), tmp_path / "evals", page=sealed_page)
    with single_thread():
        assert schedule.maybe_run(0, 0) == {}
        assert schedule.maybe_run(3, 30) == {}
        first = schedule.maybe_run(2, 20)
        assert set(first) == {"mapper", "broken"}
        found = first["mapper"]
        assert (found.ok, found.status, found.cached) == (True, "ok", False)
        assert found.values["mapper/ok"] == 1.0
        assert found.values["mapper/rooms/FUSE/depth_absrel_delta"] < 0
        assert found.values["mapper/rooms/OFF/depth_absrel_delta"] == 0.0
        assert "mapper/rooms/OFF/depth_absrel.moving" not in found.values  # no value is no number
        assert found.coverage == {"expected": 2, "attempted": 2, "scored": 2}
        broken = first["broken"]
        assert (broken.ok, broken.status) == (False, "error")
        assert broken.error is not None
        assert "nowhere" in broken.error["message"]
        assert schedule.maybe_run(4, 40)["mapper"].cached
        assert not (tmp_path / "evals" / "mapper" / "00000040").exists()
        assert set(schedule.maybe_run(5, 50, force=True)) == {"mapper", "last"}
        assert verify_run(tmp_path / "evals" / "mapper" / "00000020", page=sealed_page).exit_code == 0

        again = SealedSchedule(sections_of(tmp_path), tmp_path / "evals").maybe_run(2, 20)["mapper"]
        assert again.values == found.values
        gate = Gate()
        with torch.no_grad():
            last = gate.layers[-1]
            last.bias.copy_(torch.tensor([-3.0, 8.0, -8.0]))  # type: ignore[union-attr, operator]
        (tmp_path / "mapper.safetensors").unlink()
        save_mapper(tmp_path / "mapper.safetensors", Carrier(PRESETS["embedded"], "harmonic"), gate)
        other = schedule.maybe_run(6, 60)["mapper"]
        assert not other.cached
        assert other.values != found.values


def test_schedule_keys(tmp_path: Path) -> None:
    """E22, F2: the keys of every section; a wrong value is a sentence with file and line."""
    found = sections_of(tmp_path)
    assert {name: (one.enabled, one.interval, one.at_start, one.at_end) for name, one in found.items()} == {
        "mapper": (True, 2, False, True),
        "broken": (True, 2, False, False),
        "last": (True, 0, False, True),
        "off": (False, 2, False, True),
    }
    for line, match in (
        ("interval = -1", r"suite.toml:3: interval = -1 in \[eval.mapper\]: must be a whole number"),
        ("interval = true", "interval = True"),
        ('at_start = "yes"', "at_start = 'yes' .*: must be true or false"),
    ):
        with pytest.raises(SettingsError, match=match):
            sections_of(tmp_path, SUITE.replace("interval = 2", line, 1))
