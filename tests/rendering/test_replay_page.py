"""What a page stores of a trace is the trace, to a centimetre, and no text of a file can leave its element."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidpad.rendering.replay import (
    CHANNELS,
    METRES_PER_UNIT,
    _differences,
    case_payload,
    map_payload,
    region,
    script_hash,
    script_json,
    viewer_parts,
)
from skidpad.runs.trace import Trace
from skidpad.scenes.scene import Scene


def unpack(text: str) -> np.ndarray:
    """What the script in the page does to a block."""
    return np.frombuffer(gzip.decompress(base64.b64decode(text)), "<i4")


def played(payload: dict[str, Any], arm: str) -> dict[int, np.ndarray]:
    """Agent to (channels, T) whole numbers, decoded as the page decodes them."""
    block, at, first = unpack(payload["block"]), 0, {}
    for name, described in payload["arms"].items():
        agents = dict(first) if described["shares"] else {}
        for agent in described["agents"]:
            rows = []
            for _ in CHANNELS:
                rows.append(np.cumsum(block[at : at + described["states"]], dtype=np.int32))
                at += described["states"]
            agents[agent] = np.stack(rows)
        first = first or agents
        if name == arm:
            return agents
    raise KeyError(arm)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=30))
def test_differences_are_exact_for_any_int32(values: list[int]) -> None:
    """Sums of the stored steps give back every int32, also where a step overflows: event masks use all bits."""
    stored = _differences(np.array(values, np.int64))
    with np.errstate(over="ignore"):
        assert np.cumsum(stored, dtype=np.int32).tolist() == values


def test_played_is_recorded(crossing: Scene, arms: dict[str, Trace]) -> None:
    """Each arm plays back its own trace to half a unit; sharing agents between arms must not mix them up (E83)."""
    payload = case_payload(arms, crossing, map_key="m")
    for name, trace in arms.items():
        agents = played(payload, name)
        assert len(agents) == crossing.tracks.count
        for agent, channels in agents.items():
            for row, channel in enumerate(CHANNELS[:2]):
                error = np.abs(channels[row] * METRES_PER_UNIT - trace[channel][0, :, agent])
                assert error.max() <= METRES_PER_UNIT / 2 + 1e-4, (name, agent, channel)
            assert (channels[CHANNELS.index("events")].astype(np.uint32) == trace["events"][0, :, agent]).all()


def test_agents_that_move_alike_are_stored_once(crossing: Scene, arms: dict[str, Trace]) -> None:
    """Only the car under test differs between the arms, so the second arm stores one agent: pages stay small."""
    payload = case_payload(arms, crossing, map_key="m")
    assert payload["arms"]["log"]["agents"] == list(range(crossing.tracks.count))
    assert payload["arms"]["idm"]["agents"] == [0]


def test_arms_of_two_cases_are_refused(crossing: Scene, arms: dict[str, Trace], make_trace: Any) -> None:
    """A payload of two different cases would show one car on another's road."""
    with pytest.raises(ValueError, match="one case"):
        case_payload({"log": arms["log"], "idm": make_trace(crossing, "idm", ego=1)}, crossing, map_key="m")


def test_map_keeps_what_reaches_into_the_region(crossing: Scene) -> None:
    """Elements outside the region are left out, those inside are exact to half a centimetre."""
    everything = map_payload(crossing, (-1e6, -1e6, 1e6, 1e6))
    assert len(everything["elements"]) == crossing.road.element_count
    block, at = unpack(everything["points"]), 0
    for element, (_, count, _, _) in enumerate(everything["elements"]):
        x = np.cumsum(block[at : at + count], dtype=np.int32) * METRES_PER_UNIT
        at += 2 * count
        assert np.abs(x - crossing.road.xyz[crossing.road.points(element), 0]).max() <= METRES_PER_UNIT / 2 + 1e-4
    assert map_payload(crossing, (1e5, 1e5, 2e5, 2e5))["elements"] == []


def test_region_surrounds_the_cars_under_test(crossing: Scene, arms: dict[str, Trace]) -> None:
    """The map is cut around who is under test; an agent without a body does not drag it to the origin."""
    x_low, y_low, x_high, y_high = region(list(arms.values()))
    present = arms["log"]["length"][0, :, 0] > 0
    x, y = arms["log"]["x"][0, present, 0], arms["log"]["y"][0, present, 0]
    assert x_low < x.min() - 50
    assert x_high > x.max() + 50
    assert y_low < y.min() - 50
    assert y_high > y.max() + 50


@given(st.text())
def test_text_cannot_leave_its_script_element(text: str) -> None:
    """A scene id of `</script><script>` stays data: no `<` reaches the page, and the value survives (EF36)."""
    stored = script_json({"scene": text, "more": "</script><!--"})
    assert "<" not in stored
    assert json.loads(stored)["scene"] == text


def test_viewer_names_no_address() -> None:
    """The player needs no network: no scheme, no import, no evaluation of text (E93)."""
    parts = viewer_parts()
    for text in parts.values():
        assert "http" not in text
        assert "import(" not in text
        assert "eval(" not in text
        assert "innerHTML" not in text
    assert script_hash(parts["script"]).startswith("'sha256-")


def test_same_trace_same_payload(crossing: Scene, arms: dict[str, Trace]) -> None:
    """Equal traces give equal bytes: a time stamp in the compression would make every page differ."""
    assert case_payload(arms, crossing, map_key="m") == case_payload(arms, crossing, map_key="m")
