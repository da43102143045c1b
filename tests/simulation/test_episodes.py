"""Episodes in turn: autoreset, resampling, rows, snapshots and the caller's memory (S66, S67, S111-S116)."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from worlds import car, case_of, coast, simulator, straight_road

from skidpad.errors import CaseError, FormatError, IntegrityError, ProtocolError, SettingsError
from skidpad.scenes.case import Case
from skidpad.scenes.events import Event
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings, PerturbationSettings
from skidpad.simulation import state as at
from skidpad.simulation.episodes import KEPT_EPISODES, Draws
from skidpad.simulation.random import uniform_array

NAMES = ("straight", "curve", "crossing")
SHORT = EnvSettings(scenario_length=5)
NOISY = EnvSettings(
    scenario_length=60,
    perturbation=PerturbationSettings(lane_dropout=0.3, edge_dropout=0.2, blindness=0.5, phantom_braking=0.5),
)


@pytest.fixture(scope="module")
def scenes():
    """Three scenes with traffic."""
    return [synthetic(name) for name in NAMES]


def swerve(sim, step):
    """Continuous actions by identity: seed, agent and step."""
    drawn = uniform_array(sim.row_seed[:, None], 0, sim.row_key[:, None], step, 12, np.arange(2)[None])
    return (drawn * np.float32(2) - np.float32(1)).astype(np.float32)


def shown(result):
    """A result copied."""
    return {name: None if array is None else array.copy() for name, array in result._asdict().items()}


# ------------------------------------------------------------------------------------------------- autoreset


def test_same_step_shows_both_rows(scenes):
    """S66: `final_obs` is the row a run without autoreset ends with, and `obs` that of a reset: value targets built
    from one are those of the other."""
    off, on = simulator(scenes, SHORT), simulator(scenes, SHORT, autoreset="same_step")
    first = off.reset().obs.copy()
    assert (on.reset().obs == first).all()
    for step in range(5):
        ended, again = off.step(swerve(off, step)), on.step(swerve(off, step))
        for name in ("truncated", "terminal", "mask", "events", "reward"):
            assert (getattr(ended, name) == getattr(again, name)).all()
        if step < 4:
            assert (ended.obs == again.obs).all()
    assert ended.truncated.any()
    assert (again.final_obs == ended.obs).all()
    assert (again.obs == first).all()
    assert not on.done.any()
    assert on.steps_taken.tolist() == [0, 0, 0]


def test_next_step_ignores_one_action(scenes):
    """S66: the step after an end returns the first row of the new episode, without reward, events or mask."""
    sim = simulator(scenes, SHORT, autoreset="next_step")
    first = sim.reset().obs.copy()
    for step in range(5):
        result = sim.step(swerve(sim, step))
    assert result.truncated.any()
    assert result.final_obs is None
    assert sim.done.all()
    result = sim.step(np.full_like(coast(sim), np.nan))
    assert (result.obs == first).all()
    for name in ("truncated", "terminal", "mask", "events", "reward"):
        assert not getattr(result, name).any(), name
    assert sim.step(coast(sim)).mask.all()
    assert sim.steps_taken.tolist() == [1, 1, 1]


def test_episodes_differ_in_their_random_numbers(scenes):
    """S32, S66: the second episode of a world draws from its own streams, or training would see the same luck for
    ever; a reset goes back to the first."""
    sim = simulator(scenes, NOISY, autoreset="same_step")
    first = sim.reset().obs.copy()
    for step in range(60):
        result = sim.step(swerve(sim, step))
    assert not (result.obs == first).all()
    assert sim._world[at.EPISODE].tolist() == [1, 1, 1]
    assert (sim.reset().obs == first).all()


# ------------------------------------------------------------------------------------------------ resampling


@pytest.mark.parametrize("worlds", [1, 3, 7])
def test_every_case_once_per_pass(worlds):
    """S67: whatever the number of worlds, a pass takes each of 50 cases once, in an order of its own."""
    pool = [Case(f"{k:064d}", f"s{k}", 0, k % 2) for k in range(50)]
    draws = Draws(pool, 7)
    drawn = [next(draws) for _ in range(3 * 50 * worlds)]
    passes = [drawn[k : k + 50] for k in range(0, len(drawn), 50)]
    for one in passes:
        assert {case.scene_digest for case in one} == {case.scene_digest for case in pool}
    assert [case.scene_id for case in passes[0]] != [case.scene_id for case in passes[1]]
    assert len({case.id for case in drawn}) == len(drawn)
    again = Draws(pool, 7)
    assert [next(again) for _ in range(120)] == drawn[:120]
    assert [next(Draws(pool, 8)) for _ in range(1)] != drawn[:1] or Draws(pool, 8)._pass(0) != draws._pass(0)


def test_resampling_fills_the_rows_exactly():
    """S53, S67: buffers and the number of rows stay; worlds are drawn until the rows are full, the last one limited;
    truncated is raised for whoever was still driving, and the pinned list is the only source."""
    scenes = [straight_road([car(50.0 + 15 * n, speed=3.0) for n in range(1 + k)], name=f"p{k}") for k in range(5)]
    cases = [case_of(scene) for scene in scenes]
    pinned = cases[1:4]
    for mode in ("same_step", "next_step"):
        sim = simulator(
            scenes, EnvSettings(), cases=[cases[4], cases[2]], autoreset=mode, resample_every=3, pool=pinned
        )
        obs = sim.reset().obs
        for step in range(1, 25):
            result = sim.step(coast(sim))
            assert result.obs is obs
            assert len(sim.row_world) == 8 == len(obs)
            if step % (3 if mode == "same_step" else 4) == 0:
                assert sim.steps_taken.max() == 0
                assert {case.scene_digest for case in sim.cases} <= {case.scene_digest for case in pinned}
                assert [len(sim.policy_agents(w)) for w in range(len(sim.cases))] == np.bincount(sim.row_world).tolist()
            if (step % 4 == 3 and mode == "next_step") or (step % 3 == 0 and mode == "same_step"):
                assert result.truncated.all()
            else:
                assert not result.truncated.any()
        assert {row["ending"] for row in sim.rows() if row["kind"] == "world"} == {"resampled"}


def test_resampling_arguments():
    """S67, S115: checked at construction: an autoreset is needed, negative steps and unknown modes are refused, and a
    pool in which nobody can be tested is an error that names a scene, not a loop."""
    good, empty = straight_road([car(50.0, speed=3.0)], name="good"), straight_road([car(50.0)], name="parked")
    with pytest.raises(ProtocolError, match='autoreset "off"'):
        simulator(good, resample_every=3)
    with pytest.raises(ProtocolError, match="resample_every is -1"):
        simulator(good, resample_every=-1, autoreset="same_step")
    with pytest.raises(ProtocolError, match="autoreset is 'often'"):
        simulator(good, autoreset="often")
    sim = simulator(
        [good, empty], cases=[case_of(good)], autoreset="same_step", resample_every=1, pool=[case_of(empty)]
    )
    sim.reset()
    with pytest.raises(SettingsError, match="parked"):
        sim.step(coast(sim))


# ------------------------------------------------------------------------------------------------------ rows


def test_rows_say_what_happened(scenes):
    """S114, E56: counts, first steps, endings and clipped actions are those of the trace, recomputed step by step."""
    sim = simulator(scenes, EnvSettings(scenario_length=40))
    sim.reset()
    events, clipped = [], []
    for step in range(40):
        sim.step(np.float32(1.3) * swerve(sim, step))
        events.append(sim.agent["events"].copy())
        clipped.append(sim.clipped.copy())
    events = np.array(events)
    rows = sim.rows()
    assert sim.rows() == []
    worlds = [row for row in rows if row["kind"] == "world"]
    assert [row["scene_id"] for row in worlds] == [case.scene_id for case in sim.cases]
    assert {row["ending"] for row in worlds} == {"length"}
    assert {row["steps"] for row in worlds} == {40}
    seen = 0
    for w, case in enumerate(sim.cases):
        mine = [row for row in rows if row["kind"] == "agent" and row["case"] == case.id]
        assert [row["agent"] for row in mine] == sim.scored(w).tolist()
        for row in mine:
            a = sim.world_agents[w] + row["agent"]
            assert row["track"] == sim.scene(w).tracks.source_id[row["agent"]]
            r = np.flatnonzero((sim.row_world == w) & (sim.row_agent == row["agent"]))[0]
            assert row["clipped"] == np.sum(clipped, axis=0)[r]
            for bit in Event:
                hits = np.flatnonzero(events[:, a] & np.uint32(bit))
                name = bit.name.lower()
                assert row["events"].get(name, 0) == len(hits)
                if len(hits):
                    assert row["first"][name] == hits[0] + 1
                    seen += 1
    assert seen > 10


def test_rows_say_what_was_perturbed(scenes):
    """S114, S108: the shares that are not off, by name, in the row of the world; nothing in a clean one."""
    shaken = PerturbationSettings(blindness=0.5, lane_dropout=0.25)
    for perturbation, told in ((PerturbationSettings(), {}), (shaken, {"lane_dropout": 0.25, "blindness": 0.5})):
        sim = simulator(scenes, EnvSettings(scenario_length=1, perturbation=perturbation))
        sim.reset()
        sim.step(coast(sim))
        assert [row["perturbations"] for row in sim.rows() if row["kind"] == "world"] == [told] * len(scenes)


def test_rows_of_other_endings(scenes):
    """S114: an episode the caller ended says so, one of a broken state too; a reset without an end leaves no row."""
    sim = simulator(scenes)
    sim.reset()
    sim.step(coast(sim))
    sim.reset([0])
    sim.end(1, "told so")
    sim._f4[at.X, sim.world_agents[2]] = np.nan
    with pytest.raises(CaseError):
        sim.step(coast(sim))
    rows = [row for row in sim.rows() if row["kind"] == "world"]
    assert [(row["scene_id"], row["ending"]) for row in rows] == [
        (sim.cases[1].scene_id, "told so"),
        (sim.cases[2].scene_id, "not_finite"),
    ]


def test_the_ledger_is_bounded():
    """S129: whoever never asks for rows keeps no more than so many, and is told how many went."""
    scene = straight_road([car(50.0, speed=3.0)])
    sim = simulator(scene, EnvSettings(scenario_length=1), autoreset="same_step")
    sim.reset()
    for _ in range(KEPT_EPISODES + 5):
        sim.step(coast(sim))
    assert sim.ledger.dropped == 5
    rows = sim.rows()
    assert len(rows) == 2 * KEPT_EPISODES
    assert rows[0]["episode"] == 5
    assert sim.rows() == []


# ------------------------------------------------------------------------------------------------- snapshots


def trail(sim, steps, start):
    """Everything shown over some steps."""
    found = []
    for step in range(start, start + steps):
        found.append(shown(sim.step(swerve(sim, step))) | {name: view.copy() for name, view in sim.agent.items()})
    return found


def equal(one, other):
    return all(
        np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f")
        for a, b in zip(one, other, strict=True)
        for name in a
        if a[name] is not None
    )


def test_snapshot_at_every_step(scenes):
    """S113, S35: from a snapshot of any of 50 steps a fresh simulator goes on bit by bit."""
    sim = simulator(scenes, NOISY)
    sim.reset()
    taken = []
    for step in range(50):
        taken.append(sim.snapshot())
        sim.step(swerve(sim, step))
    reference = simulator(scenes, NOISY)
    reference.reset()
    path = trail(reference, 54, 0)
    for step, data in enumerate(taken):
        other = simulator(scenes, NOISY)
        other.restore(data)
        assert equal(trail(other, 4, step), path[step : step + 4]), step


def test_snapshot_into_another_place(scenes):
    """S113: worlds go on at another place of another batch, with their own seeds and random streams."""
    here = simulator(scenes, NOISY, cases=[case_of(scene, replicate=3) for scene in scenes])
    here.reset()
    trail(here, 7, 0)
    there = simulator(scenes[::-1], NOISY)
    there.reset()
    trail(there, 3, 0)
    there.restore(here.snapshot([2, 0]), [0, 2])
    assert there.cases[0] == here.cases[2]
    for step in range(7, 20):
        one, other = here.step(swerve(here, step)), there.step(swerve(there, step))
        for w, v in ((2, 0), (0, 2)):
            for name in ("obs", "events", "mask", "terminal"):
                assert (getattr(one, name)[here.row_world == w] == getattr(other, name)[there.row_world == v]).all()


def test_snapshot_in_another_process(scenes, tmp_path):
    """S113: another process goes on from the bytes to the same bytes."""
    sim = simulator(scenes, SHORT)
    sim.reset()
    trail(sim, 2, 0)
    (tmp_path / "frozen").write_bytes(sim.snapshot())
    code = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from test_episodes import SHORT, NAMES, swerve, synthetic, simulator\n"
        "sim = simulator([synthetic(name) for name in NAMES], SHORT)\n"
        "sim.restore(Path(sys.argv[2]).read_bytes())\n"
        "result = sim.step(swerve(sim, 2))\n"
        "print(hashlib.sha256(result.obs.tobytes()).hexdigest())\n"
    )
    folder = str(__import__("pathlib").Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, folder, str(tmp_path / "frozen")], capture_output=True, text=True, check=True
    )
    import hashlib

    assert done.stdout.split()[-1] == hashlib.sha256(sim.step(swerve(sim, 2)).obs.tobytes()).hexdigest()


def test_foreign_snapshots_are_refused(scenes):
    """S113: other settings, another scene, another number of worlds, a flipped byte, no snapshot at all, no state yet:
    each is a typed error and changes nothing."""
    sim = simulator(scenes, SHORT)
    with pytest.raises(ProtocolError, match="before reset"):
        sim.snapshot()
    sim.reset()
    data = sim.snapshot()
    with pytest.raises(ProtocolError, match="other env settings"):
        simulator(scenes, NOISY).restore(data)
    with pytest.raises(ProtocolError, match="world 0 runs scene"):
        simulator(scenes[::-1], SHORT).restore(data)
    with pytest.raises(ProtocolError, match="3 worlds; 2 are named"):
        sim.restore(data, [0, 1])
    with pytest.raises(ProtocolError, match="no such world: 3"):
        sim.restore(data, [0, 1, 3])
    before = sim._f4.copy()
    for at_byte in (0, 70, len(data) // 2, len(data) - 2):
        flipped = bytearray(data)
        flipped[at_byte] ^= 4
        with pytest.raises((FormatError, IntegrityError)):
            sim.restore(bytes(flipped))
    with pytest.raises(FormatError):
        sim.restore(b"not one")
    assert np.array_equal(before, sim._f4, equal_nan=True)


# --------------------------------------------------------------------------------------------------- buffers


def fresh(sim, names=("obs", "reward", "terminal", "truncated", "mask", "events")):
    """Memory of the caller for these results."""
    return {name: np.full_like(getattr(sim.result, name), 1) for name in names}


def test_results_are_written_in_place(scenes):
    """S111: with every buffer the caller's, addresses are the caller's, and bytes those of a simulator of its own."""
    own = simulator(scenes, SHORT)
    buffers = fresh(own)
    sim = simulator(scenes, SHORT, buffers=buffers)
    assert equal([shown(sim.reset())], [shown(own.reset())])
    for step in range(5):
        result, other = sim.step(swerve(sim, step)), own.step(swerve(own, step))
        assert all(getattr(result, name) is buffer for name, buffer in buffers.items())
        assert equal([shown(result)], [shown(other)])


def test_other_memory_is_written_too(scenes):
    """S111: a tensor and a shared block are memory like any other."""
    torch = pytest.importorskip("torch")
    from multiprocessing.shared_memory import SharedMemory

    own = simulator(scenes, SHORT)
    tensor = torch.zeros(own.result.obs.shape)
    block = SharedMemory(create=True, size=own.result.events.nbytes)
    try:
        events = np.frombuffer(block.buf, np.uint32, len(own.result.events))
        sim = simulator(scenes, SHORT, buffers={"obs": tensor, "events": events})
        sim.reset(), own.reset()
        for step in range(3):
            sim.step(swerve(sim, step)), own.step(swerve(own, step))
        assert (tensor.numpy() == own.result.obs).all()
        assert (events == own.result.events).all()
        sim.close()
        del events, sim
    finally:
        __import__("gc").collect()
        block.close()
        block.unlink()


def test_wrong_buffers_are_refused(scenes):
    """S115: unknown name, shape, dtype, strides, read-only, overlap, no memory: each says which."""
    sim = simulator(scenes, SHORT)
    obs = np.zeros_like(sim.result.obs)
    frozen = obs.copy()
    frozen.flags.writeable = False
    memory = np.zeros(len(obs), np.uint8)
    for buffers, message in (
        ({"observation": obs}, "no such result: observation"),
        ({"obs": obs[1:]}, "is due"),
        ({"obs": obs.astype(np.float64)}, "is due"),
        ({"obs": np.asfortranarray(obs)}, "one writable, aligned stretch"),
        ({"obs": frozen}, "one writable, aligned stretch"),
        ({"mask": memory.view(np.bool_), "terminal": memory.view(np.bool_)}, "overlap: give each memory of its own"),
        ({"obs": obs.tolist()}, "is list"),
    ):
        with pytest.raises(ProtocolError, match=message):
            simulator(scenes, SHORT, buffers=buffers)


def test_actions_and_results_are_apart(scenes):
    """S115: results over the actions, in one step or a later one of a chunk, or over other results, would be read as
    what they are not; refused before anything is written."""
    sim = simulator(scenes, SHORT)
    sim.reset()
    rows, width = sim.result.obs.shape
    memory = np.zeros((3, rows, width), np.float32)
    actions = memory.reshape(-1)[: 3 * rows * 2].reshape(3, rows, 2)
    with pytest.raises(ProtocolError, match="obs and actions overlap"):
        sim.step_many(actions, into={"obs": memory})
    assert (sim.steps_taken == 0).all()
    sim.write_to({"obs": memory[0]})
    with pytest.raises(ProtocolError, match="obs and actions overlap"):
        sim.step(actions[0])
    with pytest.raises(ProtocolError, match="overlap"):
        sim.write_to({"reward": memory[0, :1].reshape(-1)[:rows]})
    assert (sim.steps_taken == 0).all()
    sim.step(np.zeros((rows, 2), np.float32))
    assert (sim.steps_taken == 1).all()


def test_many_steps_are_single_steps(scenes):
    """S112, S35: a chunk of steps equals the steps, and every step of it may be kept in the caller's memory."""
    one, many = (simulator(scenes, NOISY, autoreset="same_step") for _ in range(2))
    one.reset(), many.reset()
    actions = np.array([swerve(one, step) for step in range(12)])
    ring = {name: np.zeros((12, *array.shape), array.dtype) for name, array in fresh(one).items()}
    home = many.result
    result = many.step_many(actions, into=ring)
    assert result is home is many.result
    for step in range(12):
        single = one.step(actions[step])
        for name, kept in ring.items():
            assert (kept[step] == getattr(single, name)).all(), (name, step)
    assert equal([shown(result)], [shown(single)])
    assert equal(trail(one, 5, 12), trail(many, 5, 12))
    with pytest.raises(ProtocolError, match="is due"):
        many.step_many(actions, into={"obs": ring["obs"][:5]})


