"""Arrays found by address are the arrays that were put there, whatever came and went before (S29)."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from worlds import car, case_of, coast, simulator, straight_road

from skidpad.settings.schema import EnvSettings
from skidpad.simulation import slots as tables
from skidpad.simulation import state as at
from skidpad.simulation.kernels import slots as readers
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.slots import bool_2, f32_2, i32_1
from skidpad.simulation.slots import B_F4, B_FLAGS, B_ORDER

KERNELS = Path(readers.__file__).parent
TABLES = {"B": tables.BATCH, "S": tables.SLOT, "T": tables.SCRATCH}


@kernel
def read_back(entries, i32, f32, u8):
    """Copy three entries out through the readers."""
    order, f4, flags = i32_1(entries, B_ORDER), f32_2(entries, B_F4), bool_2(entries, B_FLAGS)
    for k in range(order.shape[0]):
        i32[k] = order[k]
    for j in range(f4.shape[0]):
        for k in range(f4.shape[1]):
            f32[j, k] = f4[j, k]
    for j in range(flags.shape[0]):
        for k in range(flags.shape[1]):
            u8[j, k] = flags[j, k]


def test_readers_show_what_was_put():
    """S29: address, shape and strides of 1, 2 and 3 axes, an empty array among them."""
    table = tables.ArrayTable(tables.BATCH, 2)
    order, flags = np.arange(5, dtype=np.int32), np.arange(6).reshape(2, 3) % 2 == 1
    f4 = np.arange(12, dtype=np.float32).reshape(3, 4)
    table.put(1, {"order": order, "f4": f4, "flags": flags})
    found = np.zeros(5, np.int32), np.zeros((3, 4), np.float32), np.zeros((2, 3), np.uint8)
    read_back(table.entries[1], *found)
    for one, other in zip(found, (order, f4, flags), strict=True):
        assert (one == other).all()
    table.put(1, {"order": order[:0]})
    read_back(table.entries[1], found[0][:0], *found[1:])


@pytest.mark.parametrize(
    "array",
    [np.zeros(3, np.int64), np.zeros((3, 1), np.int32), np.zeros(6, np.int32)[::2]],
    ids=["dtype", "axes", "strided"],
)
def test_a_wrong_array_is_refused(array):
    """S29: the reader checks nothing, so nothing wrong may get into a table."""
    table = tables.ArrayTable(tables.BATCH, 1)
    with pytest.raises(TypeError, match="order is"):
        table.put(0, {"order": array})


def test_numbers_follow_the_tables():
    """S29: B_X is the place of field "x", and so for S_ and T_; one shifted number would read another array."""
    for prefix, table in TABLES.items():
        numbers = {name: value for name, value in vars(tables).items() if name.startswith(prefix + "_")}
        numbers.pop("S_ROWS", None)
        for name, value in numbers.items():
            field = table[value].name
            assert field.upper() in {name[2:], name[2:].replace("ROW_", "")} or field == name[2:].lower(), name


def test_readers_are_those_of_the_fields():
    """S29: a kernel that reads `f32_2(batch, B_F4)` must name the type and the axes that the table declares; the reader
    itself cannot tell."""
    kinds = {(field.type, field.dims): None for table in TABLES.values() for field in table}
    assert kinds
    wrong = []
    for path in sorted(KERNELS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2):
                continue
            number = node.args[1]
            if not isinstance(number, ast.Name) or number.id[:2] not in {"B_", "S_", "T_"}:
                continue
            if number.id == "S_ROWS" or not hasattr(tables, number.id):
                continue
            field = TABLES[number.id[0]][getattr(tables, number.id)]
            bits = node.func.id == "i32_2" and field.type == "f32"  # the bits of a float block, on purpose
            if node.func.id != f"{field.type}_{field.dims}" and not bits:
                wrong.append(f"{path.name}:{node.lineno}: {node.func.id} of {number.id}")
    assert wrong == []


def test_ten_thousand_claims_over_six_slots():
    """S29: rows come and go in any order; a key always has its own arrays, and a row let go points nowhere."""
    pool = tables.SlotPool()
    scenes = {key: {"segment": np.full((1, 12), key, np.float32)} for key in range(50)}
    draws = np.random.default_rng(0).integers(50, size=(10_000, 6))
    for keys in draws[:2000]:
        pool.keep({int(key) for key in keys})
        placed = {int(key): pool.claim(int(key), scenes[int(key)]) for key in keys}
        for key, slot in placed.items():
            assert pool.table.entries[slot, tables.S_SEGMENT, 0] == scenes[key]["segment"].ctypes.data
        free = set(range(len(pool.table.entries))) - set(placed.values())
        assert not pool.table.entries[sorted(free)].any()
    assert len(pool.table.entries) <= 16


def test_worlds_run_on_their_own_scene_after_every_resample():
    """S29, S67: over many resamples every world's map is its scene's, and the log it replays is its own."""
    scenes = [
        straight_road([car(40.0 + 3 * k, y=0.0, speed=k + 1.0)], length=300.0 + 20 * k, name=f"r{k}") for k in range(9)
    ]
    cases = [case_of(scene) for scene in scenes]
    sim = simulator(
        scenes, EnvSettings(scenario_length=50), cases=cases[:3], autoreset="same_step", resample_every=1, pool=cases
    )
    sim.reset()
    for _ in range(60):
        sim.step(coast(sim))
        table = sim._slot_pool.table
        for w in range(len(sim.cases)):
            slot = int(sim._world[at.SLOT, w])
            assert table.held(slot)["segment"] is sim._stage_of[w].index.lanes.segment
            assert sim.scene(w).digest == sim.cases[w].scene_digest
            assert sim.agent["x"][sim.world_agents[w]] == sim.scene(w).tracks.x[0, 0]
