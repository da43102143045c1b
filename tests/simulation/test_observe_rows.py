"""How one row of an observation is turned, kept on its level, and written into the caller's memory."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.scenes.archive import load_scene
from skidpad.scenes.case import Case
from skidpad.scenes.index import IndexParams, build_index
from skidpad.scenes.library import library_scenes
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.kernels.observe_send import (
    DIRECT,
    STREAM_BYTES,
    STREAMED,
    sevens_fit,
    stream,
    stream_head,
    stream_road,
)
from skidpad.simulation.kernels.observe_turn import _plain_turn, turn
from skidpad.simulation.simulator import Simulator

F = np.float32


@pytest.mark.parametrize("pair", [2, 3, 36, 4, 5])
@pytest.mark.parametrize("bound", [1.0, np.inf])
def test_vector_rows_are_plain_rows(pair: int, bound: float) -> None:
    """The vector code of a row equals its formulas bit by bit, for each pair of turning columns, clipped or not, and
    with infinities, NaN and signed zeros among the numbers (S16, S85)."""
    draw = np.random.default_rng(pair)
    source = draw.normal(0, 2, (64, 16)).astype(np.float32)
    source[40:, :] = draw.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, 1e-40, 1.5], np.float32), (24, 16))
    numbers = [F(n) for n in draw.normal(0, 1, 7)]
    cosine, sine = F(np.cos(0.7)), F(np.sin(0.7))
    vector, plain = np.zeros(80, np.float32), np.zeros(80, np.float32)
    with np.errstate(all="ignore"):  # where nothing is compiled, NumPy warns
        for s in range(64):
            for writer, out in ((turn, vector), (_plain_turn, plain)):
                writer(pair, source, np.uintp(s), *numbers, cosine, sine, F(-bound), F(bound), out, np.uintp(s % 9))
            # Which NaN comes out of two is the processor's choice.
            assert np.array_equal(np.isnan(vector), np.isnan(plain))
            assert vector[~np.isnan(vector)].tobytes() == plain[~np.isnan(plain)].tobytes()


@pytest.mark.parametrize("size", [0, 1, 7, 15, 16, 17, 63, 284, 1848])
def test_streamed_rows_are_copies(size: int) -> None:
    """Writing past the caches copies exactly the row, wherever it begins and ends (S94)."""
    line = np.arange(size + 8, dtype=np.float32)
    memory = np.empty(size + 64, np.float32)
    for first in range(20):
        memory[:] = -1.0
        stream(line, memory[first : first + size])
        assert np.array_equal(memory[first : first + size], line[:size])
        assert (memory[:first] == -1.0).all()
        assert (memory[first + size :] == -1.0).all()


@pytest.mark.skipif(not DIRECT, reason="rows go through the line where nothing is compiled or indices are checked")
@pytest.mark.parametrize("size", [24 + 40 * 7, 24 + 40 * 7 + 3])
def test_streamed_road_rows_are_plain_rows(size: int) -> None:
    """Road rows that go from registers past the caches are those of the plain formulas, however many there are and
    wherever they begin, and nothing beside them is touched (S94); a vector that took a number of the wrong row would
    show at one alignment only. What stands before them may end anywhere."""
    draw = np.random.default_rng(size)
    row, road_at, slots = draw.normal(0, 9, (64, 8)).astype(np.float32), 24, 40
    x, y, scale, cosine, sine = F(3.0), F(-2.0), F(0.02), F(np.cos(2.0)), F(np.sin(2.0))
    zero, one, most = F(0.0), F(1.0), F(np.inf)
    memory = np.zeros(size + 128, np.float32)
    memory = memory[-memory.ctypes.data % 64 // 4 :][: size + 64]
    for count in (0, 1, 7, 8, 9, 15, 16, 17, 33, 39, 40, 44):
        ids = draw.integers(0, 64, max(count, 1)).astype(np.int32 if count % 2 else np.uint16)
        written = min(count, road_at)
        line = draw.normal(0, 1, size + 8).astype(np.float32)
        wanted = np.zeros(size + 8, np.float32)
        wanted[:written] = line[:written]
        for k in range(min(count, slots)):
            at = np.uintp(road_at + 7 * k)
            _plain_turn(4, row, ids[k], x, y, zero, zero, zero, scale, one, cosine, sine, -most, most, wanted, at)
        wanted[road_at + 7 * min(count, slots) :] = 0.0
        for first in range(20):
            out = memory[first : first + size]
            assert sevens_fit(STREAMED, 7, slots, out.reshape(1, -1), 0, road_at) == (first % 4 == 0)
            if first % 4 == 0:
                memory[:] = -1.0
                stream_head(line.copy(), written, road_at, out)
                stream_road(row, ids, count, x, y, scale, cosine, sine, road_at, slots, out)
                assert out.tobytes() == wanted[:size].tobytes()
                assert (memory[:first] == -1.0).all()
                assert (memory[first + size :] == -1.0).all()


def test_large_batches_write_the_same_rows() -> None:
    """S94, S107: from 8 MiB of rows on they go past the caches; a batch above that shows what its halves, below it,
    show, bit by bit."""
    scene = load_scene(library_scenes("Town01")[0])
    settings = EnvSettings.model_validate(
        {
            "layout": "wide/1",
            "simulation_mode": "gigaflow",
            "min_agents_per_world": 32,
            "max_agents_per_world": 32,
        }
    )
    cases = [Case(scene.digest, "", 0, replicate) for replicate in range(48)]
    rows = []
    for part in (cases, cases[:24], cases[24:]):
        with Simulator(part, settings, scenes={scene.digest: scene}) as simulator:
            simulator.reset()
            simulator.step(np.zeros((len(simulator.row_world), 2), np.float32))
            rows.append(simulator.result.obs.copy())
    whole, *halves = rows
    assert whole.nbytes >= STREAM_BYTES > max(half.nbytes for half in halves)
    assert whole.tobytes() == np.concatenate(halves).tobytes()


@pytest.mark.parametrize("name", ["overpass", "crossing"])
def test_lists_know_their_heights(name: str) -> None:
    """The lowest and highest row of each stored list are those of its rows, and an empty list is on nobody's level
    (S18): a list that is wholly within the gate needs no test row by row."""
    scene = synthetic(name, seed=0)
    rows = build_index(scene, IndexParams(lists="stored")).rows[0]
    height = rows.row[:, 7]
    for b in range(rows.used.shape[0]):
        for sector in range(rows.used.shape[1]):
            of_list = height[rows.ids[b, sector, : rows.used[b, sector]]]
            assert rows.lowest[b, sector] == of_list.min(initial=np.inf)
            assert rows.highest[b, sector] == of_list.max(initial=-np.inf)
    if name == "overpass":
        assert (rows.highest - rows.lowest > 4.0).any(), "no list has two levels: this map tests nothing"