def test_a_step_allocates_no_array(scenes):
    """S111: after warm-up a step makes no array, of any size."""
    sim = simulator(scenes, cases=[case_of(scenes[0], replicate=n) for n in range(64)])
    actions = (sim.reset(), coast(sim))[1]
    for _ in range(3):
        sim.step(actions)
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(5):
        sim.step(actions)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    growth = [line for line in after.compare_to(before, "filename") if line.size_diff > 2000]
    assert growth == []


# ------------------------------------------------------------------------------------------- finite and small


FIELDS = [
    field.name
    for field in at.FLOAT_STATE
    if field.name in {"x", "y", "z", "heading", "cos", "sin", "speed", "steering", "length", "width", "height"}
]


@pytest.mark.parametrize("field", FIELDS)
def test_a_broken_state_names_itself(scenes, field):
    """S116: NaN in any field that a step does not overwrite is found in that step and stays in its world."""
    sim = simulator(scenes)
    sim.reset()
    sim.step(coast(sim))
    number = [one.name for one in at.FLOAT_STATE].index(field)
    agent = int(sim.world_agents[1]) + 2
    sim._f4[number, agent] = np.nan
    with pytest.raises(CaseError, match=r"world 1 .*agent 2") as caught:
        sim.step(coast(sim))
    assert caught.value.world == 1
    assert sim.steps_taken.tolist() == [2, 2, 2]
    assert sim.step(coast(sim)).mask.any()


def test_full_check_reads_observations(scenes):
    """S116: `check="full"` finds what the state does not show: a map with a broken row."""
    sim = simulator(scenes, check="full")
    sim.reset()
    sim.step(coast(sim))
    rows = sim._slot_pool.table.held(int(sim._world[at.SLOT, 1]))["rows0.row"]
    broken = np.full_like(rows, np.nan)
    sim._slot_pool.table.put(int(sim._world[at.SLOT, 1]), {"rows0.row": broken})
    with pytest.raises(CaseError, match=r"world 1 .*observation is not finite"):
        sim.step(coast(sim))
    with pytest.raises(ProtocolError, match="check 'some'"):
        simulator(scenes, check="some")


def test_memory_of_a_world():
    """S128: a world of 32 agents costs no more than 64 KiB beside its observations."""
    scene = straight_road([car(20.0 + 9 * n, y=-3.5 * (n % 3), speed=2.0) for n in range(32)], lanes=3)
    sim = simulator(scene, cases=[case_of(scene, replicate=n) for n in range(16)])
    sim.reset()
    divided = [field.name for field in __import__("skidpad.simulation.slots", fromlist=["BATCH"]).BATCH if field.along]
    held = sim._batch.held(0)
    size = sum(held[name].nbytes for name in divided)
    assert size / 16 <= 64 * 1024


@pytest.mark.slow
def test_memory_stays_flat():
    """S129, S67: resident memory does not grow over 10^5 steps of 16 worlds with resampling."""
    import os

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    scenes = [straight_road([car(50.0 + 15 * n, speed=3.0) for n in range(1 + k % 4)], name=f"m{k}") for k in range(20)]
    sim = simulator(scenes, EnvSettings(scenario_length=40), autoreset="same_step", resample_every=100)
    sim.reset()
    actions = coast(sim)
    for _ in range(20_000):
        sim.step(actions)
    settled = resident()
    for _ in range(80_000):
        sim.step(actions)
    assert resident() < settled * 1.01
